#!/usr/bin/env python3
"""Tests notices in jobs of several nodes: all workers are told, and when they have saved, the job stops or goes on."""
import json
import signal
import sys
import time

from cable import Cable
from nodes import NodesTest
from support import PATIENCE_S, SOURCE, main, wait_for

# As the worker of nodes.py, and: writes what it is told into told.TAG.RANK.ROUND. Unless "silent.TAG" exists, it saves,
# answers and ends with 0.
WORKER = """
import json, os, sys, time
sys.path.insert(0, {module!r})
import muster_worker
folder, tag, rank = os.environ["TEST_DIR"], os.environ["NODE_TAG"], os.environ["RANK"]
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
         "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "ROLE_RANK", "ROLE_WORLD_SIZE")
def write(name, text):
    with open(f"{{folder}}/{{name}}.{{os.getpid()}}", "w") as file:
        file.write(text)
    os.rename(f"{{folder}}/{{name}}.{{os.getpid()}}", f"{{folder}}/{{name}}")
entry = {{name: os.environ[name] for name in names}}
entry.update(node=tag, generation=muster_worker.generation())
muster_worker.ends_itself()
fd = os.open(folder + "/starts", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
os.write(fd, (json.dumps(entry) + "\\n").encode())
last, round = None, str(muster_worker.generation())
while True:
    notice = muster_worker.notice()
    if notice and notice != last:
        last = notice
        write(f"told.{{tag}}.{{rank}}.{{notice.follow}}", json.dumps({{**notice._asdict(), "left": notice.seconds_left()}}))
        if not os.path.exists(f"{{folder}}/silent.{{tag}}") or notice.follow == "restart":
            write(f"saved.{{tag}}.{{rank}}", round)
            muster_worker.saved()
            sys.exit(0)
    if os.path.exists(f"{{folder}}/agreed.{{tag}}"):
        muster_worker.saved()
        write(f"ended.{{tag}}", "")
        sys.exit(0)
    if os.path.exists(folder + "/finish"):
        sys.exit(0)
    time.sleep(0.02)
"""
SIGNALS = "--notice-signals=SIGUSR1@600"


class NoticeWorker:
    """For a test of nodes: its workers save and answer when they are told of a notice."""

    def setUp(self):
        super().setUp()
        self.worker.write_text(f"#!{sys.executable}\n" + WORKER.format(module=str(SOURCE / "worker_sdk/python")))

    def told(self, tag, rank, follow):
        text = wait_for(lambda: self.read(f"told.{tag}.{rank}.{follow}"), f"rank {rank} of {tag} to be told to {follow}")
        return json.loads(text)


