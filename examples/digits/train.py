#!/usr/bin/env python3
"""Trains a small convolutional network on handwritten digits, with any number of processes.

This is a usual script for torchrun. It runs under muster without a change:

    muster --standalone --nproc-per-node=2 examples/digits/train.py
    torchrun --standalone --nproc-per-node=2 examples/digits/train.py

The data are MNIST's IDX files, compressed or not. The images may have any size from 4x4 on.
"""

import argparse
import contextlib
import errno
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from idx import CLASSES, DataError, Digits, read_digits
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LAUNCH_EXAMPLE = "muster --standalone --nproc-per-node=2 examples/digits/train.py"
SMALLEST_SIDE = 4  # Two poolings quarter it: one pixel must be left.


class SetupError(Exception):
    """This process cannot run with these settings. The text says why, and what to do."""


class DigitsNet(nn.Module):
    """Three convolutions and one linear layer, for images of any size from 4x4 on."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.classify = nn.Linear(64 * (rows // 4) * (columns // 4), CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(images))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small network on handwritten digits with DistributedDataParallel.",
        epilog=f"Start it with a launcher, for example: {LAUNCH_EXAMPLE}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data-dir",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parent / "data",
        metavar="FOLDER",
        help="folder with MNIST's four IDX files, compressed (.gz) or not",
    )
    parser.add_argument("--epochs", type=at_least(1), default=8, help="passes over the images")
    parser.add_argument(
        "--batch-size", type=at_least(1), default=32, help="images per step and process"
    )
    parser.add_argument(
        "--lr", type=learning_rate, default=4e-3, help="highest learning rate of Adam"
    )
    parser.add_argument("--seed", type=at_least(0), default=1, help="for weights and order")
    parser.add_argument(
        "--save", type=pathlib.Path, metavar="FILE", help="where rank 0 saves the trained model"
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if present"
    )
    parser.add_argument(
        "--log-every", type=at_least(1), default=10, metavar="STEPS", help="steps between lines"
    )
    return parser.parse_args()


def at_least(smallest: int):
    def whole_number(text: str) -> int:
        if not text.isdecimal() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {smallest} on")
        return int(text)

    return whole_number


def learning_rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def choose_device(wanted: str) -> torch.device:
    """Returns the device of this process, and makes a GPU the current device.

    Call it before the process group is created, because NCCL uses the current device.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank >= torch.cuda.device_count():
        raise SetupError(
            f"local rank {local_rank} has no GPU of its own: this node shows "
            f"{torch.cuda.device_count()}. Start at most that many processes per node, or use "
            "--device cpu."
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def load(folder: pathlib.Path) -> tuple[Digits, Digits]:
    train, test = read_digits(folder, "train"), read_digits(folder, "t10k")
    if (train.rows, train.columns) != (test.rows, test.columns):
        raise DataError(
            f"{folder}: images of {train.rows}x{train.columns} to train, but of "
            f"{test.rows}x{test.columns} to test: expected one size. Take all from one source."
        )
    if min(train.rows, train.columns) < SMALLEST_SIDE:
        raise DataError(
            f"{folder}: images of {train.rows}x{train.columns}: the network needs "
            f"{SMALLEST_SIDE}x{SMALLEST_SIDE} at least. Use larger images."
        )
    return train, test


def to_dataset(digits: Digits) -> TensorDataset:
    pixels = torch.frombuffer(bytearray(digits.pixels), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(digits.labels), dtype=torch.uint8)
    images = pixels.view(-1, 1, digits.rows, digits.columns).float() / 255
    return TensorDataset(images, labels.long())


def train_epoch(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    loader: DataLoader,
    device: torch.device,
    describe,
) -> float:
    """Trains one epoch and returns the mean loss over all ranks.

    Calls `describe(batch, loss)` after each step, to report progress.
    """
    model.train()
    # The sum of the losses, and the number of images.
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for batch, (images, labels) in enumerate(loader, 1):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        total[0] += loss.detach() * len(labels)
        total[1] += len(labels)
        describe(batch, loss)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def count_correct(
    model: nn.Module, test: TensorDataset, batch_size: int, device: torch.device
) -> tuple[int, int]:
    """Returns the number of test images that all ranks classify correctly, and the number tested.

    Exactly one rank tests each image. (A DistributedSampler would use some images twice, to make
    the shares equal.) The ranks' shares may differ by one image and may be empty. So `model` must
    be the plain module: all ranks must call DDP's forward() equally often.
    """
    model.eval()
    images, labels = (tensor[dist.get_rank() :: dist.get_world_size()] for tensor in test.tensors)
    counts = torch.zeros(2, dtype=torch.int64, device=device)  # Correct images, tested images.
    for some, expected in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        if len(expected) == 0:  # For an empty share, split() returns one empty piece.
            continue
        found = model(some.to(device)).argmax(dim=1)
        counts[0] += (found == expected.to(device)).sum()
        counts[1] += len(expected)
    dist.all_reduce(counts)
    return int(counts[0]), int(counts[1])


def check_save_path(path: pathlib.Path) -> None:
    """Checks before the training that the model can be saved after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cannot_save(path, error) from error


def save_model(model: nn.Module, path: pathlib.Path) -> None:
    """Replaces `path` in one step: a reader finds the old file or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            torch.save(model.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise cannot_save(path, error) from error


def cannot_save(path: pathlib.Path, error: OSError) -> SetupError:
    return SetupError(
        f"{path}: the model cannot be saved there: {error.strerror}. Name a file in a folder that "
        "you may write to with --save."
    )


def train(arguments: argparse.Namespace, device: torch.device, data: tuple[Digits, Digits]) -> None:
    train_set, test_set = to_dataset(data[0]), to_dataset(data[1])
    rank, world_size = dist.get_rank(), dist.get_world_size()

    def print_on_rank0(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    print_on_rank0(
        f"world of {world_size} processes, {dist.get_backend()} on {device.type}; "
        f"{len(train_set)} images of {data[0].rows}x{data[0].columns} to train, "
        f"{len(test_set)} to test"
    )
    torch.manual_seed(arguments.seed)
    model = DigitsNet(data[0].rows, data[0].columns).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=arguments.lr)
    sampler = DistributedSampler(train_set, shuffle=True, seed=arguments.seed)
    loader = DataLoader(train_set, batch_size=arguments.batch_size, sampler=sampler)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=arguments.lr, total_steps=arguments.epochs * len(loader)
    )

    started = time.monotonic()
    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)  # Without this, all epochs use the same order of images.

        def describe(batch: int, loss: torch.Tensor, epoch: int = epoch) -> None:
            if batch % arguments.log_every == 0 or batch == len(loader):
                print_on_rank0(f"epoch {epoch} batch {batch}/{len(loader)} loss {loss.item():.4f}")

        mean_loss = train_epoch(ddp, optimizer, schedule, loader, device, describe)
        right, seen = count_correct(model, test_set, arguments.batch_size, device)
        print_on_rank0(
            f"epoch {epoch}/{arguments.epochs} done: mean loss {mean_loss:.4f}, "
            f"accuracy {100 * right / seen:.2f} % ({right} of {seen})"
        )
    print_on_rank0(f"trained in {time.monotonic() - started:.1f} s")
    if arguments.save is not None and rank == 0:
        save_model(model, arguments.save)
        print_on_rank0(f"saved {arguments.save}")
    print_on_rank0(f"test accuracy: {100 * right / seen:.2f} % ({right} of {seen})")


