#!/usr/bin/env python3
"""Tests the notice of an operator with a real musterd and real agents: all workers are told and answer over the worker
channel, the round ends when all have answered or at the deadline, and a musterd that is killed meanwhile knows both."""
import json
import time

from http_test import HttpTest
from musterctl_test import CtlTest
from support import main, wait_for

# Writes the notices that it gets to the file "notices", and answers when the file "answer.TAG" is there.
WORKER = """
import json, os, selectors, socket, sys, time
folder, tag = os.environ["TEST_DIR"], os.environ["NODE_TAG"]
def record(name, entry):
    fd = os.open(folder + "/" + name, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(fd, (json.dumps(entry) + "\\n").encode())
    os.close(fd)
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
channel.sendall(json.dumps({"type": "hello", "local_rank": int(os.environ["LOCAL_RANK"])}).encode() + b"\\n")
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
         "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "ROLE_RANK", "ROLE_WORLD_SIZE")
record("starts", {"node": tag, **{name: os.environ[name] for name in names}})
channel.settimeout(0.02)
pending, told, answered = b"", False, False
while True:
    try:
        part = channel.recv(4096)
        if not part:
            break
        pending += part
    except socket.timeout:
        pass
    *lines, pending = pending.split(b"\\n")
    for line in map(json.loads, lines):
        if line.get("type") == "preempt" and "doomed_ranks" in line:
            record("notices", {"node": tag, "world": os.environ["WORLD_SIZE"], **line})
            told = True
    if told and not answered and os.path.exists(f"{folder}/answer.{tag}"):
        channel.sendall(b'{"type":"saved"}\\n')
        answered = True
while True:
    time.sleep(1)
"""


class Notices(CtlTest):
    def start_musterd(self):
        self.http_options = [*HttpTest.http_options, f"--state-dir={self.dir / 'state'}"]
        super().start_musterd()

    def setUp(self):
        super().setUp()
        self.worker = self.script("answering.py", WORKER)

    def three(self, nnodes, *options):
        for tag in "abc":
            self.node(tag, nnodes, "--max-restarts=1", *options)
        ranks = {entry["node"]: int(entry["RANK"]) for entry in self.round_of(3)}
        self.run_is("running")
        return ranks

    def name_of(self, rank):
        for node in json.loads(self.ctl("nodes", "job", "--json"))["nodes"]:
            if node["group_rank"] == rank:
                return node["name"]
        return self.fail(f"no node has the rank {rank}")

    def told(self, count=3):
        def lines():
            entries = [json.loads(line) for line in self.read("notices").rpartition("\n")[0].splitlines()]
            return entries if len(entries) >= count else None
        return {entry["node"]: entry for entry in wait_for(lines, f"{count} notices")}

    def notice(self):
        return json.loads(self.ctl("status", "job", "--json"))["notice"]

    def test_all_answer_and_the_job_goes_on_without_the_node(self):
        ranks = self.three("2:3")
        name = self.name_of(ranks["c"])
        said = self.ctl("drain", "job", name, "--notice=600", "--reason=kernel update")
        self.assertIn(f"job: {name}: drained, with a notice; the nodes of its round are told now", said)
        self.assertIn("the round restarts without it (--on-notice=auto)", said)
        for tag, line in self.told().items():
            self.assertEqual(line["reason"], "kernel update")
            self.assertEqual(line["doomed"], tag == "c")
            self.assertEqual(line["doomed_ranks"], [[ranks["c"], ranks["c"]]])
            self.assertEqual(line["follow"], "shrink")
        for tag in "ca":
            self.tell(f"answer.{tag}")
        wait_for(lambda: (self.notice() or {}).get("saved_total") == 2, "two answers")
        silent, = self.notice()["silent"]
        self.assertEqual(silent, self.name_of(ranks["b"]))
        why = self.ctl("why", "job")
        self.assertIn("notice: kernel update; its deadline is in 9 min", why)
        self.assertIn(f"  will go: {name}\n", why)
        self.assertIn(f"  have not saved yet: {silent}\n", why)
        nodes = self.ctl("nodes", "job")
        self.assertRegex(nodes, rf" working, drained, goes in 9 min [^\n]*, has saved .* {name}\n")
        self.assertRegex(nodes, rf" working, has not saved yet .* {silent}\n")
        self.assertEqual(len(self.starts()), 3)
        self.tell("answer.b")
        entries = self.round_of(2, after=3, nodes="ab")
        self.assertEqual({entry["TORCHELASTIC_RESTART_COUNT"] for entry in entries}, {"0"})
        log = self.read("err.musterd")
        self.assertIn(f"notice_given run=job node={name} rank={ranks['c']} seconds=600 by=operator "
                      'reason="kernel update"', log)
        self.assertEqual(log.count("node_saved run=job "), 3)
        self.assertIn("round_restarts run=job round=0 cause=notice who=", log)

    def test_without_answers_the_round_ends_at_the_deadline(self):
        ranks = self.three("2:3")
        self.tell("answer.a")
        began = time.monotonic()
        self.ctl("drain", "job", self.name_of(ranks["c"]), "--notice=3")
        self.round_of(2, after=3, nodes="ab")
        self.assertGreaterEqual(time.monotonic() - began, 3)
        self.assertIn("the deadline is here, and 2 nodes have not answered", self.read("err.musterd"))

    def test_a_job_that_cannot_go_on_stops(self):
        ranks = self.three("3", "--exit-code=propagate")
        said = self.ctl("drain", "job", self.name_of(ranks["b"]), "--notice=600")
        self.assertIn("the job is stopped, because too few other nodes are there", said)
        for line in self.told().values():
            self.assertEqual(line["follow"], "stop")
        for tag in "abc":
            self.tell(f"answer.{tag}")
        self.ends(a=75, b=75, c=75)
        self.run_is("preempted")
        self.assertRegex(self.ctl("why", "job"),
                         r"^job: nothing has failed: node .* will go \(drained by an operator\), and the job was stopped")

    def test_a_musterd_that_was_killed_knows_the_deadline(self):
        ranks = self.three("3")
        began = time.monotonic()
        self.ctl("drain", "job", self.name_of(ranks["b"]), "--notice=6")
        self.told()
        deadline = self.notice()["deadline"]
        self.musterd.kill()
        self.musterd.wait()
        self.start_musterd()
        self.assertEqual(wait_for(self.notice, "the notice")["deadline"], deadline)
        self.run_is("preempted")
        self.assertGreaterEqual(time.monotonic() - began, 6)
        self.ends(a=1, b=1, c=1)

    def test_a_notice_that_is_taken_back(self):
        ranks = self.three("2:3")
        name = self.name_of(ranks["c"])
        self.ctl("drain", "job", name, "--notice=600")
        self.told()
        self.assertIn("its notice is taken back", self.ctl("allow", "job", name))
        self.round_of(3, after=3)
        self.assertIsNone(self.notice())

    def test_wrong_notices(self):
        for words in (["--notice=0"], ["--notice=-3"], ["--notice=1.5"], ["--notice=soon"], ["--reason=x"]):
            self.ctl("drain", "job", "node9", *words, expect=2)
        self.assertIn("1 to 2592000 seconds", self.ctl("drain", "job", "node9", "--notice=2592001", expect=1))
        self.assertIn("at most 256 characters", self.ctl("drain", "job", "node9", "--notice=1", "--reason=" + 257 * "x", expect=1))


if __name__ == "__main__":
    main()
