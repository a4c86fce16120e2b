"""A worker of `bench/run again`: a step of DDP, then a failure of rank 0, and a step again.

It notes "stepped" after the first optimizer step of each attempt. The worker with local rank 0 notes "fails" when the
gate is opened, and ends.
"""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAILURE = 3


def note(notes, what):
    rank, restarts = os.environ["LOCAL_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    os.write(notes, f"{what} {rank} {restarts} {os.getpid()} {time.monotonic_ns()}\n".encode())


def wait_at_gate():
    """Returns when no process has the gate open for writing."""
    gate = os.open(os.environ["MUSTER_BENCH_GATE"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(gate, True)
    while os.read(gate, 1):
        pass


def main():
    notes = os.open(os.environ["MUSTER_BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model(torch.ones(16, 64)).sum().backward()
    optimizer.step()
    note(notes, "stepped")
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        wait_at_gate()
        if os.environ["LOCAL_RANK"] != "0":
            time.sleep(1000)
        note(notes, "fails")
        os._exit(FAILURE)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # As in ddp_steps.py.


main()
