#!/usr/bin/env python3
"""DataParallel against DistributedDataParallel: the same steps, organised in two ways.

    python examples/toy_model/data_parallel.py                                        # DataParallel
    muster --standalone --nproc-per-node=2 examples/toy_model/data_parallel.py        # DDP

Alone, one process has the whole batch, and DataParallel deals it out to threads, one for each GPU
(without GPUs it calls the model as it is). Under a launcher each process has its share of the batch.
The losses agree; the rate shows what it takes, and what OMP_NUM_THREADS does on CPUs.
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

BATCH, WIDTH, STEPS, LEARNING_RATE = 128, 512, 30, 0.1  # BATCH: of all processes together.


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, 10))


def whole_batch(step, device):
    generator = torch.Generator().manual_seed(step % 3)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    labels = torch.randint(10, (BATCH,), generator=generator)
    return inputs.to(device), labels.to(device)


def train(model, optimizer, device, rank, size):
    """The loss of the whole batch in the last step, and steps per second."""
    for step in range(STEPS):
        if step == 1:  # The first one allocates.
            start = time.monotonic()
        inputs, labels = (tensor.chunk(size)[rank] for tensor in whole_batch(step, device))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return loss.detach(), (STEPS - 1) / (time.monotonic() - start)


def main():
    under_launcher = "RANK" in os.environ
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = torch.cuda.is_available() and local_rank < torch.cuda.device_count()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if BATCH % size != 0:
        raise SystemExit(f"{size} processes: expected a number that divides {BATCH}")
    model = make_model().to(device)
    if under_launcher:
        if on_gpu:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if on_gpu else "gloo")
        parallel = DistributedDataParallel(model, device_ids=[device] if on_gpu else None)
        name = f"DistributedDataParallel, {size} processes"
    else:
        parallel = DataParallel(model)
        name = f"DataParallel, 1 process, {torch.cuda.device_count()} GPUs"
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loss, rate = train(parallel, optimizer, device, rank, size)
    if under_launcher:
        dist.all_reduce(loss)
        loss /= size
    if rank == 0:
        print(f"{name} of {torch.get_num_threads()} threads: loss {loss.item():.4f}, "
              f"{rate:.0f} steps/s", flush=True)
    if under_launcher:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
