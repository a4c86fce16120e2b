#!/usr/bin/env python3
"""The zygote of --warm is killed, stopped or out of memory at seeded moments, cannot fork, and forks very often. A job
loses nothing by it: each attempt has its workers once, warm or cold.

MUSTER_MOMENTS says how many attempts the seeded job has, MUSTER_RESTARTS how often the zygote forks. MUSTER_SEED=<seed>
plays the same moments again."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from hardship import HardshipTest, processes_of_muster
from restart_counts import RESTARTS, WARM_UP, RestartCounts
from support import agent_of, child_named, children, main, shim_of, wait_for

import logs_test

SEED = os.environ.get("MUSTER_SEED") or str(random.SystemRandom().randrange(10**6))
ATTEMPTS = int(os.environ.get("MUSTER_MOMENTS", "12"))
PATIENCE_OF_SHIM_S = 5  # For an answer of the zygote: ZygoteLife::kForkLimit.
ACTIONS = ("nothing", "killed", "killed while it forks", "stopped", "stopped and continued")

# Waits in each attempt but the last for a file, then fails.
FAILS = """
import os, sys, time
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with open(f"ready.{attempt}", "a") as file:
    file.write(f"{os.environ['RANK']} {os.getpid()}\\n")
if attempt < int(sys.argv[1]):
    while not os.path.exists(f"fail.{attempt}"):
        time.sleep(0.01)
    sys.exit(5)
"""
# Fills its cgroup with memory of its own. The kernel prefers to kill what has the highest oom_score_adj.
HOG = "held = []\nwhile True: held.append(b'x' * (1 << 20))\n"
# The zygote's own fork fails while the file exists.
NO_FORK = """
import errno, os
fork = os.fork
def refuse():
    if os.path.exists("full"):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = refuse
"""
# Has as many processes as its cgroup permits, then fails.
BOMB = """
import os, sys, time
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0 and os.environ["RANK"] == "0":
    try:
        while True:
            if os.fork() == 0:
                time.sleep(1000)
    except OSError:
        open("full", "w").close()
    sys.exit(5)
if attempt == 0:
    time.sleep(1000)
with open("ready.1", "a") as file:
    file.write(os.environ["RANK"] + "\\n")
"""
AGAIN = """
import os, sys, time
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
os.write(1, b"attempt " + attempt.encode() + b"\\n")
if int(attempt) in ({first}, {last}):
    with open("ready." + attempt, "a") as file:
        file.write(os.environ["LOCAL_RANK"] + "\\n")
    while not os.path.exists("go." + attempt):
        time.sleep(0.02)
