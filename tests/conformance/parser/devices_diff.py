#!/usr/bin/env python3
"""Compares muster's reading of CUDA_VISIBLE_DEVICES with that of torch.cuda.device_count().

The nodes are made up: torch is told how many GPUs there are and what their UUIDs are, and counts
the visible ones by its own rules. Lists of MIG devices are left out: torch asks the CUDA driver for
those.

Usage: devices_diff.py PARSE_LINES_PROGRAM [--count N] [--seed N]; 77, skipped, without torch.
"""
import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys

SKIPPED = 77


def generate(seed, count):
    rng = random.Random(seed)
    numbers = ["0", "1", "2", "3", "7", "9", "-1", "", " ", " 1 ", "+2", "1gpu2", "x", "none", "00",
               "0x1", "1.5", "64", "100000", "\t3"]
    for _ in range(count):
        uuids = ["GPU-" + "".join(rng.choice("ab1") for _ in range(4))
                 for _ in range(rng.randint(0, 8))]
        entries = numbers if rng.random() < 0.5 or not uuids else (
            uuids + [u[:rng.randint(4, 8)] for u in uuids] + ["GPU-", "GPU-zz", "0", "", " GPU-a"])
        entries = [rng.choice(entries) for _ in range(rng.randint(1, 5))]
        yield {"cuda_visible_devices": ",".join(entries), "count": len(uuids), "uuids": uuids}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--count", type=int, default=20000)
    options.add_argument("--seed", type=int, default=20130)
    options = options.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(f"devices_diff: skipped: {sys.executable} has no torch")
        return SKIPPED
    import torch

    lines = list(generate(options.seed, options.count))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    ran = subprocess.run([options.program], input=text, capture_output=True, text=True, check=True)
    ours = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(ours) == len(lines), (len(ours), len(lines))
    different = []
    seen = set()
    for line, visible in zip(lines, ours):
        os.environ["CUDA_VISIBLE_DEVICES"] = line["cuda_visible_devices"]
        torch.cuda._raw_device_count_nvml = lambda: line["count"]
        torch.cuda._raw_device_uuid_nvml = lambda: line["uuids"]
        theirs = torch.cuda._device_count_nvml()
        seen.add(theirs)
        if visible != theirs:
            different.append((line, visible, theirs))
    print(f"devices_diff: seed {options.seed}: {len(lines)} lists compared, from {min(seen)} to "
          f"{max(seen)} visible; {len(different)} different")
    for line, visible, theirs in different[:5]:
        print(f"{line}: muster {visible}, torch {theirs}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
