#!/usr/bin/env python3
"""Every process takes memory on GPU 0, though it works on its own: how it comes about, and the cure.

    muster --standalone --nproc-per-node=2 examples/troubleshooting/gpu_memory.py
    muster --standalone --nproc-per-node=2 examples/troubleshooting/gpu_memory.py --cure
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist

MIB = 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cure", action="store_true", help="choose the device before all else")
    arguments = parser.parse_args()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    gpus = torch.cuda.device_count()
    if local_rank >= gpus:
        if rank == 0:
            print("no GPU here: there is nothing to be seen", flush=True)
        return
    if arguments.cure:
        torch.cuda.set_device(local_rank)
    # "cuda" is the current device: GPU 0, unless somebody has chosen. The same happens with
    # torch.load of a file that was saved on GPU 0, without map_location.
    somewhere = torch.ones(1, device="cuda")
    work = torch.ones(64 * MIB, device=torch.device("cuda", local_rank))  # 256 MiB.
    torch.cuda.synchronize(local_rank)
    dist.init_process_group("gloo")
    dist.barrier()  # All have what they take.
    if rank == 0:
        for gpu in range(gpus):  # To look makes a context there, too: one after the other.
            free, total = torch.cuda.mem_get_info(gpu)
            print(f"GPU {gpu}: {(total - free) // MIB} MiB in use", flush=True)
    dist.barrier()
    del somewhere, work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Not through Python's own end: in torch 2.13 a thread of Gloo's may still have a tensor in its
    # hands, and giving it up while Python shuts down aborts the process.
    sys.stdout.flush()
    os._exit(0)
