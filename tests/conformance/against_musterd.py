#!/usr/bin/env python3
"""Starts musterd on a free port and runs a check against it.

    against_musterd.py MUSTERD replay FILE
    against_musterd.py MUSTERD conformance PYTHON

replay sends recorded bytes of torch's client and compares the answers with recorded ones of
torch's server. conformance drives PYTHON's own torch client; without torch it is skipped (77).
"""
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def start(musterd, *options):
    process = subprocess.Popen([musterd, "--bind", "127.0.0.1", "--port", "0", "--log-level", "error", *options],
                               stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith("musterd: listening on "), "unexpected first line: %r" % line
    return process, line.split()[-1]


def stop(process):
    process.send_signal(signal.SIGTERM)
    code = process.wait(30)
    if code != 0:
        sys.exit("musterd ended with %d" % code)


def main():
    musterd, kind, what = sys.argv[1:]
    if kind == "conformance":
        found = os.path.exists(what) and subprocess.run(
            [what, "-c", "import torch.distributed"], stderr=subprocess.DEVNULL).returncode == 0
        if not found:
            print("SKIPPED: %s has no torch (scripts/quickstart installs it)" % what)
            sys.exit(SKIPPED)
    process, address = start(musterd)
    try:
        if kind == "replay":
            command = [sys.executable, str(HERE / "golden" / "replay.py"), what, address]
        else:
            command = [what, str(HERE / "store_conformance.py"), address]
        code = subprocess.run(command, timeout=280).returncode
        stop(process)
    finally:
        process.kill()
        process.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
