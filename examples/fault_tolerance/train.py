#!/usr/bin/env python3
"""Trains with any number of processes, and continues when nodes are lost or join.

    muster --nnodes=2:3 --max-restarts=3 --rdzv-endpoint=HOST:PORT --rdzv-id=ID \
        examples/fault_tolerance/train.py FOLDER

All nodes need access to FOLDER. It has the snapshot, and steps.csv with a line for each step. The
batch of a step is the same for any number of processes, and so is its loss, except for the last
digits.
"""

import argparse
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# BATCH: examples per step, over all processes.
BATCH, WIDTH, LEARNING_RATE, MOMENTUM = 24, 8, 0.02, 0.9


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))


def my_share(step):
    """Returns this rank's share of the step's batch: inputs and targets.

    The batch depends only on the step number, so the snapshot needs no data.
    """
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
    mine = inputs[dist.get_rank()::dist.get_world_size()]
    return mine, mine.sum(1, keepdim=True)


def train_step(ddp, optimizer, step):
    """Does one step and returns the loss of the whole batch."""
    inputs, targets = my_share(step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(ddp(inputs), targets)
    loss.backward()
    optimizer.step()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean.item()


def save(path, model, optimizer, steps):
    """Replaces the snapshot in one step. Only rank 0 calls this function.

    If a process is killed at any moment, the file is the old snapshot or the new one.
    """
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "steps": steps}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def load(path, model, optimizer):
    """Loads the snapshot, if there is one, and returns the number of finished steps.

    Rank 0 reads the file and sends it to the other ranks, because another node may see an older
    file.
    """
    found = [torch.load(path, weights_only=True) if dist.get_rank() == 0 and path.exists() else None]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["steps"]


def may_do(folder, step):
    """Whether this step may be done now: run.py can write the last one that may into the file hold."""
    try:
        return step <= int((folder / "hold").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True


def train(arguments):
    rank, size = dist.get_rank(), dist.get_world_size()
    if BATCH % size != 0:
        raise SystemExit(f"{size} processes: expected a number that divides {BATCH}")
    snapshot = arguments.folder / "snapshot.pt"
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    done = load(snapshot, model, optimizer)
    ddp = DistributedDataParallel(model)
    if rank == 0:
        print(f"{size} processes go on after step {done}" if done else f"{size} processes begin",
              flush=True)
    for step in range(done + 1, arguments.steps + 1):
        while not may_do(arguments.folder, step):
            time.sleep(0.01)
        loss = train_step(ddp, optimizer, step)
        time.sleep(arguments.pause)  # Stands for the computation of a larger model.
        if rank == 0:
            with open(arguments.folder / "steps.csv", "a", encoding="utf-8") as log:
                log.write(f"{time.time():.3f},{step},{size},{loss:.6f}\n")
            if step % arguments.save_every == 0:
                save(snapshot, model, optimizer, step)
    if rank == 0 and done < arguments.steps:  # Otherwise an earlier job has done all steps.
        print(f"step {arguments.steps} done by {size} processes: loss {loss:.6f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="for the snapshot, on all nodes")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--pause", type=float, default=0.02, metavar="SECONDS", help="in each step")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo")
    train(arguments)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
