#!/usr/bin/env python3
"""The smallest job that can go wrong: all processes meet on Gloo and add up their ranks.

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
        threading.Event().wait()  # As a process that waits for data that do not come.
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total)
    # One write: print() would write the line's end by itself, and ranks would mix.
    print(f"rank {dist.get_rank()}: the sum of all ranks is {total.item()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Not through Python's own end: in torch 2.13 a thread of Gloo's may still have a tensor in its
    # hands, and giving it up while Python shuts down aborts the process.
    sys.stdout.flush()
    os._exit(0)
