#!/usr/bin/env python3
"""Restarts use up no resources: descriptors, memory, processes, names in the file system.

MUSTER_RESTARTS=2000 is the long form; docs/testing.md."""
import os
import resource
import time

from hardship import descriptors, memory_kb, names_below, processes_of_muster
from support import MusterTest, is_sanitized, main, wait_for

RESTARTS = int(os.environ.get("MUSTER_RESTARTS", "300"))
WARM_UP = 20

# Fails at once, but in two of its attempts waits until the test has counted.
SCRIPT = """#!/bin/sh
echo "attempt $TORCHELASTIC_RESTART_COUNT"
echo "error $TORCHELASTIC_RESTART_COUNT" >&2
case $TORCHELASTIC_RESTART_COUNT in
  {first}|{last})
    echo $LOCAL_RANK >> ready.$TORCHELASTIC_RESTART_COUNT
    while [ ! -e go.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.05; done
esac
exit 1
"""


class Restarts(MusterTest):
    def count(self, process, attempt, workers):
        """Waits until that attempt's workers run, and counts what muster has."""
        wait_for(lambda: len(self.read(f"ready.{attempt}").split()) == workers
                 or process.poll() is not None, f"attempt {attempt}", bound_s=600)
        self.assertIsNone(process.poll(), self.read("err")[-2000:])
        pids = processes_of_muster(process.pid)
        counts = {}
        for name, pid in pids.items():
            counts[f"descriptors of the {name}"] = self.settled(lambda: len(descriptors(pid)))
            counts[f"memory of the {name} in kB"] = memory_kb(pid)
        wait_for(lambda: self.processes_that_stay() == 3 + workers, "muster's three, and workers")
        counts["names"] = len(names_below(self.memory, self.dir / "tmp"))
        (self.dir / f"go.{attempt}").touch()
        return counts

    def settled(self, count):
        """Returns the lowest counts within a second, because an attempt uses more during its start."""
        until = time.monotonic() + 1
        least = count()
        while time.monotonic() < until:
            time.sleep(0.05)
            least = min(least, count())
        return least

    def processes_that_stay(self):
        return sum("sleep" not in words for words in self.token.processes().values())

    def restart(self, *args, workers=2, restarts=RESTARTS, names_of_an_attempt=0, **popen):
        script = self.script("fail.sh", SCRIPT.format(first=WARM_UP, last=restarts))
        process = self.start("--no-python", f"--nproc-per-node={workers}",
                             f"--max-restarts={restarts}", *args, script, **popen)
        before = self.count(process, WARM_UP, workers)
        after = self.count(process, restarts, workers)
        self.assertEqual(process.wait(600), 1, self.read("err")[-2000:])
        self.assertIn(f"attempt {restarts}", self.read("out"))
        for name, count in after.items():
            # The log thread closes an attempt's files while the next one runs already.
            slack = 4 * workers if name == "descriptors of the agent" else 0
            if name.startswith("memory"):
                slack = 1_000_000 if is_sanitized() else 1500  # Quarantine; blocks of the heap.
            if name == "names":
                slack = names_of_an_attempt * (restarts - WARM_UP)
            self.assertLessEqual(count, before[name] + slack, f"{name}: {before} {after}")

    def test_without_logs(self):
        self.restart()

    def test_with_tee(self):
        # The logs are meant to stay: attempt_<n>, and a directory and two files for each worker.
        self.restart("--tee=3", names_of_an_attempt=1 + 2 * 3)

    def test_with_logs_through_muster(self):
        self.restart("--redirects=3", "--tee=3", "--log-on-full=drop",
                     names_of_an_attempt=1 + 2 * 3, restarts=RESTARTS // 3)

    def test_with_a_rendezvous(self):
        self.restart("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", restarts=RESTARTS // 3)

    def test_with_few_descriptors(self):
        self.restart("--tee=3", workers=4, restarts=max(60, RESTARTS // 5),
                     names_of_an_attempt=1 + 4 * 3,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))


if __name__ == "__main__":
    main()
