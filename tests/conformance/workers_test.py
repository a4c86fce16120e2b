#!/usr/bin/env python3
"""Runs unmodified PyTorch workers under muster: they meet in its store, train with DDP and restart.

MUSTER_WORKER_ROUNDS is how often the job is run (default: 4). The first job has real workers. The
workers of the other jobs are copies of a process that has loaded torch, and meet within
milliseconds. Needs torch; exits with 77 (skipped) without it.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from warm_python import WarmPython

MUSTER = os.environ.get("MUSTER_BIN", "muster")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PYTHON = SOURCE / ".venv" / "bin" / "python"
ROUNDS = int(os.environ.get("MUSTER_WORKER_ROUNDS", "4"))
HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
BOUND_S = 120  # The limit for one job. Importing torch takes seconds on a busy machine.

TRAIN = """
import datetime, os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method="env://", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"  # No retry.
torch.manual_seed(7)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    (model(torch.full((8, 4), float(rank + step))) ** 2).mean().backward()
    optimizer.step()
weights = [torch.zeros(4) for _ in range(world)]
dist.all_gather(weights, model.module.weight.detach().flatten())
assert all(torch.equal(w, weights[0]) for w in weights), weights
dist.barrier()
group = dist.new_group([0])
gathered = [None] * world
dist.all_gather_object(gathered, {"rank": rank})
assert [g["rank"] for g in gathered] == list(range(world))
dist.barrier()
dist.destroy_process_group()
os.write(1, f"trained {rank}\\n".encode())
os._exit(0)  # Skips torch 2.13's exit, which a Gloo thread left from DDP may abort.
"""

# torchrun keeps the keys of the previous attempt: a rank that restarts sooner than its peer reads
# the dead peer's address, and the restart fails every time.
SKEWED_RESTART = """
import datetime, os, sys, time, torch, torch.distributed as dist
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
if attempt == 1 and rank == 1:
    time.sleep(4)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 2
if attempt == 0 and rank == 1:
    sys.exit(3)
dist.barrier()
os.write(1, f"attempt {attempt} rank {rank}\\n".encode())
os._exit(0)
"""


def run(script, *flags, **more):
    start = time.monotonic()
    done = subprocess.run([MUSTER, "--standalone", "--nproc-per-node=2", *flags, str(script)],
                          env={**os.environ, "PYTHON_EXEC": str(PYTHON), "OMP_NUM_THREADS": "1", **more},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=BOUND_S)
    return done, time.monotonic() - start


def check(name, done, expected):
    if done.returncode == 0 and sorted(done.stdout.splitlines()) == expected:
        return 0
    print(f"FAIL {name}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return 1


def main():
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", HAS_TORCH], check=False).returncode != 0:
        print("SKIPPED: .venv has no torch: scripts/quickstart makes it")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-workers-") as folder, WarmPython(PYTHON, OMP_NUM_THREADS="1") as warm:
        train = pathlib.Path(folder, "train.py")
        train.write_text(TRAIN)
        for number in range(ROUNDS):
            done, seconds = run(train, **(warm.variables() if number > 0 else {}))
            failed += check(f"job {number}", done, ["trained 0", "trained 1"])
            print(f"job {number}: {seconds:.1f} s", flush=True)
        skewed = pathlib.Path(folder, "skewed.py")
        skewed.write_text(SKEWED_RESTART)
        done, seconds = run(skewed, "--max-restarts=1")
        failed += check("restart with one rank late", done,
                        ["attempt 1 rank 0", "attempt 1 rank 1"])
        print(f"restart with one rank late: {seconds:.1f} s")
    print(f"{ROUNDS + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