@record
def main() -> None:
    arguments = parse_arguments()
    if "RANK" not in os.environ or "LOCAL_RANK" not in os.environ:
        raise SetupError(
            "RANK and LOCAL_RANK are not set: this script is started by a launcher, for example: "
            + LAUNCH_EXAMPLE
        )
    # Check data and settings first: an error here shows before the other ranks wait for this one.
    data = load(arguments.data_dir)
    if arguments.save is not None and os.environ["RANK"] == "0":
        check_save_path(arguments.save)
    device = choose_device(arguments.device)
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    train(arguments, device, data)
    # No rank ends before rank 0 has saved the model. While the ranks wait, Gloo's threads also
    # release the tensors of the last all_reduce. In torch 2.13, the process aborts if they do so
    # while Python shuts down.
    dist.barrier()
    # Destroy the process group only after success: this call may hang if another process has
    # failed. If train() raises an exception, this process ends, and the launcher ends the others.
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except (DataError, SetupError) as error:
        # @record has written the traceback into the error file for the launcher. One line on stderr
        # is enough for the user.
        rank = os.environ.get("RANK", "?")
        print(f"train.py: rank {rank}: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    # Skip Python's shutdown: in torch 2.13, DDP on Gloo may abort the process during the shutdown,
    # after all work is done ("terminate called without an active exception").
    sys.stdout.flush()
    os._exit(0)
