#!/usr/bin/env python3
"""Saves and loads a model in a job, and trains with snapshots, so that a killed job can continue.

    muster --standalone --nproc-per-node=2 --max-restarts=1 examples/checkpoint/checkpoint.py FOLDER

With --die-in-epoch N, rank 1 kills itself in that epoch, in the first attempt only. The losses are
those of an undisturbed run, to the last digit.
"""

import argparse
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, LEARNING_RATE, MOMENTUM, KEEP = 16, 0.05, 0.9, 2


def make_model():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))


def print_in_order(text):
    """Prints the texts of all ranks, in the order of the ranks."""
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            print(text, flush=True)
        dist.barrier()


def save_atomically(path, value):
    """Replaces the file in one step: a reader finds the old file or the new one, never half of one.

    This also holds after a crash of the machine, because the data is synced before the rename.
    """
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def share_through_a_file(model, path, device):
    """Rank 0 saves the model. After the barrier, every rank loads it onto its own device."""
    if dist.get_rank() == 0:
        save_atomically(path, model.state_dict())
    dist.barrier()
    model.load_state_dict(torch.load(path, map_location=device, weights_only=True))


def all_generators():
    """Returns, on every rank, the states of all ranks' random number generators."""
    mine = torch.get_rng_state()
    states = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(states, mine)
    return [{"cpu": state} for state in states]


def save_snapshot(folder, model, optimizer, epoch):
    generators = all_generators()
    if dist.get_rank() == 0:
        snapshot = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "epoch": epoch, "world_size": dist.get_world_size(), "rng": generators}
        save_atomically(folder / f"checkpoint-{epoch:08}.pt", snapshot)
        for old in sorted(folder.glob("checkpoint-*.pt"))[:-KEEP]:
            old.unlink()
    dist.barrier()


def load_snapshot(folder, model, optimizer, device):
    """Loads the newest snapshot, if there is one, and returns the number of finished epochs."""
    dist.barrier()  # No rank lists the folder while another rank still writes to it.
    files = sorted(folder.glob("checkpoint-*.pt"))
    if not files:
        return 0
    snapshot = torch.load(files[-1], map_location=device, weights_only=True)
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    torch.set_rng_state(snapshot["rng"][dist.get_rank()]["cpu"].cpu())
    return snapshot["epoch"]


def train_epoch(ddp, optimizer, dies):
    """Returns the mean loss over all ranks.

    Data and dropout use this rank's random number generator.
    """
    inputs = torch.randn(BATCH, 8)
    targets = inputs.sum(1, keepdim=True)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(ddp(inputs), targets)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where snapshots are, on all nodes")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--die-in-epoch", type=int, default=-1, metavar="N")
    arguments = parser.parse_args()
    device = torch.device("cpu")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    # Each rank starts with a different model. Below, all ranks load rank 0's.
    torch.manual_seed(rank)
    model = make_model().to(device)
    share_through_a_file(model, arguments.folder / "start.pt", device)
    total = sum(parameter.sum().item() for parameter in model.parameters())
    print_in_order(f"rank {rank}: the sum of all weights is {total:.6f}")

    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    done = load_snapshot(arguments.folder, model, optimizer, device)
    if rank == 0 and done > 0:
        print(f"going on after epoch {done - 1}", flush=True)
    first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    for epoch in range(done, arguments.epochs):
        dies = rank == 1 and epoch == arguments.die_in_epoch and first_life
        loss = train_epoch(ddp, optimizer, dies)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.9g}", flush=True)
        save_snapshot(arguments.folder, model, optimizer, epoch + 1)
    dist.barrier()
    # Delete DDP before the process group. In torch 2.13, if DDP is the last owner of the process
    # group, its destructor joins Gloo's threads while it holds the GIL, and deadlocks if one of
    # these threads waits for the GIL.
    del ddp
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
