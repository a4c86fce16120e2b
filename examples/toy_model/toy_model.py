#!/usr/bin/env python3
"""One step of DistributedDataParallel, compared with the same step of one process.

Start it with a launcher. Or start it alone with --spawn N, which shows the work of a launcher.
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
    """Returns the data of a rank.

    Each rank has different data, but every rank can compute the data of all ranks, so that
    step_by_hand() can check the step.
    """
    generator = torch.Generator().manual_seed(100 + rank)
    inputs = torch.randn(BATCH, 10, generator=generator)
    return inputs, torch.randn(BATCH, 5, generator=generator)


def step_by_hand(size):
    """Does the step in one process with the data of all ranks. Returns the resulting parameters.

    The gradient is the mean of the ranks' gradients.
    """
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
    torch.manual_seed(0)  # The same seed as in step_by_hand(). DDP would copy rank 0's model.
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
    # Delete DDP before the process group. In torch 2.13, if DDP is the last owner of the process
    # group, its destructor joins Gloo's threads while it holds the GIL, and deadlocks if one of
    # these threads waits for the GIL.
    del ddp
    dist.destroy_process_group()
    return same


def exit_process(succeeded):
    """Ends the process without Python's shutdown.

    In torch 2.13, a Gloo thread may still hold a tensor, and the process aborts if that thread
    releases the tensor while Python shuts down.
    """
    sys.stdout.flush()
    os._exit(0 if succeeded else 1)


def run_spawned(rank, size, port):
    """Does the work of a launcher for one process: sets the variables, then runs the example."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size),
                      LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      TORCHELASTIC_USE_AGENT_STORE="True")
    exit_process(run())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spawn", type=int, metavar="N", help="start N processes without launcher")
    arguments = parser.parse_args()
    if arguments.spawn is None:
        exit_process(run())
    # The parent hosts the store, as a launcher does. If it only searched for a free port, another
    # program could take the port before the processes have started.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(run_spawned, args=(arguments.spawn, store.port), nprocs=arguments.spawn)


if __name__ == "__main__":
    main()
