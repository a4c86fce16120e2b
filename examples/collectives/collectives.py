#!/usr/bin/env python3
"""Collectives on Gloo: all_gather, scatter, gather and all_reduce. The output is rank by rank."""

import os
import sys

import torch
import torch.distributed as dist


def print_in_order(text):
    """Prints the texts of all ranks, in the order of the ranks."""
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            print(text, flush=True)
        dist.barrier()


def text_of(tensor):
    return " ".join(str(value) for value in tensor.flatten().tolist())


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(2) + 2 * rank
    print_in_order(f"rank {rank}: mine {text_of(mine)}")

    pieces = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(pieces, mine)
    whole = torch.cat(pieces)
    print_in_order(f"rank {rank}: all_gather and cat {text_of(whole)}")

    # Rank 0 scatters a tensor in chunks, each rank changes its chunk, and rank 0 gathers them.
    share = torch.empty(2, dtype=torch.int64)
    dist.scatter(share, list((whole * 10).chunk(size)) if rank == 0 else None, src=0)
    print_in_order(f"rank {rank}: scatter of chunks {text_of(share)}")
    gathered = [torch.empty_like(share) for _ in range(size)] if rank == 0 else None
    dist.gather(share + 1, gathered, dst=0)
    print_in_order(f"rank {rank}: gather " + (text_of(torch.cat(gathered)) if rank == 0 else "-"))

    total = mine.clone()
    dist.all_reduce(total)
    print_in_order(f"rank {rank}: all_reduce {text_of(total)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
