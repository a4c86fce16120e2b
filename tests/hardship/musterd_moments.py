#!/usr/bin/env python3
"""musterd is killed at seeded moments of a running job of two nodes, whose workers fail now and then.

    musterd_moments.py [--moments 6] [--seed 1] [--state sqlite|etcd|none] [--failing-writes 0]

No worker is restarted except after a failure of a worker, every restart is counted once, generations only grow, and
the state's file is whole after every kill. With --state etcd, musterd keeps its state in a real etcd of three members,
one of which is sometimes killed, too, and every record is readable after every kill. What nobody could record (--state
none, --failing-writes) may be lost with musterd while a round is being formed: then the nodes may meet once more. How
often is said at the end. MUSTER_BIN and MUSTERD_BIN name the programs.
With --failing-writes N, N in 100,000 of musterd's writes to its file fail (FAILING_WRITES_LIB names the library that is preloaded)."""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import sys
import time
import unittest

for folder in ("e2e", "etcd"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))
from etcd_cluster import EtcdCluster, have_etcd
from musterd import MUSTERD
from hardship import skip_all
from mixed import MusterdTest
from support import MUSTER, PATIENCE_S, wait_for

# A start that finds the disk failing ends with an error; a service manager starts it again.
MOST_STARTS = 50
LEASE_S = 2  # Of the leader in etcd: a musterd that is started again waits for the end of its last lease.


