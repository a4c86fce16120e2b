#!/usr/bin/env python3
"""Tests endpoints, and addresses of one name, where musterds listen that do not share their state."""
import time

import lan
from mixed import MusterdTest
from musterd import run_musterd
from network_test import NetworkTest
from ports import free_port
from support import wait_for

NOT_SHARED = "do not share their state"


class Endpoints(MusterdTest):
    """One musterd listens at `port`, another one, later, at `other_port`."""
    last_call_s = 1

    def setUp(self):
        super().setUp()
        self.other_port = free_port()
        self.order = (self.port, self.other_port)

    def endpoint(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.order)

    def start_other(self, *options):
        run_musterd(self, f"--lease-seconds={self.lease_s}", *options, port=self.other_port,
                      log=self.dir / "err.other", env=self.environment())

    def test_nodes_that_find_both_at_the_start_end_with_the_reason(self):
        self.start_other()
        self.node("a", "1:3")
        self.order = self.order[::-1]
        self.node("b", "1:3")
        self.ends(a=1, b=1)
        self.says("ab", NOT_SHARED)
        self.assertEqual(self.starts(), [], self.all_output())

    def test_nodes_of_a_round_wait_for_their_host_and_newcomers_are_told(self):
        for rank, tag in enumerate("abc"):
            self.node(tag, "3:5", f"--node-rank={rank}")
        self.round_of(3)
        self.says("abc", f"127.0.0.1:{self.other_port} cannot be asked now")
        self.start_other()
        self.stop_musterd()
        self.says("abc", "does not share the state of the one at")
        time.sleep(2)
        self.start_musterd()
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd2"), "the round to be resumed")
        self.node("d", "3:5")
        self.ends(d=1)
        self.says("d", NOT_SHARED)
        self.assertEqual(len(self.starts()), 3, self.all_output())
        self.assertNotIn("round_", self.read("err.other"))
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_two_endpoints_of_one_musterd(self):
        self.musterd_options = ["--bind=127.0.0.2"]
        self.stop_musterd()
        self.start_musterd()
        self.endpoint = lambda: f"127.0.0.2:{self.port},127.0.0.1:{self.port}"
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        for number in (2, 3):
            self.stop_musterd()
            self.start_musterd()
            wait_for(lambda n=number: "round_resumed run=job" in self.read(f"err.musterd{n + 1}"),
                     "the round to be resumed")
        self.assertNotIn("cannot be asked", self.all_output())
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.tell("finish")
        self.ends(a=0, b=0)


class Addresses(NetworkTest):
    """Hosts m and o, on each of which a musterd may run, are both addresses of one name. o comes first."""

    def setUp(self):
        super().setUp()
        self.host("m", "10.77.0.1/24")
        self.host("o", "10.77.0.2/24")
        for i, tag in enumerate("ab", 3):
            self.host(tag, f"10.77.0.{i}/24", hosts="10.77.0.2 rdzv.test\n10.77.0.1 rdzv.test\n")
        self.meeting_point = "rdzv.test"

    def test_nodes_that_find_both_at_the_start_end_with_the_reason(self):
        self.musterd_on("m")
        self.musterd_on("o")
        for tag in "ab":
            self.node(tag, "1:2", self.conf(",is_host=false"))
        self.ends(a=1, b=1)
        for tag in "ab":
            self.says(tag, NOT_SHARED)

    def test_nodes_of_a_round_go_back_to_the_address_of_their_host(self):
        musterd = self.musterd_on("m")
        for tag in "ab":
            self.node(tag, 2, self.conf(",is_host=false"))
        self.round_of(2)
        self.musterd_on("o")
        musterd.kill()
        musterd.wait()
        for tag in "ab":
            self.says(tag, "does not share the state of the one at 10.77.0.1")
        self.musterd_on("m")
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd"), "the round to be resumed")
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.tell("finish")
        self.ends(a=0, b=0)


if __name__ == "__main__":
    lan.main()
