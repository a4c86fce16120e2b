#!/usr/bin/env python3
"""DataParallel against DistributedDataParallel: the same steps, organised in two ways.

    python examples/digits/data_parallel.py                                        # DataParallel
    muster --standalone --nproc-per-node=2 examples/digits/data_parallel.py        # DDP

Alone, one process has the whole batch, and DataParallel deals it out to threads, one for each GPU
(without GPUs it calls the model as it is). Under a launcher each process has its share of the batch.
The losses agree; the rate shows what it takes, and what OMP_NUM_THREADS does on CPUs.
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from train import DigitsNet, load, to_dataset

BATCH, EPOCHS, LEARNING_RATE = 64, 3, 2e-3  # BATCH: of all processes together.
DATA = pathlib.Path(__file__).parent / "data"


def train_epoch(model, optimizer, loader, device):
    """The sum of this process's losses, and its images."""
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        total[0] += loss.detach() * len(labels)
        total[1] += len(labels)
    return total


def main():
    under_launcher = "RANK" in os.environ
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", local_rank) if local_rank < gpus else torch.device("cpu")
    if BATCH % size != 0:
        raise SystemExit(f"{size} processes: expected a number that divides {BATCH}")
    train_data, test_data = load(DATA)
    train_set, test_set = to_dataset(train_data), to_dataset(test_data)

    torch.manual_seed(1)
    model = DigitsNet(train_data.rows, train_data.columns).to(device)
    if under_launcher:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        parallel = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
    else:
        parallel = DataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    # The shares of all processes together are, in each step, what one process alone takes.
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, seed=1)
    loader = DataLoader(train_set, batch_size=BATCH // size, sampler=sampler)

    def say(text):
        if rank == 0:
            print(text, flush=True)

    name = f"DistributedDataParallel: {size} processes" if under_launcher else \
        "DataParallel: 1 process"
    say(f"{name} of {torch.get_num_threads()} threads, {f'{gpus} GPUs' if gpus else 'no GPUs'}; "
        f"{BATCH} images in each step")
    started = time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)
        total = train_epoch(parallel, optimizer, loader, device)
        if under_launcher:
            dist.all_reduce(total)
        say(f"epoch {epoch}/{EPOCHS}: mean loss {(total[0] / total[1]).item():.4f}")
    rate = EPOCHS * len(train_set) / (time.monotonic() - started)
    images, labels = (tensor.to(device) for tensor in test_set.tensors)
    with torch.no_grad():  # Every process has the same model: each could do this.
        right = (model(images).argmax(1) == labels).sum().item()
    say(f"accuracy {100 * right / len(labels):.2f} % ({right} of {len(labels)})")
    say(f"{rate:.0f} images/s")
    if under_launcher:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Not through Python's own end: in torch 2.13 a thread of Gloo's may still have a tensor in its
    # hands, and giving it up while Python shuts down aborts the process.
    sys.stdout.flush()
    os._exit(0)
