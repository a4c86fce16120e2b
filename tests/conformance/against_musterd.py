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
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from musterd import Musterd

SKIPPED = 77


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
    with tempfile.TemporaryDirectory(prefix="muster-store-") as folder:
        process = Musterd("--log-level=error", program=musterd, log=os.path.join(folder, "log"))
        try:
            code = check(kind, what, f"127.0.0.1:{process.says('listening on').port}")
            stop(process)
        finally:
            process.end()
            print(process.log(), end="")
    sys.exit(code)


def check(kind, what, address):
    if kind == "replay":
        command = [sys.executable, str(HERE / "golden" / "replay.py"), what, address]
    else:
        command = [what, str(HERE / "store_conformance.py"), address]
    return subprocess.run(command, timeout=280).returncode


if __name__ == "__main__":
    main()
