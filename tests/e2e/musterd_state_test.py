#!/usr/bin/env python3
"""Tests musterd --state-dir: its records of the runs outlive it, and no worker notices a restart.

tests/hardship/musterd_moments.py kills musterd at seeded moments."""
import hashlib
import os
import pathlib
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys

from mixed import SHORT_LEASE_S, MusterdTest, have_torch
from musterd import MUSTERD, run_musterd
from native_peer import OtherNode
from nodes import TORCH_PYTHON
from support import PATIENCE_S, SOURCE, main, wait_for

FIXTURES = SOURCE / "tests/e2e/state_files"


class StateTest(MusterdTest):
    def setUp(self):
        self.musterd_options = ()
        super().setUp()

    def start_musterd(self):
        self.state = self.dir / "state"
        self.musterd_options = (f"--state-dir={self.state}", "--history=2")
        super().start_musterd()

    def musterd_says(self, text, musterd=None):
        name = f"err.musterd{musterd or self.musterds}"
        wait_for(lambda: text in self.read(name), f"musterd to say {text!r}")

    def rows(self, sql):
        with sqlite3.connect(self.state / "musterd.db") as database:
            return database.execute(sql).fetchall()

    def refused(self, *options):
        """Starts another musterd that must fail. Returns its error."""
        done = subprocess.run([MUSTERD, "--bind=127.0.0.1", "--port=0", f"--state-dir={self.state}", *options],
                              capture_output=True, text=True, timeout=PATIENCE_S, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stdout, "")
        return done.stderr


class PowerCut(StateTest):
    def test_a_job_with_other_settings_hears_how_long_and_what_to_do(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=3")
        self.round_of(2)
        self.stop_musterd()
        for tag in "ab":
            self.kill(tag)
        self.start_musterd()
        self.node("c", 1, "--max-restarts=5")
        self.ends(c=1)
        self.assertRegex(self.read("err.c"), r"settings differ: .*; no node of that run is here: unless one comes back, "
                         r"the run is forgotten in \d+ s \(--forget-run-seconds\); `musterctl stop` ends it at once")


class Restarts(StateTest):
    def test_the_record_is_for_its_user_alone(self):
        self.stop_musterd()
        for file in self.state.iterdir():
            file.unlink()
        self.state.chmod(0o755)  # As a folder that an administrator has made.
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        self.start_musterd()
        self.node("a", 1)
        self.round_of(1)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in self.state.iterdir()}
        self.assertIn("musterd.db-wal", modes)
        self.assertEqual(set(modes.values()), {0o600}, modes)
        self.tell("finish")
        self.ends(a=0)

    def test_musterd_empties_no_file_through_the_lock_of_another_user(self):
        """The lock is a link to a file, or a second name of it: neither is emptied."""
        self.stop_musterd()
        treasure = self.dir / "treasure"
        treasure.write_text("as it was")
        lock = self.state / "lock"
        for lay, starts in ((os.symlink, False), (os.link, True)):
            lock.unlink(missing_ok=True)
            lay(treasure, lock)
            with self.subTest(lay.__name__):
                if starts:
                    self.start_musterd()
                    self.stop_musterd()
                else:
                    self.assertIn("lock cannot be opened", self.refused())
                self.assertEqual(treasure.read_text(), "as it was")

    def test_the_end_of_a_run_is_remembered(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.tell("exit.b", "3")
        self.ends(a=1, b=1)
        self.stop_musterd()
        self.start_musterd()
        self.musterd_says("runs_restored runs=1")
        (outcome,), = self.rows("SELECT json_extract(record, '$.outcome.why') FROM ended")
        self.assertIn("exited with 3", outcome)

    def test_a_node_that_does_not_come_back_is_lost(self):
        for tag in "abc":
            self.node(tag, "2:3", "--max-restarts=3")
        first = {e["node"]: e["RANK"] for e in self.round_of(3)}
        self.stop_musterd()
        self.kill("b")
        self.lease_s = SHORT_LEASE_S  # After it, the killed node counts as lost.
        self.start_musterd()
        again = self.round_of(2, after=3, nodes="ac")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"0"})
        # Nodes keep their ranks; the node with the highest rank gets the free one.
        for entry in again:
            if first[entry["node"]] != "2":
                self.assertEqual(entry["RANK"], first[entry["node"]])
        self.tell("finish")
        self.ends(a=0, c=0)

    def test_a_lost_file_costs_no_worker(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.stop_musterd()
        shutil.rmtree(self.state)
        self.start_musterd()
        self.musterd_says("round_resumed")
        self.assertEqual(len(self.starts()), 2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_backup_is_made_while_it_runs_and_an_old_one_costs_no_worker(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=3")
        self.round_of(2)
        backup = self.dir / "backup.db"
        done = subprocess.run([sys.executable, "-c", "import sqlite3, sys\n"
                               "sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))",
                               str(self.state / "musterd.db"), str(backup)], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        self.tell("exit.a", "7")  # This restart is not in the backup.
        self.round_of(2, after=2)
        self.stop_musterd()
        for path in self.state.glob("musterd.db*"):
            path.unlink()
        shutil.copy(backup, self.state / "musterd.db")
        self.start_musterd()
        self.musterd_says("round_resumed")
        self.assertEqual(len(self.starts()), 4, self.all_output())
        self.tell("exit.b", "7")
        again = self.round_of(2, after=4)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"2"})
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_the_history_is_bounded(self):
        for number in range(3):
            self.run_id = f"run{number}"
            self.node("a", 1)
            self.tell("finish")
            self.ends(a=0)
        wait_for(lambda: self.rows("SELECT json_extract(record, '$.run_id') FROM ended ORDER BY number")
                 == [("run1",), ("run2",)], "the last two runs")


class Torchrun(StateTest):
    def test_muster_nodes_of_a_mixed_round_meet_again_once(self):
        if not have_torch():
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")
        self.node("a", "1:2", "--max-restarts=3")
        self.node("t", "1:2", "--max-restarts=3")
        self.round_of(2, nodes="at")
        before = len(self.starts())
        self.stop_musterd()
        self.start_musterd()
        alone = self.round_of(1, after=before, nodes="a")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in alone}, {"0"})
        self.assertNotEqual(self.nodes["t"].wait(PATIENCE_S), 0)
        self.assertEqual([e["node"] for e in self.starts()[before:]], ["a"])
        self.tell("finish")
        self.ends(a=0)


