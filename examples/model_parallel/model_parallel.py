#!/usr/bin/env python3
"""DistributedDataParallel over a model on two devices.

Each process uses two GPUs if the node has two for each process. Otherwise both devices are the CPU.
At the end, each rank compares its parameters with those of one process that has the whole model on
one device, and the data of all ranks.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, STEPS, LEARNING_RATE = 24, 3, 0.1


class TwoPartModel(nn.Module):
    """A model with one part on each device.

    The activations move from the first device to the second, and the gradients move back.
    """

    def __init__(self, first_device, second_device):
        super().__init__()
        self.first_device, self.second_device = first_device, second_device
        self.first = nn.Linear(10, 16).to(first_device)
        self.second = nn.Linear(16, 5).to(second_device)

    def forward(self, x):
        hidden = torch.relu(self.first(x.to(self.first_device)))
        return self.second(hidden.to(self.second_device))


def two_devices():
    """Returns two GPUs for this process if the node has two for each of its processes.

    Otherwise both devices are the CPU.
    """
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() < 2 * local_size:
        return torch.device("cpu"), torch.device("cpu")
    return torch.device("cuda", 2 * local_rank), torch.device("cuda", 2 * local_rank + 1)


def data_of(rank, step):
    """Returns the data of a rank.

    Each rank has different data, but every rank can compute the data of all ranks, so that
    train_alone() can check the steps.
    """
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(BATCH, 10, generator=generator)
    return inputs, torch.randn(BATCH, 5, generator=generator)


def train_alone(size):
    """Trains in one process, with the model on one device and the data of all ranks.

    Returns the resulting parameters.
    """
    torch.manual_seed(0)
    model = TwoPartModel("cpu", "cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(size):
            inputs, labels = data_of(rank, step)
            (nn.functional.mse_loss(model(inputs), labels) / size).backward()
        optimizer.step()
    return list(model.parameters())


def print_in_order(text):
    """Prints the texts of all ranks, in the order of the ranks."""
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            print(text, flush=True)
        dist.barrier()


def main():
    first_device, second_device = two_devices()
    if first_device.type == "cuda":
        torch.cuda.set_device(first_device)
    dist.init_process_group("nccl" if first_device.type == "cuda" else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = TwoPartModel(first_device, second_device)
    ddp = DistributedDataParallel(model)  # Without device_ids: the model moves its inputs.
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE)
    print_in_order(f"rank {rank}: the parts are on {first_device} and {second_device}")
    for step in range(STEPS):
        inputs, labels = data_of(rank, step)
        optimizer.zero_grad()
        output = ddp(inputs)
        loss = nn.functional.mse_loss(output, labels.to(output.device))
        loss.backward()
        optimizer.step()
        print_in_order(f"rank {rank}: step {step} loss {loss.item():.4f}")
    same = all(torch.allclose(a.cpu(), b, atol=1e-5)
               for a, b in zip(model.parameters(), train_alone(size), strict=True))
    print_in_order(f"rank {rank}: {'as' if same else 'NOT AS'} one process with all data")
    # Delete DDP before the process group. In torch 2.13, if DDP is the last owner of the process
    # group, its destructor joins Gloo's threads while it holds the GIL, and deadlocks if one of
    # these threads waits for the GIL.
    del ddp
    dist.destroy_process_group()
    return same


if __name__ == "__main__":
    as_expected = main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0 if as_expected else 1)
