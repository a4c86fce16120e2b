#!/usr/bin/env python3
"""Tests that workers which fail while musterd is silent cost a restart, whichever node musterd hears first again.

tests/simulation/failure_simulation.cc tries thousands of orders."""
import json
import threading
import urllib.request

from mixed import SHORT_LEASE_S, MusterdTest
from native_peer import Passage
from ports import free_port
from support import PATIENCE_S, main, wait_for


class Way(Passage):
    """A node's way to musterd. While it is silent, bytes are lost, and no connection is closed or refused."""

    def __init__(self, port):
        self.heard = threading.Event()
        self.heard.set()
        super().__init__(port)

    def serve(self, connection):
        self.heard.wait()
        super().serve(connection)

    def _pass_on(self, source, target):
        while data := self._receive(source):
            if self.heard.is_set() and not self._send(target, data):
                break
        self.heard.wait()
        self._end(source)
        self._end(target)

    @staticmethod
    def _receive(source):
        try:
            return source.recv(65536)
        except OSError:
            return b""

    @staticmethod
    def _send(target, data):
        try:
            target.sendall(data)
        except OSError:
            return False
        return True

    def close(self):
        self.heard.set()
        super().close()


class LateFailures(MusterdTest):
    lease_s = SHORT_LEASE_S

    def setUp(self):
        self.http_port = free_port()
        self.musterd_options = [f"--http=127.0.0.1:{self.http_port}"]
        self.ways = {}
        super().setUp()

    def arguments(self, tag, nnodes, extra):
        direct, self.port = self.port, self.ways[tag].port
        try:
            return super().arguments(tag, nnodes, extra)
        finally:
            self.port = direct

    def run_view(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/api/v1/runs/job", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def musterd_says(self, text):
        try:
            wait_for(lambda: text in self.read(f"err.musterd{self.musterds}"), f"musterd to say {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None

    def fail_in_silence(self, *, max_restarts=0, is_killed=True, recorded=True):
        """A worker of a fails while musterd is silent, and b is fenced."""
        if is_killed and recorded:
            self.stop_musterd()
            self.musterd_options.append(f"--state-dir={self.dir / 'state'}")
            self.start_musterd()
        for tag in "ab":
            self.ways[tag] = Way(self.port)
            self.addCleanup(self.ways[tag].close)
            self.node(tag, 2, f"--max-restarts={max_restarts}")
        self.round_of(2)
        for way in self.ways.values():
            way.heard.clear()
        if is_killed:
            self.stop_musterd()
        # The nodes reach each other.
        self.says("ab", "does not answer, and the nodes of this round reach each other")
        self.tell("exit.a", "7")
        self.worker_ended("a")
        self.says("a", "exited with 7, but the rendezvous")
        # Without a, the round is not whole.
        self.says("b", "this node is cut off")
        if is_killed:
            self.start_musterd()

    def b_is_back(self):
        before = self.read(f"err.musterd{self.musterds}").count("node_joined")
        self.ways["b"].heard.set()
        wait_for(lambda: self.read(f"err.musterd{self.musterds}").count("node_joined") > before, "b to join")

    def check_end(self, first="run_failed"):
        self.ends(a=1, b=1)
        self.assertEqual(len(self.starts()), 2, self.all_output())
        view = self.run_view()
        self.assertIn("exited with 7 (--max-restarts=0)", view["outcome"]["why"])
        self.assertEqual(view["first_failure"]["kind"], first)
        if first == "run_failed":
            self.assertEqual(view["first_failure"]["text"], view["outcome"]["why"])
        self.assertIn("exitcode  : 7", self.read("err.a"))
        self.assertIn("exited with 7", self.read("err.b"))

    def test_a_fenced_node_is_back_first(self):
        self.fail_in_silence()
        self.b_is_back()
        self.ways["a"].heard.set()
        self.check_end()

    def test_the_failed_node_is_back_first(self):
        self.fail_in_silence()
        self.ways["a"].heard.set()
        self.musterd_says("run_ended")
        self.ways["b"].heard.set()
        self.check_end()

    def test_a_fenced_node_is_back_first_at_a_musterd_that_records_nothing(self):
        self.fail_in_silence(recorded=False)
        self.b_is_back()
        self.ways["a"].heard.set()
        self.check_end()

    def test_a_fenced_node_is_back_first_at_a_musterd_that_lives_on(self):
        self.fail_in_silence(is_killed=False)
        self.b_is_back()
        self.ways["a"].heard.set()
        self.check_end(first="node_lost")  # musterd has lost both nodes before.

    def test_the_failure_costs_one_restart(self):
        self.fail_in_silence(max_restarts=1)
        self.b_is_back()
        self.ways["a"].heard.set()
        again = self.round_of(2, after=2)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"1"}, self.all_output())
        failure = self.run_view()["first_failure"]
        self.assertEqual((failure["cause"], failure["round"]), ("workers_failed", 0))
        self.assertIn("exited with 7", failure["text"])
        self.musterd_says("failure_counted run=job round=0")
        self.tell("finish")
        self.ends(a=0, b=0)


if __name__ == "__main__":
    main()
