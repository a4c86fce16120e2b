#!/usr/bin/env python3
"""Tests how jobs with both kinds of nodes end when something goes wrong: no node waits for an event
that will not come."""
import sys

from mixed import MixedTest, MusterdTest, have_torch
from native_peer import Passage
from nodes import TORCH_PYTHON
from ports import free_port
from support import main

# A torchrun node that takes part in every round and never publishes how many workers it has.
MUTE = """
import sys, time
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False)
handler = DynamicRendezvousHandler.from_backend("job", store, C10dRendezvousBackend(store, "job"), 2, 2)
while True:
    handler.next_rendezvous()
    while handler.num_nodes_waiting() == 0:
        time.sleep(0.1)
"""


class Fruitless(MixedTest):
    def test_rounds_that_come_to_nothing_are_not_repeated_for_ever(self):
        self.node("a", 2, "--rdzv-conf=is_host=true,read_timeout=2", "--local-addr=127.0.0.1")
        self.listens("a")
        self.launchers = {"mute": [TORCH_PYTHON, "-c", MUTE, str(self.port)]}
        self.node("mute", 2)
        self.ends(a=1)
        said = self.read("err.a")
        self.assertRegex(said, "round 0 was complete, but came to nothing: .*node rank 1.*read_timeout")
        self.assertIn("round 1 was complete, but came to nothing", said)
        self.assertRegex(said, "round 2 was complete, but came to nothing: .*, as the 2 rounds before it")
        self.assertEqual(self.starts(), [])


class TorchrunHasFinished(MusterdTest):
    def test_it_does_not_wait_for_a_job_that_has_failed(self):
        for tag in "at":
            self.node(tag, 2)
        self.round_of(2)
        self.tell("finish.t")
        self.worker_ended("t")
        self.tell("exit.a", "7")
        self.ends(a=1, t=0)  # torchrun ends before its own limit of 300 s.


class MusterMeetsTorchrunAtMusterd(MusterdTest):
    def test_its_connections_are_cut_while_the_workers_run(self):
        between = Passage(self.port)
        self.addCleanup(between.close)
        direct, self.port = self.port, between.port
        self.node("a", 2, env={"LOGLEVEL": "INFO"})
        self.port = direct
        self.node("t", 2)
        self.round_of(2)
        between.cut()
        self.says("a", "is back: round 0 goes on")
        self.tell("finish")
        self.ends(a=0, t=0)  # torchrun waits for a at its exit barrier, for 300 s.
        self.assertNotIn("the exit barrier was left", self.read("err.a"))

    def test_musterd_is_at_the_second_endpoint(self):
        self.node("t", 2)
        self.endpoint = lambda: f"127.0.0.1:{free_port()},127.0.0.1:{self.port}"
        self.node("a", 2)
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, t=0)


class TorchrunHasFinishedAtMuster(MixedTest):
    def test_it_does_not_wait_for_a_host_that_has_failed(self):
        self.pair(2)
        self.round_of(2)
        self.tell("finish.t")
        self.worker_ended("t")
        self.tell("exit.a", "7")
        self.ends(a=1, t=0)


if __name__ == "__main__":
    if not have_torch():
        print(f"skipped: there is no torch: {TORCH_PYTHON}")
        sys.exit(77)
    main()
