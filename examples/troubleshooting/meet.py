#!/usr/bin/env python3
"""A minimal job to reproduce problems: all processes connect with Gloo and add up their ranks.

    muster --standalone --nproc-per-node=2 examples/troubleshooting/meet.py
"""

import argparse
import datetime
import os
import sys
import threading

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                        help="how long to wait for the others; torch's own default is half an hour")
    parser.add_argument("--late", type=int, metavar="RANK", help="it never comes to the sum")
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=arguments.timeout))
    if arguments.late == dist.get_rank():
        threading.Event().wait()  # Like a process that waits for data that never come.
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total)
    # The newline is part of the text. Otherwise print() writes it separately, and lines of several
    # ranks mix.
    print(f"rank {dist.get_rank()}: the sum of all ranks is {total.item()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
