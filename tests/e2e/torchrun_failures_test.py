#!/usr/bin/env python3
"""Tests that jobs which fail with torchrun 2.13 alone work if one node, or the rendezvous, is
muster's.

The real torchrun gets no option that would avoid the failure: its workers share the agents' store.
docs/rendezvous.md and docs/torchrun_peers.md list these failures and their remedies.
"""
import os
import sys
import time

from mixed import MixedTest, MusterdTest, have_torch
from musterd import MUSTERD
from nodes import TORCH_PYTHON
from support import main, wait_for

LATE_S = 4.0
# If the file "late" exists, rank 0 comes later than the others by this time. The others must not
# use the values that it published the last time.
LATE = f"""
import os, time
if os.environ["RANK"] == "0" and os.path.exists(os.environ["TEST_DIR"] + "/late"):
    time.sleep({LATE_S})
"""
# torchrun on a machine with a wrong clock: only the rendezvous asks for the date.
SKEWED = """
import datetime, sys
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as rendezvous
off = datetime.timedelta(seconds=float(sys.argv.pop(1)))
class Clock:
    @staticmethod
    def now(zone=None):
        return datetime.datetime.now(zone) + off
rendezvous.datetime = Clock
from torch.distributed.run import main
main()
"""
# A node of a busy machine may be silent for some seconds, and must not count as dead then.
DEAD_AFTER_S = 10.0
SHORT = f",keep_alive_interval=1,keep_alive_max_attempt={DEAD_AFTER_S:.0f}"


class Reducing(MixedTest):
    def setUp(self):
        super().setUp()
        self.workers_reduce_first()
        self.worker.write_text(LATE + self.worker.read_text())

    def start(self, tag, number, nnodes, *more, host=False):
        self.node(tag, nnodes, self.host if host else self.no_host, f"--local-addr=127.0.0.{number}", *more)
        if host:
            self.listens(tag)


class ALateRank0(Reducing):
    """F2: the workers of the second attempt find the keys of the first, and wait at an address
    where no process listens any more."""

    def restart_twice(self, tags, failing):
        first = self.round_of(len(tags), nodes=tags)
        self.assertEqual(first[0]["node"], "a")
        self.tell("late")
        for i, tag in enumerate(failing, 1):
            begin = time.monotonic()
            self.tell(f"exit.{tag}", "7")
            self.round_of(len(tags), after=i * len(tags), nodes=tags)
            self.assertGreaterEqual(time.monotonic() - begin, LATE_S)  # Rank 0 was late.
        self.tell("finish")
        self.ends(**{tag: 0 for tag in tags})
        self.assertEqual(len(self.starts()), (1 + len(failing)) * len(tags))

    def test_where_muster_hosts(self):
        self.start("a", 1, 2, "--max-restarts=2", host=True)
        self.start("t", 2, 2, "--max-restarts=2")
        self.restart_twice("at", "ta")

    def test_where_muster_hosts_two_torchruns(self):
        self.start("a", 9, 3, "--max-restarts=2", host=True)
        self.start("t", 2, 3, "--max-restarts=2")
        self.start("u", 3, 3, "--max-restarts=2")
        self.restart_twice("atu", "ut")

    def test_where_torchrun_hosts(self):
        self.start("t", 2, 2, "--max-restarts=2", host=True)
        self.start("a", 1, 2, "--max-restarts=2")
        self.restart_twice("at", "ta")


class ALateJoiner(Reducing):
    """F1: a node that joins late never learns MASTER_ADDR, and every agent ends. F1b: if this
    node's name sorts first, the workers meet at two places."""

    def late(self, first, second, late):
        self.start("a", first, "2:3", host=True)
        self.start("t", second, "2:3")
        before = self.round_of(2, nodes="at")
        self.start("u", late, "2:3")
        after = self.round_of(3, after=2, nodes="atu")
        for entries in (before, after):
            self.assertEqual(entries[0]["node"], "a")
            self.assertEqual({e["MASTER_ADDR"] for e in entries}, {f"127.0.0.{first}"})
        self.tell("finish")
        self.ends(a=0, t=0, u=0)

    def test_learns_where_rank_0_is(self):
        self.late(1, 2, 3)

    def test_does_not_become_rank_0(self):
        self.late(3, 4, 1)

    def test_replaces_a_node_that_was_killed(self):
        self.start("a", 1, 2, host=True)
        self.start("t", 2, 2)
        self.round_of(2, nodes="at")
        self.kill("t")
        self.start("u", 3, 2)
        self.round_of(2, after=2, nodes="au")
        self.tell("finish")
        self.ends(a=0, u=0)


