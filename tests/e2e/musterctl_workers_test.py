#!/usr/bin/env python3
"""Tests what musterctl shows of the workers of real jobs: states, steps, logs and stacks."""
import json
import os
import pathlib
import pty
import signal
import subprocess

from musterctl_test import MUSTERCTL, CtlTest
from nodes import WORKER
from support import PATIENCE_S, main, wait_for

# Prints on stdout and stderr what it does, and reports a step. Then it continues as the WORKER of
# nodes.py.
TALKER = """
import json, os, socket, sys
rank = int(os.environ["RANK"])
print("rank", rank, "begins attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
print("a warning of rank", rank, file=sys.stderr, flush=True)
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
for line in ({"type": "hello", "local_rank": int(os.environ["LOCAL_RANK"])}, {"type": "progress", "step": 40 + rank}):
    channel.sendall((json.dumps(line) + "\\n").encode())
def grow():
    try:
        os.rename(os.environ["TEST_DIR"] + "/grow", os.environ["TEST_DIR"] + "/grown")
    except FileNotFoundError:  # There is no such file, or the other worker has taken it.
        return
    print("it has grown", flush=True)
"""


class Workers(CtlTest):
    """What nodes report about their workers."""

    def setUp(self):
        super().setUp()
        self.worker.write_text(TALKER + WORKER.replace("while True:", "while True:\n    grow()"))

    def talkers(self, *extra):
        for tag in "ab":
            self.node(tag, "2", "--max-restarts=3", "--tee=3", f"--log-dir={self.dir / ('logs.' + tag)}",
                      *extra)
        entries = self.round_of(2)
        self.run_is("running")
        return {entry["node"]: int(entry["RANK"]) for entry in entries}

    def reports(self):
        nodes = json.loads(self.ctl("nodes", "job", "--json"))["nodes"]
        return {node["first_rank"]: node["report"] for node in nodes if node["report"] is not None}

    def test_states_steps_and_the_words_of_a_failed_worker(self):
        ranks = self.talkers()
        seen = wait_for(lambda: (found := self.reports()) and len(found) == 2 and
                        all((report["workers"][0]["step"], report["workers"][0]["state"]) == (40 + rank, "running")
                            for rank, report in found.items()) and found,
                        "both workers to run and their steps")
        for rank, report in seen.items():
            worker = report["workers"][0]
            self.assertEqual((worker["rank"], report["starts"]), (rank, 1))
            self.assertIn(str(self.worker), pathlib.Path(f"/proc/{worker['pid']}/cmdline").read_text())
        self.assertRegex(self.ctl("nodes", "job"), r"\n0 .* 1 running +1 +40 +- ")
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        lost = wait_for(lambda: "its last lines on stderr" in self.ctl("why", "job") and self.ctl("why", "job"),
                        "the failed worker's words")
        self.assertRegex(lost, rf"rank {ranks['a']} \(local rank 0, pid \d+\) exited with 3\n")
        self.assertIn(f"    a warning of rank {ranks['a']}\n", lost)
        self.assertIn("a warning", self.ctl("status", "job"))
        wait_for(lambda: {report["starts"] for report in self.reports().values()} == {2}, "the second start")

    def test_logs(self):
        self.talkers()
        for rank in (0, 1):
            wait_for(lambda rank=rank: f"rank {rank} begins attempt 0\n" in self.ctl("logs", "job", str(rank)),
                     "the log of the rank")
            wait_for(lambda rank=rank: self.ctl("logs", "job", str(rank), "--stderr", "--all") ==
                     f"a warning of rank {rank}\n", "the log of its stderr")
        self.assertIn("has rank 2", self.ctl("logs", "job", "2", expect=1))
        self.assertIn("no run 'other'", self.ctl("logs", "other", "0", expect=4))
        with open(self.dir / "followed", "wb") as out:
            follower = subprocess.Popen([MUSTERCTL, "logs", "job", "0", "-f",
                                         f"--endpoint=127.0.0.1:{self.http_port}"], stdout=out)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        wait_for(lambda: "begins attempt 0" in self.read("followed"), "the first lines")
        # One of the two ranks takes the file and prints. The other rank's log stays the same.
        for _ in range(2):
            (self.dir / "grow").touch()
            wait_for(lambda: not (self.dir / "grow").exists(), "a worker to write more")
        wait_for(lambda: any("it has grown" in self.ctl("logs", "job", str(rank)) for rank in (0, 1)), "the new line")
        self.tell("exit.b", "3")
        self.round_of(2, after=2)
        wait_for(lambda: "started again: attempt 2 of this node" in self.read("followed") and
                 "begins attempt 1" in self.read("followed"), "the next attempt's log")
        self.assertIsNone(follower.poll())
        self.tell("finish")
        self.assertEqual(follower.wait(PATIENCE_S), 0)

    def on_terminal(self, *words):
        """Returns the bytes that a terminal gets."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        process = subprocess.Popen([MUSTERCTL, *words, f"--endpoint=127.0.0.1:{self.http_port}"], stdout=slave)
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 4096):
                shown += piece
        except OSError:  # EIO: the other end is closed.
            pass
        self.assertEqual(process.wait(PATIENCE_S), 0)
        return shown.replace(b"\r\n", b"\n")  # The terminal's own carriage returns.

    def test_a_worker_does_not_steer_the_terminal_of_who_reads_its_log(self):
        steering = b"\x1b]0;title\x07\x1b[2Jred \xc2\x9b31m 10%\r20%\n"
        self.worker.write_text(f"import sys\nsys.stdout.buffer.write({steering!r})\nsys.stdout.flush()\n" + WORKER)
        self.node("a", "1", "--tee=3", f"--log-dir={self.dir}/logs")
        self.round_of(1)
        self.run_is("running")
        wait_for(lambda: "red" in self.ctl("logs", "job", "0"), "the log")
        shown = self.on_terminal("logs", "job", "0")
        self.assertIn(b"\\x1b]0;title\\x07\\x1b[2Jred \\xc2\\x9b31m 10%\n20%\n", shown)
        self.assertNotRegex(shown, rb"[\x00-\x08\x0b-\x1f\x7f]")
        done = subprocess.run([MUSTERCTL, "logs", "job", "0", f"--endpoint=127.0.0.1:{self.http_port}"], check=True,
                              capture_output=True)
        self.assertIn(steering, done.stdout)  # A pipe gets every byte unchanged.

    def test_the_log_of_a_rank_is_for_operators_only(self):
        self.talkers()
        for headers in ({}, {"X-Muster-Action": "0"}):
            status, _, text = self.ask("/api/v1/runs/job/ranks/0/log", headers=headers)
            self.assertEqual(status, 403, text)
            self.assertIn("X-Muster-Action", text)

    def test_an_error_says_that_there_is_no_log_file(self):
        self.node("a", "1")
        self.round_of(1)
        self.run_is("running")
        self.assertIn("--tee=3", self.ctl("logs", "job", "0", expect=1))

    def test_stacks(self):
        self.talkers()
        # A worker may write before its agent has noticed that it runs.
        wait_for(lambda: [report["workers"][0]["state"] for report in self.reports().values()] == ["running"] * 2,
                 "both agents' words that their worker runs")
        one = self.ctl("stacks", "job", "1")
        self.assertIn("musterctl has asked", one)
        every = self.ctl("stacks", "job")
        self.assertRegex(every, r"(?s)=== rank 0\n.*=== rank 1\n")
        self.assertEqual(every.count("musterctl has asked"), 2)
        self.assertIn("has rank 7", self.ctl("stacks", "job", "7", expect=1))

    def test_a_reader_of_a_log_that_stops_reading_delays_no_restart(self):
        self.talkers()
        with open(self.dir / "unread", "wb") as out:
            reader = subprocess.Popen([MUSTERCTL, "logs", "job", "0", "-f",
                                       f"--endpoint=127.0.0.1:{self.http_port}"], stdout=out)
        self.addCleanup(reader.wait)
        self.addCleanup(reader.kill)
        self.addCleanup(reader.send_signal, signal.SIGCONT)
        wait_for(lambda: self.read("unread"), "the first lines")
        reader.send_signal(signal.SIGSTOP)
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        self.run_is("running")


if __name__ == "__main__":
    main()
