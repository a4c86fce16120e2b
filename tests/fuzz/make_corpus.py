#!/usr/bin/env python3
"""Makes the fuzzer's first corpus from the recorded streams: what each client sent on one connection.

    make_corpus.py FOLDER
"""
import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
BYTES_MAX = 4096


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ops_libuv.json", "raw_libuv.json"):
        recording = json.loads((HERE.parent / "conformance" / "golden" / name).read_text())
        for operation in recording["ops"]:
            streams = {}
            for event in operation["events"]:
                if event["dir"] == "c2s":
                    streams[event["conn"]] = streams.get(event["conn"], b"") + bytes.fromhex(event["hex"])
            for stream in streams.values():
                if not stream.startswith(b"\0\xce\xf7\x85\x3c"):
                    stream = b"\0\xce\xf7\x85\x3c" + stream
                if len(stream) <= BYTES_MAX:
                    # The first byte is the size of the pieces.
                    (folder / hashlib.sha256(stream).hexdigest()[:16]).write_bytes(b"\2" + stream)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
