#!/usr/bin/env python3
"""Tests that `musterctl logs -f` shows all that a worker writes: over cuts of its log file, restarts and the end."""
import subprocess

from musterctl_test import MUSTERCTL, CtlTest
from nodes import WORKER
from support import main, wait_for

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


if __name__ == "__main__":
    main()
