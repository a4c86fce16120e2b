"""A worker of `bench/run again`: a step of DDP, then a failure of rank 0, and a step again.

It notes "stepped" after the first optimizer step of each attempt. The worker with local rank 0 notes "fails" when the
gate is opened, and ends; with MUSTER_BENCH_RAISES it raises an exception.
"""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAILURE = 3


def note(notes, what, attempt):
    rank = os.environ["LOCAL_RANK"]
    os.write(notes, f"{what} {rank} {attempt} {os.getpid()} {time.monotonic_ns()}\n".encode())


def wait_at_gate():
    """Returns when no process has the gate open for writing."""
    gate = os.open(os.environ["MUSTER_BENCH_GATE"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(gate, True)
    while os.read(gate, 1):
        pass


def train(attempt, end, wait, **group):
    """A step; then, in the first attempt, the failure of rank 0: it calls `end`, and the others `wait`."""
    notes = os.open(os.environ["MUSTER_BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    dist.init_process_group("gloo", **group)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model(torch.ones(16, 64)).sum().backward()
    optimizer.step()
    note(notes, "stepped", attempt)
    if attempt == 0:
        wait_at_gate()
        if os.environ["LOCAL_RANK"] != "0":
            wait()
        note(notes, "fails", attempt)
        end()
    dist.barrier()
    dist.destroy_process_group()


def end_at_once():
    os._exit(FAILURE)


def raise_an_exception():
    raise RuntimeError("an exception of rank 0")


def main():
    end = raise_an_exception if "MUSTER_BENCH_RAISES" in os.environ else end_at_once
    train(int(os.environ["TORCHELASTIC_RESTART_COUNT"]), end, lambda: time.sleep(1000))
    os._exit(0)  # As in ddp_steps.py.


if __name__ == "__main__":
    main()
