"""A worker of `bench/run ddp` in Python, which does the same as ddp_steps.cc.

    ddp_steps.py STEPS
"""
import os
import sys
import time

NOTES = os.open(os.environ["MUSTER_BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def note(what):
    rank, restarts = os.environ["LOCAL_RANK"], os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    os.write(NOTES, f"{what} {rank} {restarts} {os.getpid()} {time.monotonic_ns()}\n".encode())


note("main")

import torch  # noqa: E402 (the measured time includes this import)
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

# The same numbers as in ddp_steps.cc.
BATCH, INPUTS, WIDTH, CLASSES, WARM_UP, LEARNING_RATE = 64, 784, 512, 10, 10, 0.01


def wait_at_gate():
    """Returns when no process has the gate open for writing."""
    gate = os.open(os.environ["MUSTER_BENCH_GATE"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(gate, True)
    while os.read(gate, 1):
        pass


def main():
    steps = int(sys.argv[1])
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                          nn.Linear(WIDTH, CLASSES))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    torch.manual_seed(100 + dist.get_rank())
    inputs, labels = torch.randn(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
        optimizer.step()

    step()
    note("first_step")
    for _ in range(WARM_UP):
        step()
    dist.barrier()
    note("begin")
    for _ in range(steps):
        step()
    note("done")
    wait_at_gate()
    dist.barrier()
    dist.destroy_process_group()
    # Skip Python's shutdown and DDP's destructor: in torch 2.13, a Gloo thread may abort the
    # shutdown, or make the destructor hang.
    os._exit(0)


main()
