#!/usr/bin/env python3
"""The front, the shim or the agent is stopped, continued, killed or OOM-killed at a seeded moment of a job.

A round is one job with one victim, one action and one moment. MUSTER_MOMENTS says how many rounds are played: the first
12 have each pair of a victim and an action once, 60 have each of them at each moment. The seed is printed, and
MUSTER_SEED=<seed> plays the same rounds again."""
import contextlib
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from hardship import END_BOUND_S, HardshipTest
from support import main, wait_for

import logs_test

SEED = os.environ.get("MUSTER_SEED") or str(random.SystemRandom().randrange(10**6))
ROUNDS = int(os.environ.get("MUSTER_MOMENTS", "12"))

VICTIMS = ("front", "shim", "agent")
ACTIONS = ("stopped", "stopped_and_continued", "killed", "oom_killed")
# The longest time from the event that begins the moment to the action. It covers what muster does after that event.
MOMENTS = {"start": 0.05, "running": 0.2, "restart": 0.15, "stop": 0.4, "end": 0.05}
PAUSES_S = (0.2, 2.0)  # Between SIGSTOP and SIGCONT.
EARLY = ("start", "running", "restart")  # The job cannot end by itself before the action.
NEXT_EVENT_S = 1.1  # Two signals within a second are one event.
OOM_LIMIT = 32 << 20  # More than the hog itself has mapped: the kernel weighs that against the victim's oom_score_adj.

# Waits at the gate of its attempt, then ends. In a job with a restart rank 1 fails in the first attempt, and rank 0
# stays until muster stops it.
WORKER = """#!/bin/sh
trap 'sleep 0.3; echo $LOCAL_RANK >> saved; exit 0' TERM
exec 3< gate.$TORCHELASTIC_RESTART_COUNT 4< never
echo $LOCAL_RANK >> ready.$TORCHELASTIC_RESTART_COUNT
read line <&3
case $MOMENT.$TORCHELASTIC_RESTART_COUNT.$LOCAL_RANK in
  restart.0.0) read line <&4 ;;
  restart.0.1) exit 5 ;;
esac
exit 0
"""
# Fills its cgroup with memory that no process has mapped, so the kernel kills every other process there first.
HOG = "import os\nfile = os.memfd_create('hog')\nwhile True: os.write(file, b'x' * (1 << 20))\n"


def rounds():
    """(number, victim, action, moment) of each round. Five rounds of a pair have its moments in a seeded order."""
    chance = random.Random(SEED)
    pairs = list(itertools.product(VICTIMS, ACTIONS))
    number = 0
    while True:
        orders = {pair: chance.sample(list(MOMENTS), len(MOMENTS)) for pair in pairs}
        for turn in range(len(MOMENTS)):
            for pair in chance.sample(pairs, len(pairs)):
                yield number, *pair, orders[pair][turn]
                number += 1


