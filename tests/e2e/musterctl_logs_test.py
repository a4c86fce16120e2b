#!/usr/bin/env python3
"""Tests that `musterctl logs -f` shows all that a worker writes: over cuts of its log file, restarts and the end."""
import subprocess

from musterctl_test import MUSTERCTL, CtlTest
from nodes import WORKER
from support import PATIENCE_S, main, wait_for

# For each file "say.N" the worker writes a block of 9 KB. The end of a log that is cut at 64 KiB has 16 KiB.
BLOCKS = """
import os
blocks = 0
def talk():
    global blocks
    if os.path.exists(f"{os.environ['TEST_DIR']}/say.{blocks}"):
        for line in range(300):
            print(f"block {blocks} line {line:03d} of 300 lines", flush=line == 299)
        blocks += 1
"""


# Prints more than a piece of an answer has room for, and ends at once. Each of its attempts does so.
LAST_WORDS = """
import os, sys, time
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(f"attempt {attempt} begins", file=sys.stderr, flush=True)
while not os.path.exists(f"{os.environ['TEST_DIR']}/fail.{attempt}"):
    time.sleep(0.01)
sys.stderr.write("".join(f"attempt {attempt} frame {frame:05d}\\n" for frame in range(5000)))
sys.exit(f"attempt {attempt} has failed")
"""


class Follow(CtlTest):
    def follow(self, *options, rank=0):
        """Starts `musterctl logs -f`, whose output is read with self.read("followed")."""
        with open(self.dir / "followed", "wb") as out:
            follower = subprocess.Popen([MUSTERCTL, "logs", "job", str(rank), "-f", *options,
                                         f"--endpoint=127.0.0.1:{self.http_port}"], stdout=out)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        return follower

    def followed(self):
        return self.read("followed")

    def test_no_line_is_lost_when_the_log_is_cut(self):
        self.worker.write_text(BLOCKS + WORKER.replace("while True:", "while True:\n    talk()"))
        self.node("a", "1", "--redirects=1", f"--log-dir={self.dir}/logs", "--log-max-bytes=64K")
        self.round_of(1)
        self.follow()
        for block in range(12):
            (self.dir / f"say.{block}").touch()
            wait_for(lambda block=block: f"block {block} line 299 " in self.followed(), f"block {block}")
        self.assertEqual(self.followed(), "".join(f"block {block} line {line:03d} of 300 lines\n"
                                                  for block in range(12) for line in range(300)))
        [log] = self.dir.glob("logs/**/stdout.log")
        self.assertIn("bytes were removed here", log.read_text())

    def test_a_number_of_lines_from_the_end(self):
        lines = [f"line {number:05d} of many" for number in range(3000)]
        self.worker.write_text("for n in range(3000): print(f'line {n:05d} of many')\nprint('unfinished', end='', flush=True)\n"
                               + WORKER)
        self.node("a", "1", "--redirects=1", f"--log-dir={self.dir}/logs")
        self.round_of(1)
        def end(*words):
            return self.ctl("logs", "job", "0", *words)
        self.assertEqual(end("-n", "3"), "".join(line + "\n" for line in lines[-2:]) + "unfinished")
        self.assertEqual(end("--tail=2500"), "".join(line + "\n" for line in lines[-2499:]) + "unfinished")
        self.assertEqual(end("-n", "100000"), "".join(line + "\n" for line in lines) + "unfinished")
        self.assertEqual(end("-n0"), "")
        self.assertIn("'x' is no number of lines", self.ctl("logs", "job", "0", "-n", "x", expect=2))

    def test_the_last_words_of_each_attempt_are_shown(self):
        self.worker.write_text(LAST_WORDS)
        self.node("a", "1", "--redirects=3", f"--log-dir={self.dir}/logs", "--max-restarts=3")
        wait_for(lambda: "attempt 0 begins" in self.ctl_or_nothing("logs", "job", "0", "--stderr"), "the worker")
        follower = self.follow("--stderr", "--all")
        wait_for(lambda: "attempt 0 begins" in self.followed(), "the first line")
        (self.dir / "fail.1").touch()  # Two restarts come between two questions of musterctl.
        (self.dir / "fail.0").touch()
        wait_for(lambda: "attempt 2 begins" in self.followed(), "the third attempt")
        words = "".join(f"attempt {attempt} begins\n" +
                        "".join(f"attempt {attempt} frame {frame:05d}\n" for frame in range(5000)) +
                        f"attempt {attempt} has failed\n"
                        f"--- the workers were started again: attempt {attempt + 2} of this node ---\n"
                        for attempt in range(2))
        self.assertEqual(self.followed(), words + "attempt 2 begins\n")
        (self.dir / "fail.2").touch()
        (self.dir / "fail.3").touch()
        self.assertEqual(follower.wait(PATIENCE_S), 0)
        # The node is gone. The run keeps the report about its first failure, which was another one.
        self.assertIn("--- the last lines of rank 0 may be missing here: ", self.followed())

    def test_the_last_words_at_the_end_of_a_run_come_from_the_nodes_report(self):
        self.worker.write_text(LAST_WORDS)
        self.node("a", "1", "--redirects=3", f"--log-dir={self.dir}/logs")
        wait_for(lambda: "attempt 0 begins" in self.ctl_or_nothing("logs", "job", "0", "--stderr"), "the worker")
        follower = self.follow("--stderr")
        wait_for(lambda: self.followed() == "attempt 0 begins\n", "the first line")
        (self.dir / "fail.0").touch()
        self.assertEqual(follower.wait(PATIENCE_S), 0)
        self.assertRegex(self.followed(), r"attempt 0 frame 04999\nattempt 0 has failed\n\Z")

    def test_a_rank_that_goes_to_a_spare_is_followed_there(self):
        # Both nodes have started their workers once, so the number of the attempt is the same.
        self.worker.write_text("import os\nprint('rank 0 begins on node', os.environ['NODE_TAG'], flush=True)\n" + WORKER)
        options = ("--redirects=3", f"--log-dir={self.dir}/logs", "--max-restarts=3")
        self.node("a", "1", *options)
        self.round_of(1)
        self.node("s", "1", "--spare", *options)
        wait_for(lambda: "waiting for" in self.read("err.s"), "the spare to wait")
        follower = self.follow()
        wait_for(lambda: self.followed() == "rank 0 begins on node a\n", "the first lines")
        self.nodes["a"].kill()
        wait_for(lambda: "rank 0 begins on node s\n" in self.followed(), "the lines of the spare's worker")
        self.assertRegex(self.followed(), r"--- rank 0 is on node \S+ now; its last lines on node \S+ may be missing here")
        self.assertNotIn("started again", self.followed())
        self.tell("finish")
        self.assertEqual(follower.wait(PATIENCE_S), 0)
        self.assertIn("the last lines of rank 0 may be missing here", self.followed())

    def ctl_or_nothing(self, *words):
        done = subprocess.run([MUSTERCTL, *words, f"--endpoint=127.0.0.1:{self.http_port}"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        return done.stdout


if __name__ == "__main__":
    main()
