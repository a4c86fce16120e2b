#!/usr/bin/env python3
"""Tests the addresses that workers are given, and those by which they may reach the store: on hosts
that are network namespaces."""
import socket
import subprocess
import sys

import lan
from network_test import NetworkTest
from nodes import NodesTest
from support import PATIENCE_S, wait_for

# Connects to the store by each address in the arguments, in every rank, then does as the usual worker.
BY_ADDRESS = """
import os, socket
for address in {addresses}:
    socket.create_connection((address, int(os.environ["MASTER_PORT"])), 30).close()
"""
# A script that makes a URL of MASTER_ADDR and MASTER_PORT, as many do.
BY_URL = """
import os, socket, urllib.parse
url = urllib.parse.urlparse(f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
socket.create_connection((url.hostname, url.port), 30).close()
"""
# Says whether the store has answered a VALIDATE and a PING, or has closed the connection.
KNOCK = """
import socket, struct, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as s:
    s.settimeout(30)
    try:
        s.sendall(struct.pack("<BIBI", 0, 0x3C85F7CE, 13, 7))
        print("served" if s.recv(4) else "closed")
    except ConnectionError:
        print("closed")
"""


class OneNode(NetworkTest):
    def alone(self, *options):
        """A job of one node on host a, whose workers use each address of the host."""
        self.host("a", "10.77.0.1/24", "fd77::1/64", hosts="127.0.1.1 a\n")
        self.host("b", "10.77.0.2/24")
        self.worker.write_text(BY_ADDRESS.format(addresses=("10.77.0.1", "fd77::1", "a", "::1", "127.0.0.1")) +
                               self.worker.read_text())
        self.arguments = lambda tag, nnodes, extra: [*options, *extra]
        self.node("a", 1, "--max-restarts=1")
        return int(self.round_of(1)[0]["MASTER_PORT"])

    def knock(self, name, port):
        done = subprocess.run([*self.net.on(name), sys.executable, "-c", KNOCK, "10.77.0.1", str(port)],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return done.stdout.strip()

    def test_workers_reach_the_store_by_each_address_and_other_machines_do_not(self):
        port = self.alone("--standalone")
        self.assertEqual(self.knock("a", port), "served")
        self.assertEqual(self.knock("b", port), "closed")
        self.tell("exit.a", "3")
        entry = self.round_of(1, after=1)[0]
        self.assertEqual(self.knock("b", int(entry["MASTER_PORT"])), "closed")
        self.tell("finish")
        self.ends(a=0)

    def test_the_same_at_a_port_of_the_users_choice(self):
        port = self.alone("--master-addr=127.0.0.1", f"--master-port={self.port}")
        self.assertEqual(port, self.port)
        self.assertEqual(self.knock("a", port), "served")
        self.assertEqual(self.knock("b", port), "closed")
        self.tell("finish")
        self.ends(a=0)

    def test_with_http_the_user_names_the_address(self):
        self.alone("--standalone", "--http=0", "--local-addr=10.77.0.1")
        self.tell("finish")
        self.ends(a=0)


class HeldPort(NodesTest):
    def test_a_program_at_another_address_of_the_port_does_not_stop_the_job(self):
        with socket.socket() as other:
            other.bind(("127.0.0.2", self.port))
            other.listen()
            self.arguments = lambda tag, nnodes, extra: ["--master-addr=127.0.0.1", f"--master-port={self.port}"]
            self.node("a", 1)
            self.round_of(1)
            self.tell("finish")
            self.ends(a=0)


class Url(NetworkTest):
    def setUp(self):
        super().setUp()
        self.worker.write_text(BY_URL + self.worker.read_text())

    def test_the_loopback_address_of_ipv6_is_called_localhost(self):
        self.host("a")
        self.launchers["guest"] = self.launchers["a"]
        self.meeting_point = "[::1]"
        for tag in ("a", "guest"):
            self.node(tag, 2, self.conf())
        self.assertEqual(self.masters(self.round_of(2)), {"localhost"})
        self.tell("finish")
        self.ends(a=0, guest=0)

    def test_one_node_is_called_by_its_name(self):
        self.host("trainer", "fd77::9/64", hosts="fd77::9 trainer\n")
        self.meeting_point = "[fd77::9]"
        self.node("trainer", 1, self.conf())
        self.assertEqual(self.masters(self.round_of(1)), {"trainer"})
        self.tell("finish")
        self.ends(trainer=0)


class Kept(NetworkTest):
    def one_node(self, hosts, *options):
        self.host("trainer", "fd77::9/64", hosts=hosts)
        self.meeting_point = "[fd77::9]"
        self.node("trainer", 1, self.conf(), *options)
        masters = self.masters(self.round_of(1))
        self.tell("finish")
        self.ends(trainer=0)
        return masters

    def test_a_name_that_leads_to_loopback_is_not_used(self):
        self.assertEqual(self.one_node("fd77::9 trainer\n127.0.1.1 trainer\n"), {"fd77::9"})
        self.assertIn("--local-addr=NAME", self.read("err.trainer"))

    def test_a_name_of_another_address_is_not_used(self):
        self.assertEqual(self.one_node("fd77::8 trainer\n"), {"fd77::9"})

    def test_the_users_address_counts(self):
        self.assertEqual(self.one_node("fd77::9 trainer\n", "--local-addr=fd77::9"), {"fd77::9"})

    def test_several_nodes_get_one_address_and_one_line_of_advice(self):
        for i, name in enumerate("ab", 1):
            self.host(name, f"fd77::{i}/64", hosts=f"fd77::{i} {name}\n")
        self.meeting_point = "[fd77::1]"
        for tag in "ab":
            self.node(tag, 2, self.conf(), "--max-restarts=1")
        self.assertEqual(self.masters(self.round_of(2)), {"fd77::1"})
        self.tell("exit.b", "7")
        self.round_of(2, after=2)
        self.tell("finish")
        self.ends(a=0, b=0)
        said = self.read("err.a") + self.read("err.b")
        self.assertEqual(said.count("--local-addr=NAME"), 1, said)


class LinkLocal(NetworkTest):
    """Each host has its own name for the link, as machines of two makes have."""
    def setUp(self):
        super().setUp()
        for i, (name, device) in enumerate((("a", "eth0"), ("b", "ens3"), ("c", "wan7")), 1):
            self.host(name)
            self.net.connect(name, "wire", f"fe80::a{i}/64", device=device)
        self.scopes = {"a": "eth0", "b": "ens3", "c": "wan7"}

    def check_round(self, entries):
        pass  # MASTER_ADDR differs: each host has its own scope.

    def meet(self, first):
        rank = {tag: str((i - "abc".index(first)) % 3) for i, tag in enumerate("abc")}
        for tag in "abc":
            self.meeting_point = f"[fe80::a1%{self.scopes[tag]}]"
            self.node(tag, 3, self.conf(), "--max-restarts=1", f"--node-rank={rank[tag]}")
        return self.round_of(3)

    def expect(self, entries, first):
        number = "abc".index(first) + 1
        self.assertEqual({e["node"]: e["MASTER_ADDR"] for e in entries},
                         {tag: f"fe80::a{number}%{scope}" for tag, scope in self.scopes.items()})

    def test_each_node_gets_the_address_with_its_own_scope(self):
        self.expect(self.meet("a"), "a")
        self.tell("exit.b", "7")
        self.expect(self.round_of(3, after=3), "a")
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_the_same_when_the_first_rank_is_not_the_host(self):
        self.expect(self.meet("b"), "b")
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_the_same_at_a_musterd(self):
        self.musterd_on("a")
        for tag in "bc":
            self.meeting_point = f"[fe80::a1%{self.scopes[tag]}]"
            self.node(tag, 2, self.conf(",is_host=false"), f"--node-rank={'bc'.index(tag)}")
        found = {e["node"]: e["MASTER_ADDR"] for e in self.round_of(2)}
        self.assertEqual(found, {"b": "fe80::a2%ens3", "c": "fe80::a2%wan7"})
        self.tell("finish")
        self.ends(b=0, c=0)


if __name__ == "__main__":
    lan.main()
