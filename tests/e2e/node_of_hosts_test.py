#!/usr/bin/env python3
"""Tests muster on a host of `muster --hosts`, with this test in place of ssh: what it does when nothing more comes."""
import json
import os
import signal
import subprocess
import time

from support import MUSTER, PATIENCE_S, MusterTest, main, wait_for

# Says that it runs, and runs on; SIGTERM ends it in order.
WAIT = """
import os, signal, sys, time
def end(*_):
    os.write(1, b"saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
os.write(1, b"at work\\n")
while True:
    time.sleep(60)
"""


class NodeOfHosts(MusterTest):
    def begin(self, max_silence_s):
        self.script("wait.py", WAIT)
        self.out = self.dir / "out"
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen([MUSTER, "--node-of-hosts"], stdin=subprocess.PIPE, stdout=out, stderr=out,
                                            env=self.environment())
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.addCleanup(self.process.stdin.close)
        self.say(json.dumps({"folder": str(self.dir), "environment": {}, "max_silence_s": max_silence_s,
                             "arguments": [os.path.basename(MUSTER), "--standalone", "wait.py"]}))

    def say(self, line=""):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def text(self):
        return self.out.read_text()

    def at_work(self):
        wait_for(lambda: "at work" in self.text() or self.process.poll() is not None, "the worker")
        self.assertIsNone(self.process.poll(), self.text())

    def ended(self, why):
        self.process.wait(PATIENCE_S)
        self.assertIn(why, self.text())
        self.assert_nothing_left()

    def ended_in_order(self, why):
        self.ended(why)
        self.assertIn("saved", self.text())

    def test_a_muster_of_which_nothing_is_heard_has_vanished(self):
        self.begin(max_silence_s=1)
        # The connection stays open, as that of a machine without power.
        self.ended("nothing was heard for 1 s of the muster that started this one: ending the job here")

    def test_lines_that_say_nothing_keep_it(self):
        limit_s = 4
        for _ in range(10):
            self.begin(limit_s)
            self.at_work()
            begun = said = time.monotonic()
            longest = 0
            while time.monotonic() - begun < 2 * limit_s and self.process.poll() is None:
                self.say()
                time.sleep(0.1)
                longest, said = max(longest, time.monotonic() - said), time.monotonic()
            if longest < limit_s / 2:
                break
            # This test itself was held up for so long that muster had to end the job.
            self.process.kill()
            self.process.wait()
        else:
            self.skipTest("this machine holds the test up")
        self.assertIsNone(self.process.poll(), self.text())
        self.say(f"signal {signal.SIGTERM.value}")
        self.ended_in_order("death signal (SIGTERM)")

    def test_a_connection_that_ends_ends_the_job(self):
        self.begin(max_silence_s=300)
        self.at_work()
        self.process.stdin.close()
        self.ended_in_order("the connection to the muster that started this one has ended: ending the job here")


if __name__ == "__main__":
    main()
