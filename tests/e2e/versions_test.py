#!/usr/bin/env python3
"""Tests two versions of muster in one job: they work together, or one refuses the other and both
versions are named.

The other version is a small peer of this test, or two real agents with a proxy between them that
changes the messages."""
import re
import subprocess

from native_peer import Interpreter, OtherHost, OtherNode
from nodes import NodesTest
from support import MUSTER, SOURCE, main, wait_for

PROTOCOL = int(re.search(r"kNativeProtocolVersion = (\d+);",
                         (SOURCE / "rendezvous/rounds/rendezvous_events.h").read_text()).group(1))
OTHERS = (PROTOCOL - 1, PROTOCOL + 1)
CLIENT = "--rdzv-conf=is_host=false"
HOST = "--rdzv-conf=is_host=true"


def version():  # The form is "muster X".
    said = subprocess.run([MUSTER, "--version"], check=True, capture_output=True, text=True).stdout
    return said.splitlines()[0]


class OtherProtocol(NodesTest):
    def names_both(self, text, protocol, of):
        self.assertIn(of, text)
        self.assertIn(f"protocol {protocol}", text)
        self.assertIn(version(), text)
        self.assertIn(f"protocol {PROTOCOL}", text)

    def listens(self, tag):
        wait_for(lambda: "waiting for the other nodes" in self.read(f"err.{tag}"), f"{tag} to host")

    def finish_with(self, *tags):
        self.round_of(len(tags), nodes=tags)
        self.tell("finish")
        self.ends(**{tag: 0 for tag in tags})

    def test_a_host_refuses_a_node_and_the_job_goes_on(self):
        self.node("a", 2, HOST)
        self.listens("a")
        for number, protocol in enumerate(OTHERS, 2):
            # For each address and cause, the log has at most one line in ten seconds.
            address = f"127.0.0.{number}"
            node = OtherNode(self.port, address)
            self.addCleanup(node.close)
            # The hello has no run_id: its other fields depend on its protocol.
            node.tell({"type": "hello", "protocol_version": protocol, "muster_version": f"7.{protocol}"})
            answer = node.next()
            self.assertEqual(answer["type"], "refused")
            self.names_both(answer["text"], protocol, f"muster 7.{protocol} at {address}")
            self.assertTrue(node.is_closed())
            wait_for(lambda: f"muster 7.{protocol} at {address}" in self.read("err.a"), "a to say it")
            self.names_both(self.read("err.a"), protocol, f"muster 7.{protocol}")
        self.node("b", 2, CLIENT)
        self.finish_with("a", "b")

    def test_a_real_node_that_is_refused_ends_and_says_why(self):
        self.node("a", 2, HOST)
        self.listens("a")
        for tag, protocol in zip("cd", OTHERS):
            def lie(message, protocol=protocol):
                return {**message, "protocol_version": protocol} if message["type"] == "hello" else message
            between = Interpreter(self.port, to_host=lie, to_node=lambda message: message)
            self.addCleanup(between.close)
            self.node(tag, 2, CLIENT, f"--rdzv-endpoint=127.0.0.1:{between.port}")
            self.ends(**{tag: 1})
            self.names_both(self.read(f"err.{tag}"), protocol, "refused this node")
        self.node("b", 2, CLIENT)
        self.finish_with("a", "b")

    def test_a_node_leaves_a_host_at_once(self):
        for tag, protocol in zip("ab", OTHERS):
            host = OtherHost({"type": "welcome", "protocol_version": protocol, "muster_version": f"7.{protocol}"})
            self.addCleanup(host.close)
            self.port = host.port
            self.node(tag, 2, CLIENT)
            self.ends(**{tag: 1})
            said = self.read(f"err.{tag}")
            self.names_both(said, protocol, f"muster 7.{protocol}")
            self.assertIn(self.endpoint(), said)
            # The node has sent its own version and has not asked again.
            hello, = host.hellos
            self.assertEqual(hello["protocol_version"], PROTOCOL)
            self.assertEqual(f"muster {hello['muster_version']}", version())

    def test_the_hosts_own_reason_for_a_refusal_is_printed(self):
        host = OtherHost({"type": "refused", "text": "muster 9.0 speaks protocol 9 and nothing before 7"})
        self.addCleanup(host.close)
        self.port = host.port
        self.node("a", 2, CLIENT)
        self.ends(a=1)
        self.assertIn(f"the rendezvous at {self.endpoint()} refused this node: "
                      "muster 9.0 speaks protocol 9 and nothing before 7", self.read("err.a"))
        self.assertEqual(len(host.hellos), 1)


class OtherRelease(NodesTest):
    """With the same protocol version, unknown or missing fields are no reason to refuse."""

    def later(self, message):
        """Adds fields as a later release may, also inside other fields."""
        self.seen.add(message["type"])
        message = {key: {**value, "of_a_later_release": 1} if isinstance(value, dict) else value
                   for key, value in message.items()}
        return self.other_version({**message, "of_a_later_release": {"x": [1, None, "y"]}})

    def earlier(self, message):
        """Removes the fields that the first release did not send ("absent from older ones")."""
        self.seen.add(message["type"])
        return self.other_version({k: v for k, v in message.items() if k not in ("instance", "lease_ns")})

    @staticmethod
    def other_version(message):
        return {**message, "muster_version": "7.0"} if "muster_version" in message else message

    def works_with(self, change):
        self.seen = set()
        self.node("a", 2, HOST, "--max-restarts=2", "--nproc-per-node=2")
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a"), "a to host")
        between = Interpreter(self.port, to_host=change, to_node=change)
        self.addCleanup(between.close)
        self.node("b", 2, CLIENT, "--max-restarts=2", f"--rdzv-endpoint=127.0.0.1:{between.port}")
        self.round_of(3)
        for i, tag in enumerate("ab", 1):
            self.tell(f"exit.{tag}", "7")
            again = self.round_of(3, after=3 * i)
            self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {str(i)})
        self.tell("finish")
        self.ends(a=0, b=0)
        # The nodes did communicate through the proxy.
        self.assertLessEqual({"hello", "welcome", "join", "round", "restart_round", "workers_failed", "finished",
                              "run_ended"}, self.seen)

    def test_a_later_one(self):
        self.works_with(self.later)

    def test_an_earlier_one(self):
        self.works_with(self.earlier)


if __name__ == "__main__":
    main()
