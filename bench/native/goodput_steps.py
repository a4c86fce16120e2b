"""A worker of `bench/run goodput`: trains a small model, and fails when the bench orders it to.

    goodput_steps.py FOLDER

The first rank writes a line into FOLDER/steps after each optimizer step (the time, the step's
number), and all 5 s a checkpoint, FOLDER/checkpoint. Each start goes on with the step after the
checkpoint. The file FOLDER/order.RANK is an order to the worker with this rank, for once: raise,
kill or hang.
"""
import datetime
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEP_S = 0.05
CHECKPOINT_S = 5.0
MEETING_LIMIT = datetime.timedelta(seconds=60)  # Of the imports of another rank, on a busy machine.
STEP_LIMIT = datetime.timedelta(seconds=10)


def obey(order):
    try:
        word = order.read_text()
    except FileNotFoundError:
        return
    order.unlink()
    if word == "raise":
        raise RuntimeError("the bench has ordered this exception")
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(100000)


def save(path, step, model):
    partial = path.with_name("checkpoint.partial")
    torch.save({"step": step, "model": model.state_dict()}, partial)
    partial.replace(path)


def load(path, model):
    """Returns the number of the next step."""
    if not path.exists():
        return 1
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    return saved["step"] + 1


def main():
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=MEETING_LIMIT)
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    first = torch.tensor([load(folder / "checkpoint", model) if rank == 0 else 0])
    dist.broadcast(first, 0)
    # DistributedDataParallel sends the first rank's model to the others.
    ddp = DistributedDataParallel(model, process_group=dist.new_group(timeout=STEP_LIMIT))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    steps = os.open(folder / "steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    step, saved_s = int(first), time.monotonic()
    while True:
        begin_s = time.monotonic()
        obey(folder / f"order.{rank}")
        optimizer.zero_grad()
        ddp(torch.ones(16, 64)).square().mean().backward()
        optimizer.step()
        # The rest of the step stands for an accelerator's work.
        time.sleep(max(STEP_S - (time.monotonic() - begin_s), 0))
        if rank == 0:
            os.write(steps, f"{time.monotonic_ns()} {step}\n".encode())
            if time.monotonic() - saved_s >= CHECKPOINT_S:
                save(folder / "checkpoint", step, model)
                saved_s = time.monotonic()
        step += 1


main()
