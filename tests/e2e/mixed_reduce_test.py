#!/usr/bin/env python3
"""Runs gloo's all_reduce across muster and torchrun nodes in every round: nodes of both kinds come
late, fail and are killed.

In each round every worker has reached all others and has the right RANK, WORLD_SIZE and
MASTER_ADDR."""
import sys

from mixed import MixedTest, have_torch
from nodes import TORCH_PYTHON
from support import main

# A torchrun host counts a node as dead when it has been silent for 10 s: two rounds below begin only then. It is not
# shorter, because a node of a busy machine may be silent for some seconds.
SHORT = ",keep_alive_interval=1,keep_alive_max_attempt=10"


class Reduces(MixedTest):
    host = MixedTest.host + SHORT
    no_host = MixedTest.no_host + SHORT
    addresses = {tag: f"127.0.0.{i}" for i, tag in enumerate("abctuv", 1)}
    nnodes = "1:4"

    def setUp(self):
        super().setUp()
        self.workers_reduce_first()
        self.started = 0

    def start(self, tag, host=False):
        self.node(tag, self.nnodes, self.host if host else self.no_host,
                  f"--local-addr={self.addresses[tag]}", "--max-restarts=3")
        if host:
            self.listens(tag)

    def reduces(self, tags):
        """The next round of these nodes. Workers record their start when they have summed the
        values of all ranks."""
        world = len(tags)
        entries = self.round_of(world, after=self.started, nodes=tags)
        self.assertEqual([e["RANK"] for e in entries], [str(rank) for rank in range(world)])
        self.assertEqual({e["MASTER_ADDR"] for e in entries}, {self.addresses[entries[0]["node"]]})
        for entry in entries:
            self.assertEqual((entry["GROUP_RANK"], entry["GROUP_WORLD_SIZE"]), (entry["RANK"], str(world)))
            self.assertEqual((entry["ROLE_RANK"], entry["ROLE_WORLD_SIZE"]), (entry["RANK"], str(world)))
        self.started = len(self.starts())
        return entries


class AtMuster(Reduces):
    def test_both_kinds_come_late_and_are_killed(self):
        self.start("a", host=True)
        self.reduces("a")
        self.start("t")
        self.reduces("at")
        self.start("b")
        self.reduces("abt")
        self.start("u")
        full = self.reduces("abtu")
        self.assertEqual(full[0]["node"], "a")
        # A killed muster node is missed at once, and no other node has to fail first.
        self.kill("b")
        self.reduces("atu")
        self.kill("t")  # A torchrun node counts as lost when its connection closes.
        self.reduces("au")
        self.start("v")
        self.reduces("auv")
        self.tell("exit.u", "7")
        self.reduces("auv")
        self.tell("finish")
        self.ends(a=0, u=0, v=0)


class AtTorchrun(Reduces):
    """A muster node is rank 0 because of its name. Otherwise a torchrun node that comes late would
    never learn rank 0's address."""
    nnodes = "2:4"

    def test_both_kinds_come_late_and_are_killed(self):
        self.start("t", host=True)
        self.start("a")
        self.reduces("at")
        self.start("b")
        self.reduces("abt")
        self.start("u")
        full = self.reduces("abtu")
        self.assertEqual(full[0]["node"], "a")
        # Under torchrun, the loss of a node is noticed only when workers of the other nodes fail.
        self.kill("b")
        self.tell("exit.a", "7")
        self.reduces("atu")
        self.kill("u")
        self.tell("exit.a", "7")
        self.reduces("at")
        self.tell("finish")
        self.ends(a=0, t=0)


if __name__ == "__main__":
    if not have_torch():
        print(f"skipped: there is no torch: {TORCH_PYTHON}")
        sys.exit(77)
    main()