class Refused(StateTest):
    def test_a_second_musterd(self):
        self.assertIn(f"another musterd (pid {self.musterd.pid}) uses state directory {self.state}", self.refused())

    def unchanged(self, content, says):
        """Checks that a musterd that finds a file with this content does not start and does not
        change the file."""
        self.stop_musterd()
        for path in self.state.glob("musterd.db*"):
            path.unlink()
        path = self.state / "musterd.db"
        path.write_bytes(content)
        said = self.refused()
        self.assertRegex(said, says)
        self.assertIn("left as it is", said)
        self.assertEqual(path.read_bytes(), content)

    def database(self, sql):
        path = self.dir / "other.db"
        with sqlite3.connect(path) as database:
            database.executescript(sql)
        database.close()
        return path.read_bytes()

    def test_a_file_that_is_no_database(self):
        self.unchanged(b"what is this?\n" * 100, "is no SQLite database")

    def test_the_database_of_another_program(self):
        self.unchanged(self.database("CREATE TABLE t (x); INSERT INTO t VALUES (1)"), "another program")

    def test_a_newer_version(self):
        self.unchanged(self.database((FIXTURES / "version_1.sql").read_text() + "PRAGMA user_version = 1000;"),
                       "has version 1000")

    def test_a_record_that_cannot_be_read(self):
        self.unchanged(self.database((FIXTURES / "version_1.sql").read_text() +
                                     "UPDATE run SET record = json_set(record, '$.restarts_used', 'many');"),
                       r"run job cannot be read \(field restarts_used: a whole number is wanted")

    def test_a_damaged_file(self):
        whole = bytearray(self.database((FIXTURES / "version_1.sql").read_text()))
        for at in range(4096, len(whole), 512):
            whole[at:at + 64] = hashlib.sha512(str(at).encode()).digest()
        self.unchanged(bytes(whole), "damaged")

    def test_a_folder_that_cannot_be_made(self):
        self.state = self.dir / "not" / "there"
        self.assertIn("cannot be made: No such file", self.refused())

    def test_a_signal_ends_the_first_process_of_a_container_while_the_storage_is_slow(self):
        """For the first process of a pid namespace the kernel drops signals with the default action."""
        own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if subprocess.run([*own, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("a pid namespace needs root")
        self.stop_musterd()
        locked = sqlite3.connect(self.state / "musterd.db", isolation_level=None)
        self.addCleanup(locked.close)
        locked.execute("PRAGMA locking_mode=EXCLUSIVE")
        locked.execute("BEGIN EXCLUSIVE")  # musterd waits for some seconds.
        with open(self.dir / "err.container", "w") as err:
            container = subprocess.Popen(
                [*own, MUSTERD, "--bind=127.0.0.1", "--port=0", f"--state-dir={self.state}"],
                stdout=subprocess.DEVNULL, stderr=err, env=self.environment())
        self.addCleanup(container.wait)
        self.addCleanup(container.kill)
        wait_for(lambda: "access" in self.read("err.container"), "musterd to begin")
        children = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        self.assertEqual(container.wait(PATIENCE_S), 128 + signal.SIGTERM, self.read("err.container"))


class Versions(StateTest):
    def opens(self, version):
        self.stop_musterd()
        for path in self.state.glob("musterd.db*"):
            path.unlink()
        database = sqlite3.connect(self.state / "musterd.db")
        database.executescript((FIXTURES / f"version_{version}.sql").read_text())
        database.close()
        self.start_musterd()
        self.musterd_says("runs_restored runs=1")
        # According to the file, one of two restarts has been used, and rank 1 has finished.
        node = OtherNode(self.port).tell({"type": "hello", "protocol_version": 1, "muster_version": "1",
                                          "run_id": "job", "resumes": True})
        self.addCleanup(node.close)
        self.assertEqual(node.next()["type"], "welcome")
        node.tell({"type": "finished", "round": 4, "succeeded": True, "what": ""})
        settings = {"min_nodes": 2, "max_nodes": 2, "max_restarts": 2, "scale_policy": "now",
                    "join_timeout_ns": 600000000000, "last_call_timeout_ns": 30000000000}
        node.tell({"type": "resume", "state": "finished", "group_rank": 0, "group_world_size": 2, "restart_count": 1,
                   "join": {"name": {"addr": "10.0.0.1", "pid": 11, "local_id": 0}, "instance": "one", "role": "default",
                            "local_world_size": 1, "run": settings, "protocol_version": 1, "muster_version": "1",
                            "last_round": 4, "life": 77, "generation": 1700000004, "spare": False,
                            "hosts_rendezvous": False}})
        said = [node.next() for _ in range(2)]
        self.assertEqual([message["type"] for message in said], ["resumed", "run_ended"], said)
        self.assertTrue(said[1]["succeeded"])
        self.assertEqual(said[0]["generation"], 1700000004)
        wait_for(lambda: self.rows("SELECT json_extract(record, '$.run_id'), json_extract(record, '$.restarts')"
                                   " FROM ended ORDER BY number") == [("old", 0), ("job", 1)], "the history")
        (now,), = self.rows("PRAGMA user_version")
        self.assertEqual(now, 1)

    def test_version_1(self):
        self.opens(1)


class Forgotten(StateTest):
    forget_s = 100_000

    def start_musterd(self):
        self.state = self.dir / "state"
        self.musterd_options = (f"--state-dir={self.state}", f"--forget-run-seconds={self.forget_s}")
        MusterdTest.start_musterd(self)

    def answer_to(self, pid, nodes):
        """The type of the answer to the join of a node with these settings. The node leaves again."""
        node = OtherNode(self.port).tell({"type": "hello", "protocol_version": 1, "muster_version": "1",
                                          "run_id": "job", "resumes": True})
        self.assertEqual(node.next()["type"], "welcome")
        settings = {"min_nodes": nodes, "max_nodes": nodes, "max_restarts": 2, "scale_policy": "now",
                    "join_timeout_ns": 600000000000, "last_call_timeout_ns": 30000000000}
        node.tell({"type": "join", "name": {"addr": "10.0.0.1", "pid": pid, "local_id": 0}, "instance": str(pid),
                   "role": "default", "local_world_size": 1, "run": settings, "protocol_version": 1,
                   "muster_version": "1", "last_round": -1, "spare": False, "hosts_rendezvous": False})
        answer = node.next()["type"]
        node.tell({"type": "leave"})
        node.close()
        return answer

    def test_a_run_that_all_have_left_keeps_its_settings_until_it_is_forgotten(self):
        self.assertEqual(self.answer_to(1, nodes=2), "waiting")
        self.assertEqual(self.answer_to(2, nodes=3), "join_refused")
        self.stop_musterd()
        self.start_musterd()
        self.assertEqual(self.answer_to(3, nodes=3), "join_refused")
        self.assertEqual(self.answer_to(4, nodes=2), "waiting")
        self.stop_musterd()
        self.forget_s = 0.1
        self.start_musterd()
        wait_for(lambda: self.answer_to(5, nodes=3) == "waiting", "the run to be forgotten")


class FullDisk(StateTest):
    """The state is in its own small file system."""

    def start_musterd(self):
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("user namespaces may not mount here")
        self.state = self.dir / "state"
        self.state.mkdir(exist_ok=True)
        self.musterds = 1
        self.musterd = run_musterd(
            self, f"--lease-seconds={self.lease_s}", f"--state-dir={self.state}", log=self.dir / "err.musterd1",
            prefix=["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m x "$0" && exec "$@"', self.state],
            env=self.environment())
        self.port = self.musterd.port
        self.inside = f"/proc/{self.musterd.pid}/root{self.state}"

    def test_a_start_on_a_full_disk_names_the_cause(self):
        script = self.script("starts.sh", f"""#!/bin/sh
mount -t tmpfs -o size=4m x "$1" || exit 77
{MUSTERD} --bind=127.0.0.1 --port=0 --state-dir="$1" > listening &
for i in $(seq 600); do grep -q listening listening && break; sleep 0.1; done
kill $!; wait $!
cat /dev/zero > "$1/fill" 2> /dev/null
exec {MUSTERD} --bind=127.0.0.1 --port=0 --state-dir="$1"
""")
        folder = self.dir / "full"
        folder.mkdir()
        done = subprocess.run(["unshare", "-rm", script, folder], capture_output=True, text=True, timeout=PATIENCE_S,
                              cwd=self.dir, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, "cannot be used: disk I/O error .No space left on device.")

    def test_training_goes_on_new_runs_are_refused_and_it_ends_by_itself(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=3")
        self.round_of(2)
        fill = os.open(f"{self.inside}/fill", os.O_WRONLY | os.O_CREAT, 0o600)
        self.addCleanup(os.close, fill)
        with self.assertRaisesRegex(OSError, "No space left"):
            while True:
                os.write(fill, b"x" * 4096)
        # A restart succeeds. The first change without room on the disk is reported.
        for number in range(1, 3):
            self.tell("exit.a", "7")
            again = self.round_of(2, after=2 * number)
            self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {str(number)})
        self.musterd_says("state_not_recorded")
        self.run_id = "another"
        self.node("c", 1)
        self.ends(c=1)
        self.assertIn("no new run begins while the state of runs cannot be recorded", self.read("err.c"))
        os.truncate(fill, 0)
        self.musterd_says("state_is_recorded_again")
        self.node("c", 1)
        self.tell("finish")
        self.ends(a=0, b=0, c=0)
        self.assertEqual(self.read("err.musterd1").count("state_not_recorded"), 1, self.read("err.musterd1"))


if __name__ == "__main__":
    if not os.access(MUSTERD, os.X_OK):
        print(f"skipped: MUSTERD_BIN={MUSTERD} is not there")
        sys.exit(77)
    main()
