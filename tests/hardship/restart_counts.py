"""Counts what a job's processes use at two of its many attempts: restarts use up nothing."""
import os
import time

from hardship import descriptors, memory_kb, names_below, processes_of_muster
from support import MusterTest, is_sanitized, wait_for

RESTARTS = int(os.environ.get("MUSTER_RESTARTS", "300"))
WARM_UP = 20


class RestartCounts(MusterTest):
    def count(self, process, attempt, workers):
        """Waits until that attempt's workers run, and counts what muster has."""
        wait_for(lambda: len(self.read(f"ready.{attempt}").split()) == workers
                 or process.poll() is not None, f"attempt {attempt}", bound_s=600)
        self.assertIsNone(process.poll(), self.read("err")[-2000:])
        pids = self.counted(process.pid)
        counts = {}
        for name, pid in pids.items():
            counts[f"descriptors of the {name}"] = self.settled(lambda: len(descriptors(pid)))
            counts[f"memory of the {name} in kB"] = memory_kb(pid)
        wait_for(lambda: self.processes_that_stay() == len(pids) + workers, "muster's processes, and workers")
        counts["names"] = len(names_below(self.memory, self.dir / "tmp"))
        (self.dir / f"go.{attempt}").touch()
        return counts

    @staticmethod
    def counted(front):
        """{name: pid}"""
        return processes_of_muster(front)

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

    def restart(self, *command, workers=2, restarts=RESTARTS, names_of_an_attempt=0, **popen):
        """The workers of the attempts WARM_UP and `restarts` write ready.N, wait for go.N, and fail as the others do."""
        process = self.start(f"--nproc-per-node={workers}", f"--max-restarts={restarts}", *command, **popen)
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
