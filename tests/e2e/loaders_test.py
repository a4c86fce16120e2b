#!/usr/bin/env python3
"""Kills a job whose workers have data-loader children with SIGKILL at random moments: no process
may survive.

MUSTER_SEED chooses the moments, MUSTER_KILL_ROUNDS their number.
"""
import os
import random
import signal
import sys
import time

from support import PATIENCE_S, SOURCE, MusterTest, agent_of, main, python_has_torch, wait_for

ROUNDS = int(os.environ.get("MUSTER_KILL_ROUNDS", "200"))
SEED = int(os.environ.get("MUSTER_SEED", "1"))

# Starts the processes of torch's DataLoader (daemons of multiprocessing) without the two seconds
# that importing torch takes. It also starts a child that leaves session and group, an orphan, and a
# grandchild of a loader.
WORKER = """import multiprocessing, os, signal, sys, time
def report():
    with open("ready", "a") as f: print("x", file=f)
def forever():
    report()
    while True: time.sleep(1000)
def loader(index):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if index == 0 and os.fork() == 0:  # A grandchild.
        forever()
    forever()
def leave(orphan):
    if os.fork() == 0:
        os.setsid()
        if orphan and os.fork() != 0: os._exit(0)
        forever()
context = multiprocessing.get_context("fork")
for index in range(2):
    context.Process(target=loader, args=(index,), daemon=True).start()
leave(orphan=False)
leave(orphan=True)
report()
time.sleep(float(sys.argv[1]))
os._exit(1)  # Its loaders become orphans.
"""
FAMILY = 6  # The number of processes of a worker that report.

TORCH_WORKER = """import os, time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 1 << 30
    def __getitem__(self, i):
        if i < 2:
            with open("ready", "a") as f: print("x", file=f)
        return torch.zeros(4)
for batch in DataLoader(Data(), batch_size=1, num_workers=2): time.sleep(0.001)
"""


class Loaders(MusterTest):
    def start_job(self, life_s, *options):
        script = self.script("worker.py", WORKER)
        return self.start("--standalone", "--nproc-per-node=2", *options, "--no-python",
                          sys.executable, "-S", script, life_s)

    def kill(self, process, victim):
        pid = process.pid if victim == "muster" else agent_of(process.pid)
        try:
            os.kill(pid or process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(PATIENCE_S)

    def test_kill_9_at_random_moments(self):
        chance = random.Random(SEED)
        for number in range(ROUNDS):
            (self.dir / "ready").unlink(missing_ok=True)
            victim = chance.choice(["muster", "muster", "agent"])
            # The kill comes during the start, when all processes run, or while a restart ends the
            # old ones.
            phase = chance.choice(["start", "all", "restart"])
            delay_s = chance.random() * (0.2 if phase == "start" else 0.05)
            with self.subTest(seed=SEED, round=number, victim=victim, phase=phase, delay_s=delay_s):
                restarts = phase == "restart"
                process = self.start_job(0.02 if restarts else 1000,
                                         f"--max-restarts={1000 if restarts else 0}",
                                         "--shutdown-timeout=0")
                if phase != "start":
                    self.ready(2 * FAMILY)
                end = time.monotonic() + delay_s
                wait_for(lambda: time.monotonic() >= end, "the moment")
                self.kill(process, victim)
                self.assert_nothing_left()
                self.out.close()
                self.err.close()

    def test_kill_9_with_a_dataloader_of_torch(self):
        python = SOURCE / ".venv/bin/python"
        if not python_has_torch(python):
            self.skipTest("no torch in .venv")
        script = self.script("train.py", TORCH_WORKER)
        for victim in ("muster", "agent"):
            with self.subTest(victim=victim):
                (self.dir / "ready").unlink(missing_ok=True)
                process = self.start("--standalone", "--nproc-per-node=2", script,
                                     env={"PYTHON_EXEC": str(python)})
                self.ready(4)  # Two loaders for each of two workers.
                self.assertGreaterEqual(len(self.token.processes()), 8)
                self.kill(process, victim)
                self.assert_nothing_left()


if __name__ == "__main__":
    sys.exit(main())
