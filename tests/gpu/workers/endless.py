"""Starts a kernel that does not end, and waits for it: the worker then uses the CPU and makes no progress.

It reports its progress over the worker channel before that, so --hang-timeout counts the reports that do not come.
The kernel ends by itself after about two minutes, in case that nothing ends the process.
"""
import json
import os
import socket
import time

import torch
from common import device

CYCLES = 240_000_000_000  # Two minutes at 2 GHz.


def wait_for_the_kernel(gpu):
    if gpu.type == "cpu":
        while True:  # A rehearsal: torch waits for the GPU in the same way.
            time.perf_counter()
    torch.cuda._sleep(CYCLES)  # pylint: disable=protected-access
    torch.cuda.synchronize()


place = device()
torch.ones(1, device=place).sum().item()
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
for message in ({"type": "hello", "local_rank": int(os.environ["LOCAL_RANK"])}, {"type": "progress", "step": 1}):
    channel.sendall(json.dumps(message).encode() + b"\n")
print("the kernel begins", flush=True)
wait_for_the_kernel(place)
raise SystemExit("the kernel has ended by itself")
