#!/usr/bin/env python3
"""A machine that was paused is no silence: all processes of a job stop for longer than the lease, and no worker is restarted.

MUSTER_SEED=<seed> continues the processes in the same order again; it is printed."""
import contextlib
import functools
import os
import random
import signal
import sys
import time

from mixed import SHORT_LEASE_S, MusterdTest
from musterd import MUSTERD
from support import main, wait_for

SEED = int(os.environ.get("MUSTER_SEED") or random.SystemRandom().randrange(10**6))
PAUSES_S = [0.9 * SHORT_LEASE_S, 1.1 * SHORT_LEASE_S, 2.5 * SHORT_LEASE_S]
MOST_BETWEEN_S = 0.1  # A machine with many processes does not wake them all at once.
PLAYS_MAX = 5


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class SignalledSlowly(Exception):
    """This test was off the CPU between its signals. Processes that ran meanwhile may rightly miss the others."""


def again_if_slow(play):
    @functools.wraps(play)
    def test(self):
        for _ in range(PLAYS_MAX):
            try:
                return play(self)
            except SignalledSlowly:
                self.doCleanups()
                self.setUp()
        self.fail(f"in {PLAYS_MAX} plays the processes were not stopped or continued within half a lease")
    return test


class PausedMachine(MusterdTest):
    lease_s = SHORT_LEASE_S

    def setUp(self):
        super().setUp()
        self.chance = random.Random(SEED)
        self.addCleanup(self.signal_all, signal.SIGCONT)

    def signal_all(self, number, between_s=0.0):
        """To all processes of the job: musterd, and each node's front, shim, agent and workers. Returns those that it has
        reached: where a play is given up, some end meanwhile."""
        pids = sorted(self.token.processes())
        self.chance.shuffle(pids)
        reached = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.append(pid)
            time.sleep(self.chance.uniform(0, between_s))
        return reached

    def signal_all_promptly(self, *how):
        begin = time.monotonic()
        pids = self.signal_all(*how)
        if time.monotonic() - begin > self.lease_s / 2:
            raise SignalledSlowly
        return pids

    def pause(self, expected, pause_s=PAUSES_S[-1]):
        pids = self.signal_all_promptly(signal.SIGSTOP)
        self.assertEqual(len(pids), expected, self.token.processes())
        wait_for(lambda: all(state_of(pid) == "T" for pid in pids), "all processes to be stopped")
        time.sleep(pause_s)  # What is tested: a lease is over when the processes go on, or soon after.
        self.assertEqual(sorted(self.signal_all_promptly(signal.SIGCONT, MOST_BETWEEN_S)), sorted(pids))

    def check_undisturbed(self, tags, starts):
        time.sleep(1.5 * self.lease_s)  # What is tested: nothing follows from the pause later.
        self.assertEqual(len(self.starts()), starts, f"seed {SEED}\n{self.all_output()}")
        self.assertNotIn("node_lost", self.all_output())
        self.tell("finish")
        self.ends(**{tag: 0 for tag in tags})
        self.assert_nothing_of_the_job_left()

    def assert_nothing_of_the_job_left(self):
        wait_for(lambda: set(self.token.processes()) <= {self.musterd.pid}, "the end of all but musterd", 10)

    @again_if_slow
    def test_at_musterd(self):
        for tag in "abc":
            self.node(tag, 3)
        self.round_of(3)
        for pause_s in PAUSES_S:
            self.pause(3 * 4 + 1, pause_s)
        self.check_undisturbed("abc", starts=3)
        self.assertIsNone(self.musterd.poll())

    @again_if_slow
    def test_at_an_agent_that_hosts(self):
        self.stop_musterd()
        self.conf = f"lease={self.lease_s},last_call_timeout=3"
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.pause(expected=2 * 4)
        self.check_undisturbed("ab", starts=2)

    @again_if_slow
    def test_while_nodes_wait_for_each_other(self):
        for tag in "ab":
            self.node(tag, 3)
        self.says("ab", "waiting for the other nodes")
        self.pause(expected=2 * 3 + 1)
        self.node("c", 3)
        self.round_of(3)
        self.check_undisturbed("abc", starts=3)

    @again_if_slow
    def test_a_failure_just_after_the_pause_is_counted_once(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=1")
        self.round_of(2)
        self.pause(expected=2 * 4 + 1)
        self.tell("exit.b", "7")
        entries = self.round_of(2, after=2, nodes="ab")
        self.assertEqual({entry["TORCHELASTIC_RESTART_COUNT"] for entry in entries}, {"1"})
        self.check_undisturbed("ab", starts=4)


if __name__ == "__main__":
    if not os.access(MUSTERD, os.X_OK):
        print(f"skipped: MUSTERD_BIN={MUSTERD} is not there")
        sys.exit(77)
    print(f"MUSTER_SEED={SEED}")
    main()