class Moments(MusterdTest):
    settings = None  # The command line's.

    def setUp(self):
        # Whether everything that a node was told is on disk.
        self.is_recorded = self.settings.state != "none" and not self.settings.failing_writes
        if self.settings.state == "etcd":
            self.etcd = EtcdCluster(3)
            self.addCleanup(self.etcd.close)
        self.known_starts = []
        self.read_up_to = 0
        self.failed_starts = 0
        self.musterd_options = ()
        super().setUp()
        text = self.worker.read_text()
        self.assertIn('"ROLE_RANK"', text)
        text = text.replace('"ROLE_RANK"', '"ROLE_RANK", "MUSTER_GENERATION"', 1)
        # A worker that fails records its generation: the round after the failure has a newer one.
        text = text.replace("def end(code):\n", """def end(code):
    if code:
        fails = os.open(folder + "/fails", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(fails, (entry["MUSTER_GENERATION"] + "\\n").encode())
""", 1)
        self.worker.write_text(text)

    def starts(self):
        """Overrides NodesTest.starts(): reads each line only once, because there are thousands."""
        with open(self.dir / "starts", "a+b") as file:
            file.seek(self.read_up_to)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self.known_starts += [json.loads(line) for line in whole.splitlines()]
            self.read_up_to += len(whole) + 1
        return self.known_starts

    def start_musterd(self):
        self.state = self.dir / "state"
        if self.settings.state == "sqlite":
            self.musterd_options = (f"--state-dir={self.state}", "--history=2")
        if self.settings.state == "etcd":
            members = ",".join(f"127.0.0.1:{port}" for port in self.etcd.clients)
            self.musterd_options = (f"--state=etcd://{members}/moments", "--history=2",
                                    f"--leader-lease-seconds={LEASE_S}")
        for _ in range(MOST_STARTS):
            try:
                return super().start_musterd()
            except AssertionError:
                # Only a failing disk may prevent the start of musterd, never the content of its file.
                said = self.read(f"err.musterd{self.musterds}")
                if not self.settings.failing_writes or self.musterd.poll() is None:
                    raise
                self.assertNotRegex(said, "damaged|no SQLite database|another program|cannot be read", said)
                self.failed_starts += 1
        self.fail(f"musterd did not start {MOST_STARTS} times in a row\n{self.all_output()}")

    def environment(self, **more):
        environment = super().environment(**more)
        # The agents get these variables, too, but they write no file of that name.
        if self.settings.failing_writes:
            environment |= {"LD_PRELOAD": os.environ["FAILING_WRITES_LIB"],
                            "FAILING_WRITES": str(self.settings.failing_writes),
                            "FAILING_WRITES_PATH": "musterd.db",
                            "FAILING_WRITES_SEED": str(self.settings.seed * 1000 + getattr(self, "musterds", 0))}
        return environment

    def state_is_whole(self):
        """Of a copy, as a reader would change the file."""
        if self.settings.state == "etcd":
            records = self.etcd.keys("/moments/run/") | self.etcd.keys("/moments/member/")
            self.assertEqual(len(records), 3, records)  # The run, and its two nodes.
            for value in records.values():
                json.loads(value)
        if self.settings.state != "sqlite":
            return
        copy = self.dir / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for path in self.state.glob("musterd.db*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        with sqlite3.connect(copy / "musterd.db") as database:
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            for (record,) in database.execute("SELECT record FROM run").fetchall():
                json.loads(record)
        database.close()

    def check_count(self, told):
        """Checks the number of restarts that the workers of the new round were told."""
        self.assertEqual(told, {self.count + 1}, self.all_output())
        self.count += 1

    def one_moment(self, chance):
        """Kills musterd once, with or without a failure just before."""
        fails = chance.random() < 0.5
        time.sleep(chance.uniform(0, 0.2))  # Anywhere in what the last restart has begun.
        if fails:
            self.tell(f"exit.{chance.choice('ab')}", "7")
            self.failures += 1
            time.sleep(chance.expovariate(50))
        self.stop_musterd(signal.SIGKILL)
        member = self.settings.state == "etcd" and chance.random() < 0.25 and chance.randrange(3)
        if member is not False:
            self.etcd.kill(member)
            self.etcd.start(member)
            self.etcd.wait_healthy()
        self.state_is_whole()
        time.sleep(chance.choice([0, chance.uniform(0, 1)]))
        self.start_musterd()
        if fails:
            again = self.newest_round(after=self.failed_generation())
            self.check_count({int(e["TORCHELASTIC_RESTART_COUNT"]) for e in again})
            generation = int(again[0]["MUSTER_GENERATION"])
            self.assertGreater(generation, self.generation)
            self.generation = generation
        further = len(self.starts()) - 2 * (1 + self.failures)
        if self.is_recorded or (self.settings.state == "none" and not fails):
            self.assertEqual(further, self.further, self.all_output())
        self.assertGreaterEqual(further, self.further, self.all_output())
        self.further = further

    def failed_generation(self):
        """Waits until the worker that was told to fail has failed. Returns its generation."""
        wait_for(lambda: len(self.read("fails").split()) == self.failures, "a worker to fail")
        return int(self.read("fails").split()[-1])

    def newest_round(self, after):
        """Waits for a generation above `after` of which both workers have started. Returns these workers."""
        def complete():
            newest = max((int(e["MUSTER_GENERATION"]) for e in self.starts()), default=0)
            workers = [e for e in self.starts() if int(e["MUSTER_GENERATION"]) == newest]
            return newest > after and len(workers) == 2 and workers
        try:
            workers = wait_for(complete, f"two workers of one generation after {after}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None
        self.assertEqual({e["RANK"] for e in workers}, {"0", "1"})
        self.check_round(sorted(workers, key=lambda e: e["RANK"]))
        return workers

    def settle(self):
        """Waits until the nodes are in the round that musterd knows. If a round was not recorded, the nodes may meet
        once more although that round looked whole. If the workers of one node finished before that, the other node
        would be alone."""
        def settled():
            rounds = re.findall(r"\] (round_\w+) run=job (.*)", self.read(f"err.musterd{self.musterds}"))
            if not rounds or rounds[-1][0] not in ("round_complete", "round_resumed"):
                return False
            generation = re.search(r"generation=(\d+)", rounds[-1][1])[1]
            return [e["MUSTER_GENERATION"] for e in self.starts()[-2:]] == 2 * [generation]
        try:
            wait_for(settled, "the nodes to be in the round that musterd knows")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None

    def test_no_worker_notices(self):
        chance = random.Random(self.settings.seed)
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=1000000")
        self.failures = self.count = self.further = 0
        self.generation = int(self.newest_round(after=0)[0]["MUSTER_GENERATION"])
        for moment in range(self.settings.moments):
            try:
                self.one_moment(chance)
            except AssertionError as error:
                raise AssertionError(f"moment {moment} of seed {self.settings.seed}: {error}") from None
            if (moment + 1) % 50 == 0:
                print(f"{moment + 1} moments, {self.failures} failures of workers", flush=True)
        # A recorded round is told again to nodes that join again, without a line in the log, and no further round
        # follows. So only without a record there is something to wait for.
        if not self.is_recorded:
            self.settle()
        self.tell("finish")
        self.ends(a=0, b=0)
        if self.is_recorded:
            self.assertEqual(len(self.starts()), 2 * (1 + self.failures))
        print(f"state {self.settings.state}, seed {self.settings.seed}: {self.settings.moments} moments, "
              f"{self.failures} failures of workers, each counted once; {self.further} further starts of workers; "
              f"{self.failed_starts} starts of musterd ended at the failing disk")


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--moments", type=int, default=int(os.environ.get("MUSTER_MUSTERD_MOMENTS", "6")))
    parse.add_argument("--seed", type=int, default=int(os.environ.get("MUSTER_SEED", "1")))
    parse.add_argument("--state", choices=("sqlite", "etcd", "none"), default="sqlite")
    parse.add_argument("--failing-writes", type=int, default=0, metavar="N", help="of 100,000 writes")
    Moments.settings = parse.parse_args()
    if Moments.settings.failing_writes and Moments.settings.state != "sqlite":
        parse.error("--failing-writes: only with --state sqlite")
    for program in (MUSTER, MUSTERD):
        if not os.access(program, os.X_OK):
            skip_all(f"{program} is not there")
    if Moments.settings.state == "etcd" and not have_etcd():
        skip_all("etcd is not installed (Debian: etcd-server)")
    if Moments.settings.failing_writes and not os.path.exists(os.environ.get("FAILING_WRITES_LIB", "")):
        skip_all("FAILING_WRITES_LIB names no library (a build with sanitizers has none)")
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Moments)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
