#!/usr/bin/env python3
"""Tests musterctl's changes to real jobs: restart, stop, and removing nodes from the rounds."""
import json
import pathlib
import re
import signal

from http_test import HttpTest
from musterctl_test import CtlTest
from support import PATIENCE_S, main, wait_for


class Changes(CtlTest):
    def test_restart_and_stop(self):
        self.assertIn("no run 'job'", self.ctl("restart", "job", expect=4))
        self.node("a", "2", "--max-restarts=1")
        self.run_is("gathering")
        self.assertIn("no round runs", self.ctl("restart", "job", expect=1))
        self.node("b", "2", "--max-restarts=1")
        self.round_of(2)
        self.run_is("running")
        self.assertEqual(self.ctl("restart", "job"), "job: its nodes stop their workers and meet again\n")
        entries = self.round_of(2, after=2)
        self.assertEqual({entry["TORCHELASTIC_RESTART_COUNT"] for entry in entries}, {"0"})
        wait_for(lambda: "requested" in self.ctl("status", "job"), "the restart in the history")
        self.assertRegex(self.ctl("status", "job"), r"  round restarts  round 0  requested  an operator \(musterctl restart\)\n")
        self.assertIn("round_restarts run=job round=0 cause=requested who=operator ", self.read("err.musterd"))
        self.assertIn("an operator wants a restart: musterctl restart", self.read("err.a"))
        self.run_is("running")
        self.assertEqual(self.ctl("stop", "job"), "job: it has ended, and its nodes are told\n")
        self.ends(a=1, b=1)
        self.assertIn("an operator has stopped it", self.output("a"))
        self.run_is("failed")
        self.assertIn("has ended", self.ctl("stop", "job", expect=1))


class ChangesOnDisk(Changes):
    """The same tests with a musterd that answers only when the change is on disk."""

    def start_musterd(self):
        self.http_options = [*HttpTest.http_options, f"--state-dir={self.dir / 'state'}"]
        super().start_musterd()


    def test_a_restarted_musterd_tells_how_a_run_ended(self):
        self.node("a", "1")
        self.round_of(1)
        self.run_is("running")
        self.tell("exit.a", "3")
        self.ends(a=1)
        self.run_is("failed")
        before = self.ctl("why", "job")
        self.assertRegex(before, r"^job: node 0 \(.*\) failed first\n  .*: rank 0 exited with 3")
        self.musterd.kill()
        self.musterd.wait()
        self.start_musterd()
        said = wait_for(lambda: "failed" in self.ctl("runs") and self.ctl("why", "job"), "the run")
        self.assertEqual(said.split("\n")[:2], before.split("\n")[:2])
        self.assertIn("\nwhat followed since the host was started again\n", said)
        self.assertRegex(self.ctl("runs"), r"\njob +failed .*exited with 3")
        self.assertRegex(self.ctl("status", "job"), r"  run began  round 0  the host was started again, or another one leads now")


