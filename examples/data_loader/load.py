#!/usr/bin/env python3
"""Each rank reads its share of the data through a DataLoader with child processes.

    muster --standalone --nproc-per-node=2 examples/data_loader/load.py

With --forever, the program runs until it is ended. After that, no process of it is left.
"""

import argparse
import itertools
import os

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ITEMS, BATCH = 64, 4


class Squares(Dataset):
    """Item i is the pair of i squared and the id of the process that made the item."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index * index, os.getpid()


@record
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loaders", type=int, default=2, help="child processes of each rank")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--forever", action="store_true", help="go on until ended")
    arguments = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    data = Squares()
    # With num_replicas and rank as arguments, the sampler needs no process group.
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True, seed=1)
    # With persistent_workers, the loader processes live for all epochs. Without it, each epoch
    # starts new ones.
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=arguments.loaders,
                        persistent_workers=arguments.loaders > 0)

    for epoch in itertools.count(1) if arguments.forever else range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        squares, makers = zip(*loader, strict=True)
        total = torch.cat(squares).sum().item()
        others = set(torch.cat(makers).tolist()) - {os.getpid()}
        if epoch <= arguments.epochs:
            # The newline is part of the text. Otherwise print() writes it separately, and lines of
            # several ranks mix.
            print(f"rank {rank}: epoch {epoch}: {len(squares)} batches from {len(others)} "
                  f"processes, sum {total}, first {squares[0].tolist()}\n", end="", flush=True)


if __name__ == "__main__":
    main()
