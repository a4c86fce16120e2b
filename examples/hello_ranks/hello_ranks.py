#!/usr/bin/env python3
"""Each process prints its rank and the variables that the launcher has set. Needs no torch."""

import argparse
import os

NAMES = ("GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "NODE_RANK", "RANK",
         "ROLE_NAME", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    # torch.distributed.launch passes this argument. Newer launchers only set LOCAL_RANK.
    parser.add_argument("--local-rank", "--local_rank", type=int, default=None)
    parser.add_argument("--devices", type=int, default=0, help="GPUs of each node, to be shared")
    parser.add_argument("--local_world_size", type=int, default=None, help="instead of the variable")
    arguments = parser.parse_args()
    environment = {name: os.environ[name] for name in NAMES if name in os.environ}
    rank = int(os.environ.get("RANK", 0))
    local_rank = int(os.environ.get("LOCAL_RANK", arguments.local_rank or 0))
    local_size = arguments.local_world_size or int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    share = arguments.devices // local_size
    devices = list(range(local_rank * share, (local_rank + 1) * share))
    # Both lines, with their newlines, are one write, even if Python does not buffer its output. So
    # the lines of several processes do not mix.
    print(f"rank {rank}: {environment}\nrank {rank}: devices {devices}\n", end="", flush=True)


if __name__ == "__main__":
    main()
