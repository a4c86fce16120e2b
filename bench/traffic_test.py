#!/usr/bin/env python3
"""Checks that the traffic of a rendezvous grows linearly with the number of nodes.

    bench/traffic_test.py MUSTERD RENDEZVOUS_LOAD
"""
import json
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from muster_bench.server import Server  # noqa: E402 (the path comes first)

FEW, MANY = 64, 512
LIMIT_S = 120
# The messages of a node. For a join, it sends VALIDATE, PING, hello and join, and receives the
# answer to PING, welcome and the round. For a restart, it sends join, and receives restart and the
# round.
JOIN_TO, JOIN_FROM, RESTART_TO, RESTART_FROM = 4, 3, 1, 2
# More messages, once for the whole job: rank 0 prepares the store, and one node reports that its
# workers failed.
ONCE = 2


def rounds_of(nodes):
    """Returns the join and the restarts of so many nodes at a new server."""
    with Server([MUSTERD, "--bind", "127.0.0.1", "--port", "0"]) as server:
        done = subprocess.run(
            [LOAD, "--port", str(server.port), "--nodes", str(nodes), "--restarts", "3",
             "--limit-seconds", str(LIMIT_S)], capture_output=True, text=True,
            timeout=2 * LIMIT_S)
        server.require_alive()
    if done.returncode != 0:
        raise AssertionError(f"{nodes} nodes: {done.stderr}")
    result = json.loads(done.stdout)
    return [result["join"], *result["restarts"]]


def lasting(phase):
    """Returns the messages and bytes to and from the server, without those that depend on the time
    that the phase took."""
    return {"to": phase["messages_to"] - phase["keep_alives"],
            "from": phase["messages_from"] - phase["waitings"],
            "bytes_to": phase["bytes_to"] - phase["keep_alive_bytes"],
            "bytes_from": phase["bytes_from"] - phase["waiting_bytes"]}


class TrafficTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = {nodes: rounds_of(nodes) for nodes in (FEW, MANY)}

    def test_the_messages_of_a_node_do_not_depend_on_the_number_of_nodes(self):
        for nodes, (join, *restarts) in self.found.items():
            with self.subTest(nodes=nodes):
                self.at_most_once_more(lasting(join), JOIN_TO * nodes, JOIN_FROM * nodes)
                for restart in restarts:
                    self.at_most_once_more(lasting(restart), RESTART_TO * nodes,
                                           RESTART_FROM * nodes)

    def at_most_once_more(self, traffic, to, from_server):
        for way, least in (("to", to), ("from", from_server)):
            self.assertGreaterEqual(traffic[way], least, way)
            self.assertLessEqual(traffic[way], least + ONCE, way)

    def test_a_nodes_bytes_grow_by_the_digits_of_its_numbers_only(self):
        for few, many in zip(self.found[FEW], self.found[MANY]):
            for way in ("bytes_to", "bytes_from"):
                of_few, of_many = lasting(few)[way] / FEW, lasting(many)[way] / MANY
                self.assertLess(abs(of_many - of_few), 16, (way, of_few, of_many))

    def test_each_node_is_told_the_missing_nodes_once_a_second_at_most(self):
        for nodes, phases in self.found.items():
            for phase in phases:
                self.assertLessEqual(phase["waitings"], nodes * (1 + int(phase["seconds"])))


if __name__ == "__main__":
    MUSTERD, LOAD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
