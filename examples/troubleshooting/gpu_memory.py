#!/usr/bin/env python3
"""Shows why every process takes memory on GPU 0, although each uses its own GPU, and the cure.

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
    # "cuda" means the current device, which is GPU 0 until the program chooses another one. The
    # same happens with torch.load() without map_location, for a file that was saved on GPU 0.
    on_current_device = torch.ones(1, device="cuda")
    work = torch.ones(64 * MIB, device=torch.device("cuda", local_rank))  # 256 MiB.
    torch.cuda.synchronize(local_rank)
    dist.init_process_group("gloo")
    dist.barrier()  # Now all processes have allocated their memory.
    if rank == 0:
        # mem_get_info() itself creates a context on the GPU, which takes memory there.
        for gpu in range(gpus):
            free, total = torch.cuda.mem_get_info(gpu)
            print(f"GPU {gpu}: {(total - free) // MIB} MiB in use", flush=True)
    dist.barrier()
    del on_current_device, work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skip Python's shutdown: in torch 2.13, a Gloo thread may still hold a tensor, and the process
    # aborts if that thread releases the tensor while Python shuts down.
    sys.stdout.flush()
    os._exit(0)
