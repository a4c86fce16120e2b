#!/usr/bin/env python3
"""Compares DataParallel with DistributedDataParallel: both do the same training steps.

    python examples/digits/data_parallel.py                                        # DataParallel
    muster --standalone --nproc-per-node=2 examples/digits/data_parallel.py        # DDP

Without a launcher, one process trains on the whole batch. DataParallel divides the batch among
threads, one for each GPU. (Without GPUs, it calls the model as it is.) Under a launcher, each
process trains on its share of the batch. The losses are the same. The rate shows the cost of each
way, and the effect of OMP_NUM_THREADS on CPUs.
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

BATCH, EPOCHS, LEARNING_RATE = 64, 3, 2e-3  # BATCH: images per step, over all processes.
DATA = pathlib.Path(__file__).parent / "data"


def train_epoch(model, optimizer, loader, device):
    """Trains one epoch. Returns this process's sum of losses and its number of images."""
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
    # In each step, the shares of all processes make up the batch that a single process would use.
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, seed=1)
    loader = DataLoader(train_set, batch_size=BATCH // size, sampler=sampler)

    def print_on_rank0(text):
        if rank == 0:
            print(text, flush=True)

    name = f"DistributedDataParallel: {size} processes" if under_launcher else \
        "DataParallel: 1 process"
    devices = f"{gpus} GPUs" if gpus else "no GPUs"
    print_on_rank0(f"{name} of {torch.get_num_threads()} threads, {devices}; "
                   f"{BATCH} images in each step")
    started = time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)
        total = train_epoch(parallel, optimizer, loader, device)
        if under_launcher:
            dist.all_reduce(total)
        print_on_rank0(f"epoch {epoch}/{EPOCHS}: mean loss {(total[0] / total[1]).item():.4f}")
    rate = EPOCHS * len(train_set) / (time.monotonic() - started)
    images, labels = (tensor.to(device) for tensor in test_set.tensors)
    # Every process has the same model, so each one tests it, and rank 0 prints the result.
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum().item()
    print_on_rank0(f"accuracy {100 * right / len(labels):.2f} % ({right} of {len(labels)})")
    print_on_rank0(f"{rate:.0f} images/s")
    if under_launcher:
        dist.barrier()
        # Delete DDP before the process group. In torch 2.13, if DDP is the last owner of the
        # process group, its destructor joins Gloo's threads while it holds the GIL, and deadlocks
        # if one of these threads waits for the GIL.
        del parallel
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
