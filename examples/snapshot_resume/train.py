#!/usr/bin/env python3
"""Trains a small network with DistributedDataParallel, and continues after a crash.

    muster --standalone --nproc-per-node=2 --max-restarts=1 \
        examples/snapshot_resume/train.py --snapshot build/run.pt --crash-at-epoch 4

After every epoch, rank 0 writes a snapshot with everything that the next epoch needs. A restarted
job reads it, and its losses are those of a job that was never interrupted, to the last digit.
"""

import argparse
import contextlib
import math
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

POINTS, BATCH = 512, 16


def spirals() -> TensorDataset:
    """Makes two spirals of points, one for each class, so that the example needs no data files."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(POINTS) % 2
    radius = torch.rand(POINTS, generator=generator)
    angle = 1.5 * math.pi * radius + math.pi * labels
    points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    noise = 0.02 * torch.randn(POINTS, 2, generator=generator)
    return TensorDataset(points + noise, labels)


def small_network() -> nn.Module:
    # Dropout uses the random number generator in every step. If the snapshot did not have the
    # generator's state, the losses after a restart would be different.
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))


def write_snapshot(path: pathlib.Path, snapshot: dict) -> None:
    """Replaces `path` in one step.

    If the process is killed at any moment, the file is the old snapshot or the new one.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            torch.save(snapshot, file)
            file.flush()
            os.fsync(file.fileno())  # The data must be on the disk before the rename.
        os.replace(partial, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # Now the rename is on the disk, too.
        finally:
            os.close(folder)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def read_snapshot(path: pathlib.Path, world_size: int) -> dict | None:
    """Returns None if there is no snapshot."""
    if not path.exists():
        return None
    snapshot = torch.load(path, weights_only=True)
    if len(snapshot["rng_states"]) != world_size:
        raise SystemExit(
            f"{path} was written by {len(snapshot['rng_states'])} processes, and these are "
            f"{world_size}: start as many, or name another file with --snapshot"
        )
    return snapshot


def gather_rng_states() -> list[torch.Tensor]:
    """Returns the states of all ranks' random number generators.

    The states differ, because each rank drops different units.
    """
    mine = torch.get_rng_state()
    states = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(states, mine)
    return states


def train_epoch(ddp: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader,
                before_step) -> float:
    """Trains one epoch and returns the mean loss over all ranks.

    Calls `before_step(batch)` before each step.
    """
    total = torch.zeros(2, dtype=torch.float64)  # The sum of the losses, the number of points.
    for batch, (points, labels) in enumerate(loader):
        before_step(batch)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(points), labels)
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(labels), len(labels)], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train(arguments: argparse.Namespace) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    is_first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

    def print_on_rank0(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    torch.manual_seed(1)
    model = small_network()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)  # Adam has state, too.
    data = spirals()
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    torch.manual_seed(100 + rank)  # From here on each rank has its own random numbers.

    losses: list[float] = []
    snapshot = read_snapshot(arguments.snapshot, world_size)
    if snapshot is None:
        print_on_rank0(f"starting at epoch 1 of {arguments.epochs}")
    else:
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        torch.set_rng_state(snapshot["rng_states"][rank])
        losses = snapshot["losses"]
        print_on_rank0(f"resuming at epoch {len(losses) + 1} of {arguments.epochs}")

    for epoch in range(len(losses) + 1, arguments.epochs + 1):
        # The order of the data depends only on seed and epoch, so the snapshot does not need it.
        sampler.set_epoch(epoch)

        def maybe_crash(batch: int, epoch: int = epoch) -> None:
            if (is_first_attempt and epoch == arguments.crash_at_epoch
                    and rank == world_size - 1 and batch == len(loader) // 2):
                print(f"rank {rank}: dying in the middle of epoch {epoch}, as asked",
                      file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        losses.append(train_epoch(ddp, optimizer, loader, maybe_crash))
        print_on_rank0(f"epoch {epoch}: loss {losses[-1]!r}")
        rng_states = gather_rng_states()
        if rank == 0:
            write_snapshot(arguments.snapshot, {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "losses": losses, "rng_states": rng_states,
            })
        dist.barrier()  # No rank begins the next epoch before the snapshot is written.
    print_on_rank0("loss curve: " + " ".join(map(repr, losses)))


@record
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", type=pathlib.Path, required=True, metavar="FILE",
                        help="written after every epoch; read at the start, if it is there")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--crash-at-epoch", type=int, metavar="N",
                        help="the last rank kills itself there, on the first attempt only")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments)
    dist.barrier()  # No rank closes a connection that another rank still reads from.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
