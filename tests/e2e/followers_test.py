#!/usr/bin/env python3
"""Tests what follows a run while musterd is started again: the stream of events, `musterctl logs -f` and --watch."""
import subprocess
import time

from http_test import Stream
from musterctl_test import MUSTERCTL, CtlTest
from nodes import WORKER
from support import main, wait_for

# Prints a line for each file "say.N".
TALK = """
import os
said = 0
def talk():
    global said
    if os.path.exists(f"{os.environ['TEST_DIR']}/say.{said}"):
        print(f"word {said}", flush=True)
        said += 1
"""


class Followers(CtlTest):
    def restart_musterd(self, away=0.0):
        self.stop_musterd()
        time.sleep(away)
        self.http_options = [f"--http=127.0.0.1:{self.http_port}"]
        self.start_musterd()

    def resumed(self):
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd"), "the nodes to be back")

    def events(self, last, count):
        """The numbers and kinds of the next events after `last`."""
        stream = Stream(self, "/api/v1/runs/job/events", {"Last-Event-ID": str(last)})
        self.assertEqual(stream.status, 200)
        found = []
        while len(found) < count:
            event, number, data = stream.next()
            if event == "event":
                self.assertEqual(number, data["number"])
                found.append((number, data["kind"]))
        return found

    def run_events(self):
        return [(event["number"], event["kind"]) for event in self.get("/api/v1/runs/job")["events"]]

    def test_a_reader_of_events_misses_none_however_many_came_before_and_after(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=3")
        self.round_of(2)
        self.run_is("running")
        before = self.run_events()
        # The reader has seen the first event only, so a number alone would be passed soon.
        self.restart_musterd()
        self.resumed()
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        self.run_is("running")
        after = self.run_events()
        self.assertGreater(len(after), 2)
        self.assertGreater(after[0][0], before[-1][0])
        for seen in (before[0][0], before[-1][0]):
            self.assertEqual(self.events(seen, len(after)), after)
        self.assertEqual(self.events(after[0][0], len(after) - 1), after[1:])
        # Newer than any event, as after a restart with a clock that is behind.
        self.assertEqual(self.events(after[-1][0] + 10 ** 9, len(after)), after)
        self.tell("finish")
        self.ends(a=0, b=0)

    def follower(self, *words):
        with open(self.dir / "followed", "wb") as out:
            follower = subprocess.Popen([MUSTERCTL, *words, f"--endpoint=127.0.0.1:{self.http_port}"], stdout=out)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        return follower

    def test_watch_goes_on(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=3")
        self.round_of(2)
        watch = self.follower("status", "job", "--watch")
        wait_for(lambda: "job  running" in self.read("followed"), "the first look")
        self.restart_musterd(away=1.5)
        self.resumed()
        self.assertIsNone(watch.poll())
        self.tell("exit.b", "5")
        self.round_of(2, after=2)
        wait_for(lambda: "workers failed" in self.read("followed"), "the failure")
        self.assertIsNone(watch.poll())

    def test_a_followed_log_goes_on_without_a_gap(self):
        self.worker.write_text(TALK + WORKER.replace("while True:", "while True:\n    talk()"))
        for tag in "ab":
            self.node(tag, 2, "--redirects=1", f"--log-dir={self.dir}/logs.{tag}")
        self.round_of(2)
        follower = self.follower("logs", "job", "1", "-f")
        for number in range(3):
            (self.dir / f"say.{number}").touch()
            if number == 1:
                self.restart_musterd(away=1.0)
            words = "".join(f"word {i}\n" for i in range(number + 1))
            wait_for(lambda words=words: self.read("followed") == words, words)
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assertEqual(follower.wait(30), 0)


if __name__ == "__main__":
    main()
