#!/usr/bin/env python3
"""One step of DistributedDataParallel, checked by hand.

Started by a launcher, or, to show what a launcher does, alone with --spawn N.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, LEARNING_RATE = 20, 0.1


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 10)
        self.second = nn.Linear(10, 5)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def examples_of(rank):
    """Each rank's own data, which every rank can compute, so that the step can be checked."""
    generator = torch.Generator().manual_seed(100 + rank)
    inputs = torch.randn(BATCH, 10, generator=generator)
    return inputs, torch.randn(BATCH, 5, generator=generator)


def step_by_hand(size):
    """What one process would do that had the data of all: the mean of the ranks' gradients."""
    torch.manual_seed(0)
    model = ToyModel()
    for rank in range(size):
        inputs, labels = examples_of(rank)
        (nn.functional.mse_loss(model(inputs), labels) / size).backward()
    with torch.no_grad():
        return [p - LEARNING_RATE * p.grad for p in model.parameters()]


def run():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # The same model on every rank; DDP would make it so, too.
    model = ToyModel()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE)
    inputs, labels = examples_of(rank)
    loss = nn.functional.mse_loss(ddp(inputs), labels)
    loss.backward()  # The gradients are now the mean over all ranks.
    optimizer.step()
    same = all(torch.allclose(a, b, atol=1e-6)
               for a, b in zip(model.parameters(), step_by_hand(size), strict=True))
    for turn in range(size):
        if turn == rank:
            print(f"rank {rank} of {size}: loss {loss.item():.4f}, the step is "
                  f"{'right' if same else 'WRONG'}", flush=True)
        dist.barrier()
    dist.destroy_process_group()
    return same


def leave(well):
    """Not through Python's own end: in torch 2.13 a thread of Gloo's may still have a tensor in its
    hands, and giving it up while Python shuts down aborts the process."""
    sys.stdout.flush()
    os._exit(0 if well else 1)


def spawned(rank, size, port):
    """What a launcher does for each process."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size),
                      LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      TORCHELASTIC_USE_AGENT_STORE="True")
    leave(run())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spawn", type=int, metavar="N", help="start N processes without launcher")
    arguments = parser.parse_args()
    if arguments.spawn is None:
        leave(run())
    # As a launcher does, the parent has the store: a free port that is only looked up here may be
    # somebody else's when the processes have started.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(spawned, args=(arguments.spawn, store.port), nprocs=arguments.spawn)


if __name__ == "__main__":
    main()