class OneLock(MixedTest):
    """F3: an agent that waits for the others at the end sends no heartbeats, so it counts as dead."""
    host = MixedTest.host.replace("timeout=3", "timeout=60") + SHORT
    no_host = MixedTest.no_host.replace("timeout=3", "timeout=60") + SHORT

    def finishes_early(self, early, late):
        self.tell(f"finish.{early}")
        self.worker_ended(early)
        # The pause is part of the test: the agent may be silent for this long. If it counted as dead, the next round
        # would begin within the 3 s.
        time.sleep(DEAD_AFTER_S + 3)
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.tell(f"finish.{late}")
        self.ends(a=0, t=0)
        self.assertEqual(len(self.starts()), 2, self.all_output())

    def test_torchrun_waits_for_muster_that_hosts(self):
        self.pair()
        self.round_of(2)
        self.finishes_early("t", "a")

    def test_muster_that_hosts_waits_for_torchrun(self):
        self.pair()
        self.round_of(2)
        self.finishes_early("a", "t")

    def test_a_failure_does_not_wait_for_torchrun_that_has_finished(self):
        """F12: torchrun, which has finished, does not wait for the other nodes either."""
        self.pair("1:2", "--max-restarts=1")
        self.round_of(2)
        self.tell("finish.t")
        self.worker_ended("t")
        self.tell("exit.a", "7")
        self.round_of(1, after=2, nodes="a")
        self.ends(t=0)
        self.tell("exit.a", "7")
        self.ends(a=1)
        self.assertEqual(len(self.starts()), 3)

    def test_muster_waits_for_torchrun_that_hosts(self):
        self.pair_at_torchrun()
        self.round_of(2)
        self.finishes_early("a", "t")

    def test_torchrun_that_hosts_waits_for_muster(self):
        self.pair_at_torchrun()
        self.round_of(2)
        self.finishes_early("t", "a")


class Clocks(MixedTest):
    """F7: if clocks differ by more than 15 s, nodes of one round count different worlds."""

    def setUp(self):
        super().setUp()
        script = str(self.script("skewed.py", SKEWED))
        self.launchers = {**self.launchers, **{tag: [TORCH_PYTHON, script, skew]
                                               for tag, skew in (("t", "-20"), ("u", "20"))}}

    def test_of_torchruns_at_muster(self):
        self.node("a", 3, self.host, "--local-addr=127.0.0.1")
        self.listens("a")
        for tag in "tu":
            self.node(tag, 3, self.no_host, "--local-addr=127.0.0.1")
        self.round_of(3, nodes="atu")
        self.tell("finish")
        self.ends(a=0, t=0, u=0)
        self.assertEqual(len(self.starts()), 3)

    def meets_again(self, tag, warns=None):
        self.round_of(2)
        self.tell("exit.a", "7")
        self.round_of(2, after=2, nodes={"a", tag})
        # The warning comes after the other node's second heartbeat, 5 s after its first one.
        if warns is not None:
            self.says("a", warns)
        self.tell("finish")
        self.ends(**{"a": 0, tag: 0})
        self.assertEqual(len(self.starts()), 4)

    def at_muster(self, tag):
        self.node("a", 2, self.host, "--local-addr=127.0.0.1", "--max-restarts=1")
        self.listens("a")
        self.node(tag, 2, self.no_host, "--local-addr=127.0.0.1", "--max-restarts=1")
        self.meets_again(tag)

    def test_of_a_torchrun_that_is_behind(self):
        self.at_muster("t")

    def test_of_a_torchrun_that_is_ahead(self):
        self.at_muster("u")

    def at_torchrun(self, tag):
        """The muster node joins a torchrun host. Neither may take the other one for dead."""
        self.node(tag, 2, self.host, "--local-addr=127.0.0.1", "--max-restarts=1")
        self.listens(tag)
        self.node("a", 2, self.no_host, "--local-addr=127.0.0.1", "--max-restarts=1")
        self.meets_again(tag, warns="clock_skew")

    def test_at_a_torchrun_that_is_behind(self):
        self.at_torchrun("t")

    def test_at_a_torchrun_that_is_ahead(self):
        self.at_torchrun("u")


