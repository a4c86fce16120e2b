#!/usr/bin/env python3
"""Tests jobs that meet at musterd: the loss of any node, and of musterd."""
import json
import os
import signal
import socket
import struct
import sys
import time

from mixed import SHORT_LEASE_S, MusterdTest, have_torch
from musterd import MUSTERD
from native_peer import Interpreter
from nodes import TORCH_PYTHON
from support import PATIENCE_S, main, wait_for

CLOSED_GRACE_S = 0.5  # closed_grace of rendezvous/host/rendezvous.h.


class JobTest(MusterdTest):
    def workers(self):
        """The pids of the workers."""
        return {pid for pid, command in self.token.processes().items()
                if command.rstrip().endswith(f"-u {self.worker}")}

    def torch(self):
        if not have_torch():
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")


def native(message):
    text = json.dumps(message).encode()
    return b"m" + struct.pack("<Q", len(text)) + text


class Strangers(JobTest):
    def test_the_texts_of_a_node_steer_no_terminal_of_another_one(self):
        spoil = "\x1b]0;x\x07\nW1126 forged"
        run = {"min_nodes": 3, "max_nodes": 3, "max_restarts": 3, "scale_policy": "now",
               "join_timeout_ns": 600 * 10**9, "last_call_timeout_ns": 30 * 10**9}
        hello = {"type": "hello", "protocol_version": 1, "muster_version": "0", "run_id": "job", "resumes": True}
        join = {"type": "join", "name": {"addr": spoil, "pid": 1, "local_id": 0}, "instance": "x", "run": run,
                "local_world_size": 1, "role": "default", "protocol_version": 1, "muster_version": "0",
                "last_round": -1, "spare": False, "hosts_rendezvous": False}
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as stranger:
            stranger.sendall(native(hello) + native(join))
            self.assertTrue(stranger.recv(1))
            self.node("a", 3)
            wait_for(lambda: "forged_1_0" in self.read("err.a") or "settings differ" in self.read("err.a"),
                     "the stranger's name")
        self.assertNotIn("\x1b", self.read("err.a"))
        self.assertFalse([line for line in self.read("err.a").splitlines() if line.startswith("W1126 forged")])


class Nodes(JobTest):
    def lose(self, rank):
        for tag in "abcd":
            self.node(tag, "3:4")
        first = self.round_of(4)
        victim = first[rank]["node"]
        others = {"a", "b", "c", "d"} - {victim}
        begin = time.monotonic()
        self.kill(victim)
        second = self.round_of(3, after=4, nodes=others)
        # No node has waited for the end of the last call or for a collective's timeout. No exact
        # duration can be expected here.
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"0"})
        # Nodes keep their ranks; the node with the highest rank gets the free one.
        for entry in second:
            before = next(e["RANK"] for e in first if e["node"] == entry["node"])
            if before != "3":
                self.assertEqual(entry["RANK"], before)
        self.node(victim, "3:4")
        self.round_of(4, after=7, nodes="abcd")
        self.tell("finish")
        self.ends(a=0, b=0, c=0, d=0)
        self.assertIsNone(self.musterd.poll())

    def test_rank_0s_agent_is_killed(self):
        self.lose(0)

    def test_rank_1s_agent_is_killed(self):
        self.lose(1)

    def test_rank_2s_agent_is_killed(self):
        self.lose(2)

    def test_rank_3s_agent_is_killed(self):
        self.lose(3)

    def test_two_at_once_are_too_many_until_one_is_back(self):
        for tag in "abcd":
            self.node(tag, "3:4")
        first = self.round_of(4)
        gone = [first[0]["node"], first[2]["node"]]
        left = sorted({"a", "b", "c", "d"} - set(gone))
        for tag in gone:
            os.kill(self.nodes[tag].pid, signal.SIGKILL)
        for tag in gone:
            self.nodes[tag].wait()
        self.says(left, "waiting for")
        self.node(gone[0], "3:4")
        self.round_of(3, after=4, nodes=[*left, gone[0]])
        self.tell("finish")
        self.ends(**{tag: 0 for tag in [*left, gone[0]]})

    def test_they_find_a_musterd_that_comes_later(self):
        self.stop_musterd()
        for tag in "ab":
            self.node(tag, 2)
        self.says("ab", "waiting for the rendezvous")
        self.start_musterd()
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_musterd_on_the_same_machine_needs_no_is_host(self):
        self.conf = f"lease={self.lease_s}"
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.kill("a")
        self.node("a", 2)
        self.round_of(2, after=2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)


