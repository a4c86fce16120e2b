#!/usr/bin/env python3
"""Trains a small network with DistributedDataParallel, and goes on where it was after a crash.

    muster --standalone --nproc-per-node=2 --max-restarts=1 \
        examples/snapshot_resume/train.py --snapshot build/run.pt --crash-at-epoch 4

After every epoch rank 0 writes all that the next epoch depends on. A restarted job reads it, and its
losses are those of a job that was never interrupted, to the last digit.
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
    """Two spirals, one for each class: made, so that the example needs no data."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(POINTS) % 2
    radius = torch.rand(POINTS, generator=generator)
    angle = 1.5 * math.pi * radius + math.pi * labels
    points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    noise = 0.02 * torch.randn(POINTS, 2, generator=generator)
    return TensorDataset(points + noise, labels)


def small_network() -> nn.Module:
    # Dropout asks the random number generator in every step: without its state in the snapshot, the
    # losses after a restart would be other ones.
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))


def write_snapshot(path: pathlib.Path, snapshot: dict) -> None:
    """Replaces `path` in one step. Whoever dies at whatever moment leaves the old one or the new."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            torch.save(snapshot, file)
            file.flush()
            os.fsync(file.fileno())  # The data is on the disk before the name points to it,
        os.replace(partial, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # and so is the name.
        finally:
            os.close(folder)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def read_snapshot(path: pathlib.Path, world_size: int) -> dict | None:
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
    """Each rank's own: they drop different units, so they are at different places."""
    mine = torch.get_rng_state()
    states = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(states, mine)
    return states


def train_epoch(ddp: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader,
                before_step) -> float:
    """One pass over the data; returns the mean loss over all ranks."""
    total = torch.zeros(2, dtype=torch.float64)  # Sum of the losses, points.
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

    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    torch.manual_seed(1)
    model = small_network()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)  # It has state, too.
    data = spirals()
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    torch.manual_seed(100 + rank)  # From here on each rank has its own random numbers.

    losses: list[float] = []
    snapshot = read_snapshot(arguments.snapshot, world_size)
    if snapshot is None:
        say(f"starting at epoch 1 of {arguments.epochs}")
    else:
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        torch.set_rng_state(snapshot["rng_states"][rank])
        losses = snapshot["losses"]
        say(f"resuming at epoch {len(losses) + 1} of {arguments.epochs}")

    for epoch in range(len(losses) + 1, arguments.epochs + 1):
        sampler.set_epoch(epoch)  # The order is a function of seed and epoch: nothing to save.

        def maybe_crash(batch: int, epoch: int = epoch) -> None:
            if (is_first_attempt and epoch == arguments.crash_at_epoch
                    and rank == world_size - 1 and batch == len(loader) // 2):
                print(f"rank {rank}: dying in the middle of epoch {epoch}, as asked",
                      file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        losses.append(train_epoch(ddp, optimizer, loader, maybe_crash))
        say(f"epoch {epoch}: loss {losses[-1]!r}")
        rng_states = gather_rng_states()
        if rank == 0:
            write_snapshot(arguments.snapshot, {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "losses": losses, "rng_states": rng_states,
            })
        dist.barrier()  # Nobody is an epoch ahead of the snapshot.
    say("loss curve: " + " ".join(map(repr, losses)))


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
    dist.barrier()  # Nobody closes a connection that another one still reads from.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Not through Python's own end: in torch 2.13 a thread of Gloo's may still have a tensor in its
    # hands, and giving it up while Python shuts down aborts the process.
    sys.stdout.flush()
    os._exit(0)