class OutOfTheRounds(CtlTest):
    def listed(self):
        """musterd's entries for all nodes."""
        return json.loads(self.ctl("nodes", "job", "--json"))["nodes"]

    def names(self):
        """musterd's entry for each node that is alive, by the tag in its agent's environment."""
        nodes = {}
        for node in self.listed():
            try:
                environment = pathlib.Path(f"/proc/{node['pid']}/environ").read_bytes()
            except OSError:  # The node has ended, and musterd has not noticed it yet.
                continue
            if tag := re.search(rb"\0NODE_TAG=(\w)", b"\0" + environment):
                nodes[tag[1].decode()] = node
        return nodes

    def shows(self, pattern, command="status"):
        """Waits until the output matches: a view may be a quarter of a second old."""
        wait_for(lambda: re.search(pattern, self.ctl(command, "job")), f"{command} to show {pattern}")

    def three(self):
        for tag in "abc":
            self.node(tag, "2:3", "--max-restarts=3")
        self.round_of(3)
        self.run_is("running")
        return {tag: node["name"] for tag, node in self.names().items()}

    def test_drain_restart_allow(self):
        names = self.three()
        for _ in range(2):  # The second call changes nothing.
            said = self.ctl("drain", "job", names["c"])
            self.assertIn(f"job: {names['c']}: drained; it leaves at the next round", said)
            self.assertNotIn("warning", said)
        self.shows(rf"working, drained .* {names['c']}\n", "nodes")
        self.assertEqual(len(self.starts()), 3)
        self.ctl("restart", "job")
        self.round_of(2, after=3, nodes="ab")
        wait_for(lambda: "an operator has drained this node" in self.read("err.c"), "the node to be told")
        wait_for(lambda: self.names()["c"]["state"] == "kept_out", "the node outside the round")
        self.shows(rf"kept out by an operator .*\n  {names['c']}  drained\n")
        self.ctl("allow", "job", names["c"])
        self.round_of(3, after=5)
        self.assertIn("was not kept out", self.ctl("allow", "job", names["c"]))
        self.ctl("drain", "job", names["c"])

        def kinds():
            return [event["kind"] for event in json.loads(self.ctl("status", "job", "--json"))["events"]
                    if event["kind"] in ("node_drained", "node_allowed")]
        wait_for(lambda: "node_allowed" in kinds() and kinds()[-1] == "node_drained", "the last drain")
        self.assertEqual(kinds().count("node_allowed"), 1)

    def test_exclude_and_the_end_of_its_muster_disturb_no_other_node(self):
        names = self.three()
        said = self.ctl("exclude", "job", names["b"])
        self.assertIn("its workers are stopped now", said)
        self.round_of(2, after=3, nodes="ac")
        wait_for(lambda: "an operator has excluded this node" in self.read("err.b"), "the node to be told")
        self.nodes["b"].send_signal(signal.SIGINT)
        self.nodes["b"].wait(PATIENCE_S)
        wait_for(lambda: names["b"] not in [node["name"] for node in self.listed()], "the node to be gone")
        self.tell("exit.a", "3")
        self.round_of(2, after=5, nodes="ac")
        self.assertEqual(len(self.starts()), 7)  # Only the worker's failure has caused a restart.
        self.shows(" 1 failure ", "nodes")
        self.shows("strikes by host")

    def test_refused_requests_and_warnings(self):
        self.assertIn("no run 'job'", self.ctl("drain", "job", "x", expect=4))
        names = self.three()
        self.assertIn("`musterctl nodes` shows both", self.ctl("drain", "job", "nobody", expect=1))
        self.assertIn("not in the run now", self.ctl("exclude", "job", "nobody"))
        self.ctl("drain", "job", names["a"])
        self.assertIn("warning: without it 1 node is left", self.ctl("drain", "job", names["b"]))
        host = self.listed()[0]["address"]
        self.ctl("drain", "job", host)
        self.assertIn(f"allow {host}", self.ctl("allow", "job", names["a"], expect=1))
        self.ctl("allow", "job", host)
        wait_for(lambda: json.loads(self.ctl("status", "job", "--json"))["kept_out"] ==
                 [{"node": "nobody", "how": "excluded"}], "the list without the host")


class OutOfTheRoundsOnDisk(OutOfTheRounds):
    def start_musterd(self):
        self.http_options = [*HttpTest.http_options, f"--state-dir={self.dir / 'state'}"]
        super().start_musterd()

    def test_a_restarted_musterd_knows_it(self):
        for tag in "ab":
            self.node(tag, "1:2", "--max-restarts=3")
        self.round_of(2)
        self.run_is("running")
        name = self.names()["b"]["name"]
        self.ctl("exclude", "job", name)
        self.round_of(1, after=2, nodes="a")
        self.musterd.kill()
        self.musterd.wait()
        self.start_musterd()
        wait_for(lambda: len(self.names()) == 2, "both nodes to be back")
        self.shows(rf"{name}  excluded\n")
        self.tell("exit.a", "3")
        self.round_of(1, after=3, nodes="a")
        self.shows("1 failure")
        self.ctl("allow", "job", name)
        self.round_of(2, after=4, nodes="ab")


if __name__ == "__main__":
    main()