class Runs(JobTest):
    def test_a_run_id_is_used_again_after_success_and_after_failure(self):
        started = 0
        for code in (0, 3, 0):
            for tag in "ab":
                self.node(tag, 2)
            workers = self.round_of(2, after=started)
            started += 2
            self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in workers}, {"0"})
            if code:
                self.tell("exit.b", str(code))
                self.ends(a=1, b=1)
            else:
                self.tell("finish")
                self.ends(a=0, b=0)
                (self.dir / "finish").unlink()

    def test_other_settings_are_fine_in_the_next_run(self):
        self.node("a", 1)
        self.round_of(1)
        self.tell("finish")
        self.ends(a=0)
        (self.dir / "finish").unlink()
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=2", "--scale-policy=never")
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_two_runs_at_once_do_not_know_of_each_other(self):
        for run, tags in (("one", "ab"), ("two", "cde")):
            self.run_id = run
            for tag in tags:
                self.node(tag, len(tags), "--max-restarts=1")
        self.round_of(2, nodes="ab")
        self.round_of(3, nodes="cde")
        self.tell("exit.a", "4")
        second = self.round_of(2, after=5, nodes="ab")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"1"})
        self.tell("exit.b", "4")
        self.ends(a=1, b=1)
        self.assertEqual([e["node"] for e in self.starts()[7:]], [])
        self.tell("exit.c", "4")
        third = self.round_of(3, after=7, nodes="cde")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in third}, {"1"})
        self.tell("finish")
        self.ends(c=0, d=0, e=0)

    def test_the_id_of_a_run_may_begin_with_the_id_of_another(self):
        for run, tags in (("job", "ab"), ("job.0", "cde")):
            self.run_id = run
            for tag in tags:
                self.node(tag, len(tags))
        self.round_of(2, nodes="ab")
        self.round_of(3, nodes="cde")
        self.tell("finish.a")
        self.tell("finish.b")
        self.ends(a=0, b=0)
        self.tell("exit.d", "4")
        self.ends(c=1, d=1, e=1)


class Torchrun(JobTest):
    def setUp(self):
        self.torch()
        super().setUp()

    def test_both_kinds_reduce_restart_and_use_the_run_again(self):
        self.workers_reduce_first()
        for _ in range(2):
            started = len(self.starts())
            self.node("a", 2, "--max-restarts=2")
            self.node("t", 2, "--max-restarts=2")
            self.round_of(2, after=started, nodes="at")
            self.tell("exit.a", "7")
            self.round_of(2, after=started + 2, nodes="at")
            self.tell("exit.t", "7")
            self.round_of(2, after=started + 4, nodes="at")
            self.tell("finish")
            self.ends(a=0, t=0)
            (self.dir / "finish").unlink()

    def test_rank_0s_muster_agent_is_killed(self):
        self.node("a", "2:3", "--node-rank=0")
        self.node("b", "2:3", "--node-rank=1")
        self.node("t", "2:3")
        first = self.round_of(3)
        self.assertEqual(first[0]["node"], "a")
        self.kill("a")
        self.round_of(2, after=3, nodes="bt")
        self.tell("finish")
        self.ends(b=0, t=0)

    def test_a_torchrun_agent_is_killed(self):
        for tag in "abt":
            self.node(tag, "2:3")
        self.round_of(3)
        self.kill("t")
        self.round_of(2, after=3, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)


class RestartTest(JobTest):
    """musterd is restarted and loses all that it knew."""

    def running(self, nnodes="3:4", tags="abcd", *more):
        for tag in tags:
            self.node(tag, nnodes, *more)
        self.round_of(len(tags))
        return self.workers()

    def back(self, tags):
        """Waits until the nodes have resumed after the last restart of musterd."""
        log = f"err.musterd{self.musterds}"
        wait_for(lambda: f" nodes={len(tags)} restarts=" in self.read(log), f"the round to be resumed in {log}")

    def goes_on(self, number, away_s=0.0):
        before = self.running()
        self.assertEqual(len(before), 4, self.token.processes())
        self.stop_musterd(number)
        self.says("abcd", "lost the rendezvous")
        time.sleep(away_s)
        self.assertEqual(self.workers(), before)
        self.start_musterd()
        self.back("abcd")
        self.assertEqual(self.workers(), before)
        self.assertEqual(len(self.starts()), 4)
        self.kill("a")  # The resumed run handles a lost node like any other run.
        self.round_of(3, after=4, nodes="bcd")
        self.tell("finish")
        self.ends(b=0, c=0, d=0)