class Moments(HardshipTest):
    # The helpers that make a memory cgroup; they skip the test where that is not possible.
    ROOT = logs_test.Oom.ROOT
    make_cgroup = logs_test.Oom.make_cgroup
    remove = staticmethod(logs_test.Oom.remove)

    def play(self, number, name, action, moment):
        self.chance = random.Random(f"{SEED} {number}")
        self.name, self.moment = name, moment
        self.must_be_lost = False  # Whether muster must say that the victim was lost.
        self.procs = self.make_cgroup(OOM_LIMIT) if action == "oom_killed" else None
        self.gates = [self.gate("gate.0"), self.gate("gate.1")]
        self.gate("never")
        self.process = self.start("--no-python", "--nproc-per-node=2", "--max-restarts=1",
                                  "--failure-report=report.json", self.script("worker.sh", WORKER),
                                  env={"MOMENT": moment, "TORCHELASTIC_ERROR_FILE": str(self.dir / "error.json")})
        self.reach_moment()
        codes = getattr(self, action)()
        code = self.end_of(self.process)
        self.assertIn(code, codes, self.read("err"))
        self.check_reports(code)
        self.assert_nothing_left()
        self.assert_no_files_left()

    # --- the job ---------------------------------------------------------------------------------

    def attempt_is_ready(self, attempt):
        wait_for(lambda: len(self.read(f"ready.{attempt}").split()) == 2, f"the workers of attempt {attempt}")

    def reach_moment(self):
        if self.moment != "start":
            self.attempt_is_ready(0)
        self.prey = self.victim(self.process, self.name)
        self.assertIsNotNone(self.prey, self.read("err"))
        if self.moment in ("restart", "end"):
            self.gates[0].open()
        elif self.moment == "stop":
            self.process.terminate()
        self.pause(self.chance.random() * MOMENTS[self.moment])

    def pause(self, seconds):
        """Only chooses the moment: whatever has happened by then, the outcomes below hold."""
        end = time.monotonic() + seconds
        wait_for(lambda: time.monotonic() >= end, "the moment")

    def go_on(self):
        """Brings the job to its end as if nothing had happened. Returns its exit status."""
        if self.moment in ("start", "running"):
            self.attempt_is_ready(0)
            self.gates[0].open()
        elif self.moment == "restart":
            self.attempt_is_ready(1)
            self.gates[1].open()
        return 1 if self.moment == "stop" else 0

    # --- the actions: each returns the exit statuses that docs/supervision.md allows -------------

    def killed(self):
        self.prey.send_signal(signal.SIGKILL)
        return self.ends_of_killed()

    def ends_of_killed(self):
        """At the moments `stop` and `end` the job may be over before the victim dies."""
        self.must_be_lost = self.moment in EARLY
        if self.name == "agent" and self.moment == "running":  # The workers have their time to end.
            self.end_of(self.process)
            self.check_saved(2)
        code = -signal.SIGKILL if self.name == "front" else 1
        return {code} | {"stop": {1}, "end": {0}}.get(self.moment, set())

    def oom_killed(self):
        # A stopped victim starts no child, which would be in the cgroup, too. The kernel kills it all the same.
        self.prey.send_signal(signal.SIGSTOP)
        with contextlib.suppress(OSError):  # The victim has ended.
            self.procs.write_text(str(self.prey.pid))
            pathlib.Path(f"/proc/{self.prey.pid}/oom_score_adj").write_text("1000")
        end = time.monotonic() + END_BOUND_S
        while not self.prey.has_ended():
            self.assertLess(time.monotonic(), end, "no OOM kill")
            subprocess.run([sys.executable, "-I", "-S", "-c", HOG], check=False,
                           stderr=subprocess.DEVNULL, preexec_fn=lambda: self.procs.write_text("0"))
        return self.ends_of_killed()

    def stopped_and_continued(self):
        self.prey.send_signal(signal.SIGSTOP)
        self.pause(self.chance.uniform(*PAUSES_S))
        self.prey.send_signal(signal.SIGCONT)
        code = self.go_on()
        self.end_of(self.process)
        if self.moment != "restart":  # There rank 0 may have been stopped in its trap or before it.
            self.check_saved(2 if self.moment == "stop" else 0)
        return {code}

    def stopped(self):
        self.prey.send_signal(signal.SIGSTOP)
        codes = self.end_stopped_agent() if self.name == "agent" else self.end_stopped_killer()
        return codes | ({0, 1} if self.moment == "end" else set())

    def end_stopped_agent(self):
        """One signal ends the job after 10 s, and lets the workers save. Three end it within seconds."""
        self.must_be_lost = self.moment in EARLY
        signals = self.chance.choice((1, 3, 3, 3))
        for number in range(signals):
            if number:
                self.pause(NEXT_EVENT_S)
            if self.process.poll() is None:
                self.process.terminate()
        self.end_of(self.process)
        if signals == 1 and self.moment == "running":
            self.check_saved(2)
        return {1}

    def end_stopped_killer(self):
        """A front or a shim that is stopped kills nothing until it is continued, or killed itself."""
        if self.process.poll() is None:
            self.process.terminate()
        if self.chance.random() < 0.5:
            return self.killed()
        self.prey.send_signal(signal.SIGCONT)
        self.end_of(self.process)
        if self.moment == "running":
            self.check_saved(2)
        # Until the front has started, SIGTERM has its default action there.
        return {1, -signal.SIGTERM} if (self.name, self.moment) == ("front", "start") else {1}

    # --- what is promised beside the exit status -------------------------------------------------

    def check_saved(self, count):
        self.assertEqual(len(self.read("saved").split()), count, self.read("err"))

    def check_reports(self, code):
        """Muster names a shim or an agent that was lost, and no other. A lost agent is in the report files, too."""
        err = self.read("err")
        named = {name for name in VICTIMS if f"muster: the {name} (pid " in err}
        self.assertLessEqual(named, {self.name}, err)
        if self.must_be_lost and self.name != "front":
            self.assertEqual(named, {self.name}, err)
        self.assertEqual(self.report().get("ended_by") == "agent_lost", "agent" in named, err)
        if named:
            self.assertEqual(code, 1)
        if "shim" in named:
            self.assertEqual(self.report().get("ended_by"), "shim_lost")
        if "agent" in named:
            self.check_agent_lost("the agent")
            self.assertIn("the agent", self.read("error.json"))


def add_rounds():
    for number, victim, action, moment in itertools.islice(rounds(), ROUNDS):
        def test(self, played=(number, victim, action, moment)):
            with self.subTest(MUSTER_SEED=SEED):
                self.play(*played)
        setattr(Moments, f"test_{number:03}_{victim}_{action}_at_{moment}", test)


if __name__ == "__main__":
    print(f"MUSTER_SEED={SEED} MUSTER_MOMENTS={ROUNDS}", file=sys.stderr, flush=True)
    add_rounds()
    main()