sys.exit(1)
"""


def zygote_of(front):
    return child_named(shim_of(front), "muster-zygote")


class Zygote(HardshipTest):
    # The helpers that make a memory cgroup; they skip the test where that is not possible.
    ROOT = logs_test.Oom.ROOT
    make_cgroup = logs_test.Oom.make_cgroup
    remove = staticmethod(logs_test.Oom.remove)

    def setUp(self):
        super().setUp()
        print(f"MUSTER_SEED={SEED}")

    def begin(self, restarts, *args, text=FAILS, **popen):
        return self.start("--warm", "--nproc-per-node=2", f"--max-restarts={restarts}", *args, self.script("s.py", text),
                          restarts, **popen)

    def workers_of(self, attempt):
        """{rank: pid}, once both are there."""
        wait_for(lambda: self.read(f"ready.{attempt}").count("\n") >= 2, f"the workers of attempt {attempt}")
        lines = [line.split() for line in self.read(f"ready.{attempt}").splitlines()]
        self.assertEqual(sorted(rank for rank, _ in lines), ["0", "1"], f"attempt {attempt}")
        return {int(rank): int(pid) for rank, pid in lines}

    def let_fail(self, attempt):
        (self.dir / f"fail.{attempt}").touch()

    def pause(self, seconds):
        """Only chooses the moment: whatever has happened by then, the outcome is the same."""
        time.sleep(seconds)

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def play(self, job, attempt, action, chance):
        zygote = zygote_of(job.pid)
        if zygote is None or action == "nothing":
            return self.let_fail(attempt)
        if action == "killed while it forks":
            self.let_fail(attempt)
            self.pause(chance.uniform(0, 0.05))
            return self.send(zygote, signal.SIGKILL)
        self.send(zygote, signal.SIGKILL if action == "killed" else signal.SIGSTOP)
        self.pause(chance.uniform(0, 0.2))
        self.let_fail(attempt)
        if action == "stopped and continued":  # Perhaps too late, when the shim has killed it.
            self.pause(chance.uniform(0, 1.2 * PATIENCE_OF_SHIM_S))
            self.send(zygote, signal.SIGCONT)

    def test_seeded_moments(self):
        chance = random.Random(SEED)
        job = self.begin(ATTEMPTS)
        for attempt in range(ATTEMPTS):
            self.workers_of(attempt)
            with self.subTest(attempt=attempt):
                self.play(job, attempt, chance.choice(ACTIONS), chance)
        self.workers_of(ATTEMPTS)
        self.assertEqual(self.end_of(job), 0, self.read("err"))
        for attempt in range(ATTEMPTS + 1):
            self.workers_of(attempt)  # No late fork has run the script once more.
        self.assert_nothing_left()
        self.assert_no_files_left()

    def test_out_of_memory(self):
        """The kernel kills the zygote before a worker, also before a worker that has more memory."""
        procs = self.make_cgroup(400 << 20)
        big = "import os\nBIG = b'x' * ((1 + int(os.environ['RANK'])) << 25)\n"
        job = self.begin(1, text=big + FAILS, preexec_fn=lambda: procs.write_text("0"))
        before = self.workers_of(0)
        zygote = zygote_of(job.pid)
        hog = subprocess.run([sys.executable, "-I", "-S", "-c", HOG], check=False, stderr=subprocess.DEVNULL,
                             preexec_fn=lambda: procs.write_text("0"))
        self.assertEqual(hog.returncode, -signal.SIGKILL)
        wait_for(lambda: "the zygote was killed by signal 9" in self.read("err"), "the line about the zygote")
        self.assertNotEqual(zygote_of(job.pid), zygote)
        alive = set(children(shim_of(job.pid)))
        self.assertLessEqual(set(before.values()), alive, "a worker was killed")
        self.assertIn(agent_of(job.pid), alive)
        self.let_fail(0)
        self.workers_of(1)
        self.assertEqual(self.end_of(job), 0, self.read("err"))

    def test_no_process_is_left_for_a_fork(self):
        site = self.dir / "site"
        site.mkdir()
        (site / "no_fork.py").write_text(NO_FORK)
        job = self.begin(2, "--warm-modules=no_fork", env={"PYTHONPATH": str(site)})
        self.workers_of(0)
        (self.dir / "full").touch()
        self.let_fail(0)
        self.workers_of(1)
        self.assertIn("restart 1 start cold: the zygote cannot fork: Resource temporarily unavailable", self.read("err"))
        (self.dir / "full").unlink()
        self.let_fail(1)
        self.workers_of(2)
        self.assertEqual(self.end_of(job), 0, self.read("err"))

    def test_a_worker_that_forks_until_no_process_is_left(self):
        root = pathlib.Path("/sys/fs/cgroup/pids")
        root = root if root.is_dir() else root.parent
        cgroup = root / f"muster-bomb-{os.getpid()}"
        try:
            cgroup.mkdir()
            self.addCleanup(lambda: wait_for(lambda: self.remove(cgroup), f"rmdir {cgroup}"))
            (cgroup / "pids.max").write_text("60")
        except OSError as error:
            self.skipTest(f"cannot make a cgroup that limits processes: {error}")
        job = self.begin(1, text=BOMB, preexec_fn=lambda: (cgroup / "cgroup.procs").write_text("0"))
        self.assertEqual(self.end_of(job), 0, self.read("err"))
        self.assertTrue((self.dir / "full").exists())
        self.assertEqual(sorted(self.read("ready.1").split()), ["0", "1"])
        self.assert_nothing_left()


class ManyForks(RestartCounts):
    @staticmethod
    def counted(front):
        return {**processes_of_muster(front), "zygote": zygote_of(front)}

    def test_nothing_is_used_up(self):
        self.restart("--warm", self.script("s.py", AGAIN.format(first=WARM_UP, last=RESTARTS)), restarts=RESTARTS)
        self.assertNotIn("start cold", self.read("err"))


if __name__ == "__main__":
    main()