class Leases(RestartTest):
    """All leases end while musterd is away or stopped, and nobody is lost."""
    lease_s = SHORT_LEASE_S

    def test_away_for_longer_than_the_lease(self):
        self.goes_on(signal.SIGKILL, 2.5 * self.lease_s)

    def test_one_that_hangs_for_a_while_is_forgiven(self):
        before = self.running()
        self.musterd.send_signal(signal.SIGSTOP)
        # The pause is part of the test: all leases have expired when musterd runs again.
        time.sleep(2.5 * self.lease_s)
        self.assertEqual(self.workers(), before)
        self.musterd.send_signal(signal.SIGCONT)
        self.kill("c")  # Now a node is really lost.
        self.round_of(3, after=4, nodes="abd")
        self.assertEqual(len(self.starts()), 7)
        self.tell("finish")
        self.ends(a=0, b=0, d=0)


class Restarts(RestartTest):
    def test_killed_and_started_again(self):
        self.goes_on(signal.SIGKILL)

    def test_stopped_and_started_again(self):
        self.goes_on(signal.SIGTERM)

    def test_killed_again_and_again(self):
        before = self.running()
        for _ in range(3):
            self.stop_musterd()
            self.start_musterd()
            self.back("abcd")
        self.assertEqual(self.workers(), before)
        self.tell("finish")
        self.ends(a=0, b=0, c=0, d=0)

    def test_a_node_that_is_killed_with_it_is_not_waited_for(self):
        self.running()
        self.stop_musterd()
        self.kill("b")
        self.says("acd", "lost the rendezvous")
        self.lease_s = SHORT_LEASE_S  # After it, the killed node counts as lost.
        self.start_musterd()
        self.round_of(3, after=4, nodes="acd")
        self.tell("finish")
        self.ends(a=0, c=0, d=0)

    def test_while_nodes_wait_for_each_other(self):
        for tag in "ab":
            self.node(tag, 3)
        self.says("ab", "waiting for the other nodes")
        self.stop_musterd()
        self.says("ab", "lost the rendezvous")
        self.start_musterd()
        self.node("c", 3)
        self.round_of(3)
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_connections_that_are_cut_restart_nothing(self):
        """A node that resumes later than the grace after its connection was closed is lost, and the round begins
        again. On a busy machine that is right, so only cuts after which both nodes were back in time count."""
        answers = []

        def to_node(message):
            if message["type"] in ("resumed", "rejoin"):
                answers.append((message["type"], time.monotonic()))
            return message
        between = Interpreter(self.port, to_host=lambda message: message, to_node=to_node)
        self.addCleanup(between.close)
        direct, self.port = self.port, between.port
        before = self.running("2", "ab")
        begin = time.monotonic()
        in_time = losses = 0
        while in_time < 5:
            self.assertLess(time.monotonic() - begin, PATIENCE_S, "no 5 cuts in a row after which both nodes resume in time")
            starts = len(self.starts())
            answers.clear()
            cut_at = time.monotonic()
            for connection in list(between.connections):
                between._end(connection)
            wait_for(lambda: len(answers) >= 2, "the answers to both nodes that resume")
            # The host closed its end after `cut_at` and wrote the answers before they came through here.
            was_in_time = max(at for _, at in answers) - cut_at < CLOSED_GRACE_S
            if was_in_time or all(what == "resumed" for what, _ in answers):
                self.assertEqual({what for what, _ in answers}, {"resumed"}, self.all_output())
                self.assertEqual(self.workers(), before, self.all_output())
                self.assertEqual(self.read("err.musterd1").count("node_lost"), losses)
                in_time += was_in_time
            else:
                self.round_of(2, after=starts, nodes="ab")
                before = self.workers()
                losses = self.read("err.musterd1").count("node_lost")
                in_time = 0
        self.port = direct
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_workers_may_finish_without_it(self):
        self.conf += ",read_timeout=2"
        self.running("2", "ab")
        self.stop_musterd()
        self.says("ab", "lost the rendezvous")
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assert_nothing_left()

    def test_nodes_that_finish_without_it_wait_for_it(self):
        self.running("2", "ab")
        self.stop_musterd()
        self.says("ab", "lost the rendezvous")
        self.tell("finish")
        self.says("ab", "is away: waiting for it")
        self.start_musterd()
        self.ends(a=0, b=0)
        self.assertNotIn("nothing can be said", self.read("err.a") + self.read("err.b"))

    def test_workers_that_fail_without_it_are_started_again_when_it_is_back(self):
        self.running("2", "ab", "--max-restarts=1")
        self.stop_musterd()
        self.says("ab", "lost the rendezvous")
        self.tell("exit.b", "7")
        self.worker_ended("b")
        self.says("b", "reports that when it is back")
        self.start_musterd()
        again = self.round_of(2, after=2, nodes="ab")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"1"})
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_failure_while_it_is_away_is_counted_when_it_is_back(self):
        self.running("2", "ab")
        self.stop_musterd()
        self.says("ab", "lost the rendezvous")
        self.tell("exit.b", "7")
        self.worker_ended("b")
        self.start_musterd()
        self.ends(a=1, b=1)
        self.assertIn("exitcode  : 7", self.read("err.b"))

    def test_after_many_rounds(self):
        # The new musterd knows nothing of the rounds; the nodes continue to count.
        self.running("3:4", "abcd", "--max-restarts=9")
        for tag in "abc":
            started = len(self.starts())
            self.tell(f"exit.{tag}", "7")
            self.round_of(4, after=started, nodes="abcd")
        self.stop_musterd()
        self.says("abcd", "lost the rendezvous")
        self.start_musterd()
        self.back("abcd")
        for tag in "bcd":
            started = len(self.starts())
            self.tell(f"exit.{tag}", "7")
            self.round_of(4, after=started, nodes="abcd")
        self.assertEqual(len(self.starts()), 28)  # There were no further rounds.
        self.tell("finish")
        self.ends(a=0, b=0, c=0, d=0)

    def dies_at_its_first_question(self, times):
        """A server that accepts connections, answers the greeting and closes, like a musterd that
        is killed at this moment."""
        with socket.create_server(("127.0.0.1", self.port)) as dying:
            dying.settimeout(PATIENCE_S)
            for _ in range(times):
                connection, _ = dying.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    greeting = b""
                    while len(greeting) < 10:  # VALIDATE and a magic number, PING and a nonce.
                        piece = connection.recv(10 - len(greeting))
                        if not piece:
                            break
                        greeting += piece
                    connection.sendall(greeting[6:])
                    connection.recv(1)

    def test_one_that_dies_while_a_node_connects_again_is_no_torch_server(self):
        self.running("2", "ab")
        self.stop_musterd()
        self.dies_at_its_first_question(2)
        self.start_musterd()
        self.back("ab")
        self.assertEqual(len(self.starts()), 2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_one_that_dies_while_a_node_begins_is_no_torch_server(self):
        self.stop_musterd()
        self.node("a", 2)
        self.dies_at_its_first_question(1)
        self.start_musterd()
        self.node("b", 2)
        self.round_of(2)
        wait_for(lambda: "node_joined run=job" in self.read("err.musterd2"), "the first join")
        # Both nodes use the native door. A node at the c10d door would be joined through the state,
        # and polled.
        self.assertEqual(self.read("err.musterd2").count("workers=1 last_round=none"), 2,
                         self.read("err.musterd2"))
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_if_it_never_comes_back_the_agents_give_up(self):
        self.conf += ",host_absent=2"
        self.running("2", "ab")
        self.stop_musterd()
        self.ends(a=1, b=1)
        for tag in "ab":
            self.assertIn("host_absent=SECONDS", self.read(f"err.{tag}"))
            self.assertRegex(self.read(f"err.{tag}"), "was lost .* cannot be reached again: .*refused")
        self.assert_nothing_left()


if __name__ == "__main__":
    if not os.access(MUSTERD, os.X_OK):
        print(f"skipped: MUSTERD_BIN={MUSTERD} is not there")
        sys.exit(77)
    main()
