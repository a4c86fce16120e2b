#!/usr/bin/env python3
"""Trains until it is told that a node of the job will go; saves, answers and ends. Started again, it goes on.

    muster --standalone --nproc-per-node=2 --exit-code=propagate --notice-signals=SIGUSR1@120 \
        examples/preemption/train.py --snapshot build/preemption.pt

The losses are those of a training that nobody interrupted, to the last digit.
"""
import argparse
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

import muster_worker

BATCH = 16


def batch(step: int) -> "tuple[torch.Tensor, torch.Tensor]":
    """The data of one step follows from the step and the rank, so the snapshot needs no position in the data."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    inputs = torch.randn(BATCH, 8, generator=generator)
    return inputs, inputs.sum(1, keepdim=True)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    inputs, targets = batch(step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean.item()


def all_know_a_notice() -> bool:
    """The ranks learn of a notice at different moments. They must agree in which step they stop."""
    flag = torch.tensor([int(muster_worker.notice() is not None)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def save(path: pathlib.Path, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Rank 0 replaces the file in one step. All ranks return when it is in place."""
    if dist.get_rank() == 0:
        partial = path.with_name(f".{path.name}.partial")
        with open(partial, "wb") as file:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    dist.barrier()


def say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


@record
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--snapshot", type=pathlib.Path, required=True, help="on storage that all nodes share")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each step, in place of a large model")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    muster_worker.ends_itself()  # No signal comes while this process saves.
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if arguments.snapshot.exists():
        snapshot = torch.load(arguments.snapshot, weights_only=True)
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        first = snapshot["steps"]
        say(f"going on after step {first - 1}")

    for step in range(first, arguments.steps):
        say(f"step {step}: loss {train_step(model, optimizer, step):.17g}")
        muster_worker.progress(step)
        time.sleep(arguments.pause)
        if all_know_a_notice():
            notice = muster_worker.notice()  # None if another rank alone has one so far.
            save(arguments.snapshot, model, optimizer, step + 1)
            muster_worker.saved()  # This rank may be stopped now.
            say(f"saved after step {step}" + (f", because of a notice: {notice.reason}" if notice else ""))
            break
    else:
        save(arguments.snapshot, model, optimizer, arguments.steps)
        say("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
