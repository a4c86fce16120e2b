#!/usr/bin/env python3
"""Makes the first inputs of fuzz targets whose inputs are bytes that others write.

    make_corpus.py store_codec FOLDER      what each client of a recording sent on one connection
    make_corpus.py state_codec FOLDER      the pickles in conformance/rendezvous, decoded
    make_corpus.py tensor_pickle FOLDER    pickles of tensors; needs torch

tests/fuzz/turns.sh --add TARGET FOLDER/* puts them into the target's corpus.
"""
import base64
import binascii
import hashlib
import io
import json
import pathlib
import pickle
import sys
import zipfile

CONFORMANCE = pathlib.Path(__file__).resolve().parents[1] / "conformance"


def store_codec():
    greeting = b"\0\xce\xf7\x85\x3c"
    for name in ("ops_libuv.json", "raw_libuv.json"):
        recording = json.loads((CONFORMANCE / "golden" / name).read_text())
        for operation in recording["ops"]:
            streams = {}
            for event in operation["events"]:
                if event["dir"] == "c2s":
                    streams[event["conn"]] = streams.get(event["conn"], b"") + bytes.fromhex(event["hex"])
            for stream in streams.values():
                if not stream.startswith(greeting):
                    stream = greeting + stream
                if len(stream) <= 4096:
                    # The first byte is the size of the pieces.
                    yield hashlib.sha256(stream).hexdigest()[:16], b"\2" + stream


def state_codec():
    for path in sorted((CONFORMANCE / "rendezvous").rglob("*.b64")):
        text = path.read_bytes()
        try:
            text = base64.b64decode(text, validate=True)
        except binascii.Error:
            pass  # The reader gets it as it is.
        yield f"{path.parent.name}_{path.stem}", text
    for path in sorted((CONFORMANCE / "rendezvous" / "golden").glob("*.jsonl")):
        states = {}
        for value in strings_in([json.loads(line) for line in path.read_text().splitlines()]):
            try:
                pickled = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                continue
            if pickled.startswith(b"\x80"):
                states.setdefault(len(pickled), pickled)  # One of each length: they differ in little else.
        for size, pickled in states.items():
            yield f"{path.stem}_{size}", pickled


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in (value.values() if isinstance(value, dict) else value):
            yield from strings_in(item)


def tensor_pickle():
    import torch  # noqa: PLC0415 - the others need none.

    torch.manual_seed(1)
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(tensor).sum().backward()
    optimizer.step()
    values = {
        "tensor": tensor,
        "views": [tensor, tensor.t(), tensor[1:, ::2], tensor[0, 0]],
        "types": {str(dtype): torch.zeros(2, dtype=dtype) for dtype in (
            torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.bool, torch.complex64)},
        "parameter": torch.nn.Parameter(tensor),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "checkpoint": {"model": model.state_dict(), "step": 7, "loss": 0.25, "best": None, "names": ("a", "\u00e9"),
                       "done": True, "bytes": b"\0\xff", "large": 1 << 70, "negative": -5, "set": {1, 2}},
        "plain": [1, 2.5, "text", None, True, {"a": []}, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "conjugated": torch.zeros(2, dtype=torch.complex64).conj(),
        "class": torch.nn.ReLU(),
    }
    for name, value in values.items():
        for protocol in (2, 4):
            archive = io.BytesIO()
            torch.save(value, archive, pickle_protocol=protocol)
            with zipfile.ZipFile(archive) as members:
                data = next(member for member in members.namelist() if member.endswith("data.pkl"))
                yield f"save_{name}_{protocol}", members.read(data)
        yield f"pickle_{name}", pickle.dumps(value)
    for name in ("tensor", "plain"):
        inside = io.BytesIO()
        torch.save(values[name], inside)
        yield f"inside_{name}", pickle.dumps({name: Inside(inside.getvalue())})


class Inside:
    """Pickled as broadcast_object() does it: a tensor is a whole archive."""

    def __init__(self, archive):
        self.archive = archive

    def __reduce__(self):
        import torch  # noqa: PLC0415
        return torch.storage._load_from_bytes, (self.archive,)


def main(target, folder):
    bytes_max = 8192  # As turns.sh's -max_len.
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {"store_codec": store_codec, "state_codec": state_codec, "tensor_pickle": tensor_pickle}[target]():
        if 0 < len(data) <= bytes_max:
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