class Rank0IsGone(MixedTest):
    """F1b without a remedy: torchrun nodes keep the address of a rank 0 that has gone. muster
    reports this."""
    # All four nodes must be in the first round: on a busy machine one torchrun starts seconds after
    # another.
    host = MixedTest.host.replace("timeout=3", "timeout=20") + SHORT
    no_host = MixedTest.no_host.replace("timeout=3", "timeout=20") + SHORT

    def test_when_rank_0_moves_a_muster_node_that_stays_logs_it(self):
        self.node("t", "3:4", self.host, "--local-addr=127.0.0.2")
        self.listens("t")
        for tag, number in (("v", 1), ("u", 3)):
            self.node(tag, "3:4", self.no_host, f"--local-addr=127.0.0.{number}")
        self.node("a", "3:4", self.no_host, "--local-addr=127.0.0.4", "--max-restarts=2")
        self.assertEqual(self.round_of(4, nodes="atuv")[0]["node"], "v")
        self.tell("exit.a", "7")
        self.assertEqual(self.round_of(4, after=4, nodes="atuv")[0]["node"], "v")
        self.assertNotIn("rank0_moved", self.read("err.a"))
        self.kill("v")
        self.tell("exit.a", "7")
        self.says("a", "rank0_moved from=127.0.0.1_")
        wait_for(lambda: {e["node"] for e in self.starts()[8:]} == set("atu"), "the next round")
        # The warning was not a false alarm.
        self.assertEqual({e["WORLD_SIZE"] for e in self.starts()[8:]}, {"3"})
        self.assertGreater(len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in self.starts()[8:]}), 1)


class OtherLimits(MixedTest):
    """F14: a node with another --nnodes restarts all nodes again and again, and does not learn why."""

    def test_a_torchrun_with_a_larger_maximum_restarts_no_node(self):
        self.pair(2, "--max-restarts=1")
        self.round_of(2)
        self.node("u", "2:3", self.no_host, "--local-addr=127.0.0.1")
        self.ends(u=1)
        self.says("a", "larger maximum than --nnodes=2:2")
        self.tell("exit.a", "7")
        self.round_of(2, after=2, nodes="at")
        self.tell("finish")
        self.ends(a=0, t=0)
        self.assertEqual(len(self.starts()), 4)


class AtMusterd(MusterdTest):
    """All nodes are torchrun's. musterd's rendezvous alone avoids those failures that it can."""
    last_call_s = 3  # Two of "2:3" nodes begin without the third.

    def start(self, tag, number, nnodes, *more):
        self.node(tag, nnodes, f"--local-addr=127.0.0.{number}", *more)

    def late(self, late):
        self.start("t", 3, "2:3")
        self.start("u", 4, "2:3")
        before = self.round_of(2, nodes="tu")
        self.start("v", late, "2:3")
        after = self.round_of(3, after=2, nodes="tuv")
        self.assertEqual({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in after},
                         {(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in before})
        self.assertEqual(after[0]["node"], before[0]["node"])
        self.tell("finish")
        self.ends(t=0, u=0, v=0)

    def test_a_late_joiner_learns_where_rank_0_is(self):
        self.late(5)

    def test_a_late_joiner_does_not_become_rank_0(self):
        self.late(2)

    def test_a_run_id_is_used_again(self):
        """F15: the run id stays closed for ever."""
        for _ in range(2):
            started = len(self.starts())
            self.start("t", 1, 2)
            self.start("u", 2, 2)
            self.round_of(2, after=started, nodes="tu")
            self.tell("finish")
            self.ends(t=0, u=0)
            (self.dir / "finish").unlink()


if __name__ == "__main__":
    if not have_torch():
        print(f"skipped: there is no torch: {TORCH_PYTHON}")
        sys.exit(77)
    if not os.access(MUSTERD, os.X_OK):
        print(f"skipped: MUSTERD_BIN={MUSTERD} is not there")
        sys.exit(77)
    main()
