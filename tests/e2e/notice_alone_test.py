#!/usr/bin/env python3
"""Tests notices where no host tells the other nodes: with the static backend, and at a torchrun host. The workers of the
node save, and at the deadline the node leaves."""
import signal
import sys
import time

from mixed import MixedTest, have_torch
from nodes import TORCH_PYTHON
from preemption_nodes_test import NoticeWorker
from support import PATIENCE_S, main

# The workers have 3 s of the 4 s.
OPTIONS = ("--notice-signals=SIGUSR1@4", "--shutdown-timeout=1", "--exit-code=propagate", "--no-python")


class NoticeAlone(NoticeWorker, MixedTest):
    def leaves_at_the_deadline(self, tag):
        """Gives this node a notice. Its workers save at once."""
        entries = self.round_of(2)
        began = time.monotonic()
        self.nodes[tag].send_signal(signal.SIGUSR1)
        self.ends(**{tag: 75})
        self.assertGreaterEqual(time.monotonic() - began, 3)
        for entry in entries:
            if entry["node"] != tag:
                continue
            rank = int(entry["RANK"])
            told = self.told(tag, rank, "stop")
            self.assertEqual((told["doomed"], told["doomed_ranks"]), (True, [[rank, rank]]))
            self.assertLessEqual(told["left"], 3)
            self.assertTrue((self.dir / f"saved.{tag}.{rank}").exists())
        self.assertIn("the job was stopped because of a notice", self.read(f"err.{tag}"))

    def was_not_told(self, tag):
        self.assertEqual(list(self.dir.glob(f"told.{tag}.*")), [])
        self.assertIsNone(self.nodes[tag].poll())
        self.nodes[tag].terminate()
        self.nodes[tag].wait(PATIENCE_S)


class Static(NoticeAlone):
    backend = "static"

    def arguments(self, tag, nnodes, extra):
        return [f"--nnodes={nnodes}", "--master-addr=127.0.0.1", f"--master-port={self.port}", *extra]

    def test_the_other_node_is_not_told(self):
        for tag, other in ("ba", "ab"):  # The node rank 0, which hosts the store, is a.
            with self.subTest(tag):
                for path in [*self.dir.glob("told.*"), *self.dir.glob("saved.*"), *self.dir.glob("starts")]:
                    path.unlink()
                for rank, name in enumerate("ab"):
                    self.node(name, 2, f"--node-rank={rank}", *OPTIONS)
                self.leaves_at_the_deadline(tag)
                self.was_not_told(other)
        self.assert_nothing_left()


class TorchrunHosts(NoticeAlone):
    def test_the_torchrun_node_is_not_told_and_the_muster_node_leaves_the_run(self):
        self.no_host += ",keep_alive_interval=600"  # Nobody takes the node for lost.
        self.host += ",keep_alive_interval=600"
        self.node("t", 2, self.host, "--local-addr=127.0.0.1", "--no-python")
        self.listens("t")
        self.node("a", 2, self.no_host, "--local-addr=127.0.0.1", *OPTIONS)
        self.leaves_at_the_deadline("a")
        self.state_is("len(state.participants) == 1")
        self.was_not_told("t")


if __name__ == "__main__":
    if not have_torch():
        print(f"skipped: there is no torch: {TORCH_PYTHON}")
        sys.exit(77)
    main()
