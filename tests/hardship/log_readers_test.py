#!/usr/bin/env python3
"""Other processes open a job's logs again and again, also for writing, while the job restarts: it is not disturbed."""
import os
import re
import subprocess
import sys

from hardship import HardshipTest
from support import main, wait_for

RESTARTS = 50
LINES = 2000
WORKER = """#!/bin/sh
seq 1 {lines}
seq 1 {lines} >&2
echo "end $TORCHELASTIC_RESTART_COUNT"
exit 1
"""
# Opens every existing log in several ways, and counts. A file may be removed meanwhile.
OPENER = """
import os, pathlib, sys
opened = 0
while True:
    for path in pathlib.Path("logs").rglob("*.log"):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_RDONLY | os.O_NONBLOCK):
            try:
                os.close(os.open(path, flags))
                opened += 1
            except OSError:
                pass
    with open(f"opened.{os.getpid()}.new", "w") as file:
        file.write(str(opened))
    os.rename(f"opened.{os.getpid()}.new", f"opened.{os.getpid()}")
"""


class LogReaders(HardshipTest):
    def setUp(self):
        super().setUp()
        (self.dir / "logs").mkdir()
        script = self.script("opener.py", OPENER)
        self.openers = [subprocess.Popen([sys.executable, "-S", script], cwd=self.dir, env={"PATH": os.environ["PATH"]})
                        for _ in range(2)]
        for opener in self.openers:
            self.addCleanup(opener.wait)
            self.addCleanup(opener.kill)
            wait_for(lambda opener=opener: self.read(f"opened.{opener.pid}"), "a process that opens logs")

    def restart(self, *args):
        process = self.start("--standalone", "--no-python", "--nproc-per-node=2", f"--max-restarts={RESTARTS}",
                             "--log-dir=logs", *args, self.script("worker.sh", WORKER.format(lines=LINES)))
        self.assertEqual(self.end_of(process, 300), 1)
        err = self.read("err")
        self.assertEqual(err.count("restarting all workers"), RESTARTS)
        self.assertNotIn("the agent", err)
        for opener in self.openers:
            self.assertIsNone(opener.poll())
            self.assertGreater(int(self.read(f"opened.{opener.pid}")), 100)

    def logs(self, name):
        """{attempt: [text by rank]}"""
        found = {}
        for path in sorted(self.dir.glob(f"logs/*/attempt_*/*/{name}")):
            found.setdefault(int(path.parts[-3].rpartition("_")[2]), []).append(path.read_text())
        return found

    def check_logs(self, logs):
        """The worker that failed first has written all, and the other one a part before it was stopped."""
        self.assertEqual(sorted(logs), list(range(RESTARTS + 1)))
        whole = "".join(f"{number}\n" for number in range(1, LINES + 1))
        for attempt, texts in logs.items():
            expected = f"{whole}end {attempt}\n"
            self.assertEqual(len(texts), 2)
            self.assertIn(expected, texts)
            for text in texts:
                self.assertTrue(expected.startswith(text), (attempt, text[-200:]))

    def test_redirected(self):
        self.restart("--redirects=3")
        self.check_logs(self.logs("stdout.log"))

    def test_teed_with_a_limit(self):
        """With --log-max-bytes muster writes the files itself, and cuts them."""
        self.restart("--tee=3", "--log-max-bytes=64K")
        self.check_logs(self.logs("stdout.log"))
        shown = re.findall(r"^\[default[01]\]:end (\d+)$", self.read("out"), re.M)
        self.assertEqual(sorted(set(map(int, shown))), list(range(RESTARTS + 1)))


if __name__ == "__main__":
    sys.exit(main())
