"""Holds memory of the GPU until it is killed: hold_memory.py FOLDER BYTES.

Writes FOLDER/began.N, then FOLDER/holds.N when it has the memory, where N is the number of the attempt. Each has the
process's number and CLOCK_MONOTONIC's time.
"""
import os
import pathlib
import sys
import time

folder, size, attempt = pathlib.Path(sys.argv[1]), int(sys.argv[2]), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def note(name):
    partial = folder / f"{name}.{attempt}.partial"
    partial.write_text(f"{os.getpid()} {time.monotonic()}")
    os.replace(partial, folder / f"{name}.{attempt}")


note("began")
import torch  # noqa: E402  # pylint: disable=wrong-import-position

from common import device  # noqa: E402  # pylint: disable=wrong-import-position

held = torch.empty(size, dtype=torch.uint8, device=device())
held[::4096] = 1  # Every page, or the CPU would give none in a rehearsal. (A sum would need eight times the memory.)
print(f"holds {held.nbytes} bytes, the last page has {held[::4096][-1].item()}", flush=True)
note("holds")
while True:
    time.sleep(60)