class PreemptionNodes(NoticeWorker, NodesTest):
    def node(self, tag, nnodes, *extra, **more):
        return super().node(tag, nnodes, SIGNALS, "--exit-code=propagate", *extra, "--no-python", **more)

    def ranks_of(self, entries, tag):
        return [int(e["RANK"]) for e in entries if e["node"] == tag]

    def test_the_job_stops_when_all_ranks_have_saved(self):
        for tag in "ab":
            self.node(tag, 2, "--nproc-per-node=2", "--on-notice=stop")
        entries = self.round_of(4)
        doomed = self.ranks_of(entries, "b")
        began = time.monotonic()
        self.nodes["b"].send_signal(signal.SIGUSR1)
        self.ends(a=75, b=75)
        self.assertLess(time.monotonic() - began, 300)  # Long before the deadline.
        for entry in entries:
            told = self.told(entry["node"], entry["RANK"], "stop")
            self.assertEqual((told["reason"], told["doomed"], told["doomed_ranks"]),
                             ("SIGUSR1", entry["node"] == "b", [[doomed[0], doomed[-1]]]))
            self.assertTrue(400 < told["left"] <= 570, told)
            self.assertTrue((self.dir / f"saved.{entry['node']}.{entry['RANK']}").exists())
        for tag in "ab":
            self.assertIn("the job was stopped because of a notice", self.read(f"err.{tag}"))
        self.assert_nothing_left()

    def test_a_job_that_needs_all_its_nodes_stops(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.nodes["a"].send_signal(signal.SIGUSR1)  # a hosts the rendezvous.
        self.ends(a=75, b=75)
        self.assert_nothing_left()

    def test_an_elastic_job_goes_on_without_the_node(self):
        for tag in "abc":
            self.node(tag, "1:3", "--max-restarts=0", "--rdzv-conf=last_call_timeout=600")
        entries = self.round_of(3)
        [doomed] = self.ranks_of(entries, "c")
        self.nodes["c"].send_signal(signal.SIGUSR1)
        second = self.round_of(2, after=3, nodes="ab")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"0"})
        self.assertGreater(second[0]["generation"], entries[0]["generation"])
        for entry in entries:
            told = self.told(entry["node"], entry["RANK"], "shrink")
            self.assertEqual((told["doomed"], told["doomed_ranks"]), (entry["node"] == "c", [[doomed, doomed]]))
        self.nodes["c"].send_signal(signal.SIGTERM)  # It goes.
        self.nodes["c"].wait(PATIENCE_S)
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assert_nothing_left()

    def test_a_spare_steps_in_before_the_node_goes(self):
        for tag in "ab":
            self.node(tag, 2)
        self.node("c", 2, "--spare")
        self.round_of(2, nodes="ab")
        wait_for(lambda: "spare" in self.read("err.c"), "c to wait as a spare")
        self.nodes["b"].send_signal(signal.SIGUSR1)
        second = self.round_of(2, after=2, nodes="ac")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"0"})
        self.nodes["b"].send_signal(signal.SIGTERM)
        self.tell("finish")
        self.ends(a=0, c=0)

    def test_a_rank_that_does_not_answer_has_time_until_the_deadline(self):
        self.tell("silent.a")
        for tag in "ab":
            self.node(tag, 2, "--on-notice=stop", "--notice-signals=SIGUSR1@10", "--shutdown-timeout=2")
        self.round_of(2)
        began = time.monotonic()
        self.nodes["b"].send_signal(signal.SIGUSR1)
        self.ends(a=75, b=75)
        self.assertGreaterEqual(time.monotonic() - began, 8)
        self.assertIn("closing signal SIGTERM", self.read("err.a"))

    def test_a_node_that_is_lost_before_its_deadline(self):
        self.tell("silent.a")
        for tag in "abc":
            self.node(tag, "1:3", "--max-restarts=0", "--rdzv-conf=last_call_timeout=600,is_host=" +
                      str(tag == "a").lower())
        entries = self.round_of(3)
        self.nodes["c"].send_signal(signal.SIGUSR1)
        for entry in entries:
            self.told(entry["node"], entry["RANK"], "shrink")
        self.kill("c")
        self.round_of(2, after=3, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_signal_that_ends_a_node_is_named_to_the_others(self):
        for tag in "abc":
            self.node(tag, "1:3", "--rdzv-conf=last_call_timeout=600,is_host=" + str(tag == "a").lower())
        entries = self.round_of(3)
        # The last notice counts. A worker may see nothing of the first one, which has named the ranks, and these wait.
        self.tell("silent.a")
        self.tell("silent.b")
        self.nodes["c"].send_signal(signal.SIGTERM)
        self.round_of(2, after=3, nodes="ab")
        for tag in "ab":
            [rank] = self.ranks_of(entries, tag)
            told = self.told(tag, rank, "restart")
            self.assertRegex(told["reason"], r"is gone \(it left \(SIGTERM\)\)")
            self.assertFalse(told["doomed"])
            self.assertRegex(self.read(f"err.{tag}"), r"notice: rank \d goes \(SIGTERM\)")
        self.tell("finish")
        self.ends(a=0, b=0, c=128 + signal.SIGTERM)


# Writes the first deadline that it is told, and when it is signalled.
PATIENT = """
import json, os, signal, sys, time
sys.path.insert(0, {module!r})
import muster_worker
folder, tag = os.environ["TEST_DIR"], os.environ["NODE_TAG"]
def write(name, time):
    with open(f"{{folder}}/{{name}}.{{tag}}.new", "w") as file:
        file.write(str(time))
    os.rename(f"{{folder}}/{{name}}.{{tag}}.new", f"{{folder}}/{{name}}.{{tag}}")
def on_term(number, frame):
    write("signalled", time.monotonic())
    os._exit(0)
signal.signal(signal.SIGTERM, on_term)
muster_worker.available()
write("started", 0)
while muster_worker.notice() is None:
    time.sleep(0.02)
write("deadline", muster_worker.notice().deadline)
time.sleep(1000)
"""


class SlowNode(NodesTest):
    """The node b gets its host's messages late."""
    text = PATIENT

    def setUp(self):
        super().setUp()
        self.worker.write_text(f"#!{sys.executable}\n" + self.text.format(module=str(SOURCE / "worker_sdk/python")))
        self.cable = Cable(self.port)
        self.addCleanup(self.cable.close)

    def arguments(self, tag, nnodes, extra):
        words = super().arguments(tag, nnodes, extra)
        if tag == "b":
            words = [word.replace(f":{self.port}", f":{self.cable.port}") if "endpoint" in word else word for word in words]
        return words


class AnswersAhead(SlowNode):
    text = WORKER

    def test_a_rank_answers_before_its_node_has_the_notice(self):
        for tag in "ab":
            self.node(tag, 2, SIGNALS, "--on-notice=stop", "--exit-code=propagate",
                      f"--rdzv-conf=is_host={str(tag == 'a').lower()}", "--no-python")
        self.round_of(2)
        self.cable.hold()
        self.nodes["a"].send_signal(signal.SIGUSR1)
        wait_for(lambda: list(self.dir.glob("saved.a.*")), "a to save")
        self.tell("agreed.b")  # As an all_reduce would tell b's rank.
        wait_for(lambda: (self.dir / "ended.b").exists(), "b's rank to end")
        time.sleep(1)
        self.assertIsNone(self.nodes["b"].poll())
        self.cable.release()
        self.ends(a=75, b=75)
        self.assert_nothing_left()


class SlowMessages(SlowNode):
    """Workers keep the deadline that they were told."""

    def time_of(self, name, tag):
        return float(wait_for(lambda: self.read(f"{name}.{tag}"), f"{name} of {tag}"))

    def play(self, notified, policy):
        for tag in "ab":
            self.node(tag, 2, "--notice-signals=SIGUSR1@8", "--shutdown-timeout=2", f"--on-notice={policy}",
                      "--exit-code=propagate", f"--rdzv-conf=is_host={str(tag == 'a').lower()}", "--no-python")
        for tag in "ab":
            self.time_of("started", tag)
        self.cable.hold()
        self.nodes[notified].send_signal(signal.SIGUSR1)
        time.sleep(1.5)
        self.cable.release()
        return {tag: (self.time_of("deadline", tag), self.time_of("signalled", tag)) for tag in "ab"}

    def test_the_notice_of_another_node_is_late(self):
        for policy in ("stop", "shrink"):
            with self.subTest(policy):
                for path in self.dir.glob("*.[ab]"):
                    path.unlink()
                times = self.play("a", policy)
                self.assertGreater(times["b"][0], times["a"][0] + 1)  # The message was late.
                for deadline, signalled in times.values():
                    self.assertGreaterEqual(signalled, deadline)
                for process in self.nodes.values():
                    process.terminate()
                    process.wait(PATIENCE_S)

    def test_a_node_that_goes_knows_its_own_deadline(self):
        began = time.monotonic()
        times = self.play("b", "stop")
        self.assertLess(times["b"][0], times["a"][0] - 1)  # 6 s after its signal, although the host answers late.
        self.assertGreaterEqual(times["b"][0], began + 6)
        for deadline, signalled in times.values():
            self.assertGreaterEqual(signalled, deadline)
        self.ends(a=75, b=75)


if __name__ == "__main__":
    main()
