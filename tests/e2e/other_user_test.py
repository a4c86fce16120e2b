#!/usr/bin/env python3
"""Tests another user on the same machine: that user can neither use what a job leaves in shared
folders nor mislead the job."""
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

from support import MUSTER, PATIENCE_S, MusterTest, Terminal, main, wait_for

NOBODY = 65534
PYTHON = "/usr/bin/python3"  # A Python that every user may run.

# Writes where its channel is, and waits for the file "finish".
WORKER = """
import os, time
with open(os.environ["TEST_DIR"] + "/channel.new", "w") as file:
    file.write(os.environ["MUSTER_WORKER_CHANNEL"])
os.rename(file.name, file.name[:-4])
while not os.path.exists(os.environ["TEST_DIR"] + "/finish"):
    time.sleep(0.01)
if "FAILS" in os.environ:
    raise SystemExit(3)
"""

# Connects as a worker would and prints what it receives, which is nothing.
INTRUDER = """
import socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.settimeout(30)
try:
    channel.connect(sys.argv[1])
    channel.sendall(b'{"type":"hello","local_rank":0}\\n{"type":"ends_itself"}\\n')
    print(channel.recv(100))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
except PermissionError:
    print("not permitted")
"""


def as_nobody(code, *arguments):
    """Runs the Python program as another user. Returns its output."""
    def become():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return subprocess.run([PYTHON, "-c", code, *arguments], preexec_fn=become, cwd="/", capture_output=True,
                          text=True, timeout=60, check=True).stdout.strip()


class OtherUser(MusterTest):
    def setUp(self):
        if os.geteuid() != 0 or not os.access(PYTHON, os.X_OK):
            self.skipTest(f"only root can be somebody else, and that one needs {PYTHON}")
        super().setUp()
        # A folder that all users share, like /tmp: they may create files in it, but not remove
        # those of others.
        self.shared = pathlib.Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
        self.addCleanup(subprocess.run, ["rm", "-rf", str(self.shared)], check=False)
        self.shared.chmod(0o1777)
        self.worker = self.script("worker.py", WORKER)

    def job(self, *options, **env):
        self.process = self.start("--standalone", *options, self.worker, env=env)
        return self.process

    def environment(self, **more):
        return self.token.environment(TMPDIR=str(self.shared), XDG_RUNTIME_DIR="", TEST_DIR=str(self.dir), **more)

    def channel(self):
        wait_for(lambda: (self.dir / "channel").exists() or self.process.poll() is not None, "the worker to begin")
        self.assertTrue((self.dir / "channel").exists(), self.read("err"))
        return pathlib.Path(self.read("channel"))

    def finish(self, process):
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))

    def test_the_worker_channel_is_for_its_own_user(self):
        process = self.job()
        path = self.channel()
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(as_nobody(INTRUDER, str(path)), "not permitted")
        # The folders and the socket are opened to all users. muster still refuses this user, whom
        # the kernel names.
        for place in (path, *path.parents):
            if place.stat().st_mode & 0o005 != 0o005:
                place.chmod(0o777 if place == path else 0o755)
        for _ in range(3):
            self.assertEqual(as_nobody(INTRUDER, str(path)), "b''")
        refused = "worker_channel_refused uid=65534"
        wait_for(lambda: refused in self.read("err"), "a line about the other user")
        with socket.socket(socket.AF_UNIX) as own:  # The job's own user is served.
            own.connect(str(path))
            own.settimeout(0.3)
            own.sendall(b'{"type":"hello","local_rank":0}\n')
            with self.assertRaises(TimeoutError):
                own.recv(1)
        self.finish(process)
        self.assertEqual(self.read("err").count(refused), 1, self.read("err"))

    def test_folders_and_files_in_shared_places_are_this_users_alone(self):
        process = self.job("-t3", f"--log-dir={self.shared}/logs", "--failure-report", f"{self.shared}/report.json")
        self.channel()
        places = [p for p in self.shared.rglob("*") if p != self.shared / "logs"]
        self.assertTrue(any(p.name == "stdout.log" for p in places), places)
        run = [p for p in places if p.parent == self.shared / "logs"]
        self.assertEqual([stat.S_IMODE(p.stat().st_mode) for p in run], [0o700] * len(run))
        for place in places:
            listing = as_nobody("import os, sys\nprint(os.access(sys.argv[1], os.R_OK))", str(place))
            self.assertEqual(listing, "False", place)
        self.finish(process)

    def test_names_are_not_to_be_foreseen(self):
        seen = set()
        for i in range(3):
            process = self.job("-t3", f"--log-dir={self.shared}/logs")
            self.channel()
            seen.update(p.name for p in (self.shared / "logs").iterdir())
            self.finish(process)
            (self.dir / "finish").unlink()
            (self.dir / "channel").unlink()
            self.assertEqual(len(seen), i + 1)
        self.assertTrue(all(len(name) >= 8 for name in seen), seen)

    def check_temporary(self, folder, *options):
        """Checks the files of jobs with these options: only this user can open them, and nobody can
        guess their names."""
        seen = set()
        for _ in range(3):
            process = self.job(*options, TORCHELASTIC_ENABLE_FILE_TIMER="1")
            channel = self.channel()
            place = channel.parent
            run, = (path for path in place.iterdir() if path.is_dir())
            self.assertEqual(place.parent, folder)
            timers = next(p.parent for p in self.shared.glob("*/timers"))
            for made in (place, run, timers):
                self.assertEqual((made.lstat().st_uid, made.lstat().st_mode), (0, stat.S_IFDIR | 0o700), made)
            for made in (place, *place.rglob("*"), timers, timers / "timers"):
                self.assertEqual(as_nobody("import os, sys\nprint(os.access(sys.argv[1], os.R_OK))", str(made)), "False")
            self.assertEqual((timers / "timers").lstat().st_mode, stat.S_IFIFO | 0o600)
            for made in (place, timers):
                # The whole name is random: 100 bits.
                self.assertRegex(made.name, r"^muster_[a-z0-5]{20,}$")
                seen.add(made.name)
            self.assertRegex(run.name, r"_[a-z0-5]{8}$")
            self.finish(process)
            (self.dir / "finish").unlink()
            (self.dir / "channel").unlink()
        self.assertEqual(len(seen), 6)

    def test_folders_in_tmpdir_are_not_to_be_foreseen(self):
        self.check_temporary(self.shared, "-r3")

    def test_folders_in_memory_are_not_to_be_foreseen(self):
        kind = subprocess.run(["stat", "-f", "-c", "%T", "/dev/shm"], capture_output=True, text=True, check=False).stdout
        if kind != "tmpfs\n":
            self.skipTest("/dev/shm is not in memory")
        self.check_temporary(pathlib.Path("/dev/shm"))

    def test_links_that_another_user_lays_in_the_way_lead_nowhere(self):
        """The other user creates links to a file of root's with every name that appears in the
        shared folders, as fast as possible. Each job has new names, so muster never follows a link.
        """
        treasure = self.dir / "treasure"
        treasure.write_text("as it was")
        racer_code = """
import os, sys, time
shared, treasure = sys.argv[1:]
end, seen = time.monotonic() + 60, set()
while time.monotonic() < end and len(seen) < 500 and not os.path.exists(shared + "/stop"):
    for folder in (shared, shared + "/logs", "/dev/shm"):
        for entry in os.scandir(folder):
            if entry.is_symlink() or entry.path in seen:
                continue
            seen.add(entry.path)
            for guess in (entry.path + ".new", entry.path + ".tmp", entry.path[:-1], entry.path + "/stdout.log"):
                try:
                    os.symlink(treasure, guess)
                except OSError:
                    pass
    time.sleep(0.001)
"""
        (self.shared / "logs").mkdir()
        (self.shared / "logs").chmod(0o1777)
        before = set(os.listdir("/dev/shm"))

        def become():
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        racer = subprocess.Popen([PYTHON, "-c", racer_code, str(self.shared), str(treasure)], preexec_fn=become,
                                 cwd="/")
        self.addCleanup(racer.wait)
        self.addCleanup(racer.kill)
        for options in ((), ("-t3", f"--log-dir={self.shared}/logs"), ("-r3",)) * 3:
            process = self.job(*options)
            self.channel()
            self.finish(process)
            (self.dir / "finish").unlink()
            (self.dir / "channel").unlink()
        (self.shared / "stop").touch()
        racer.wait(PATIENCE_S)
        self.assertTrue(any(path.is_symlink() for path in self.shared.iterdir()), "he has laid no link")
        for name in set(os.listdir("/dev/shm")) - before:
            if os.path.islink(f"/dev/shm/{name}"):
                os.unlink(f"/dev/shm/{name}")
        self.assertEqual(treasure.read_text(), "as it was")
        self.assertEqual(stat.S_IMODE(treasure.stat().st_mode) & 0o022, 0)

    def test_a_report_that_another_user_has_made_a_link_of_is_not_written(self):
        """The other user has created the paths of the failure report and of the launcher's error
        file as links to files of root's, as a file, and as a FIFO."""
        treasure = self.dir / "treasure"
        treasure.write_text("as it was")
        lay = {"link": "os.symlink(sys.argv[2], sys.argv[1])", "file": "open(sys.argv[1], 'w')", "fifo": "os.mkfifo(sys.argv[1])"}
        for kind, code in lay.items():
            for name in ("report", "error"):
                as_nobody("import os, sys\n" + code, str(self.shared / f"{name}.{kind}"), str(treasure))
            with self.subTest(kind):
                _, _, err = self.run_muster(
                    "--failure-report", str(self.shared / f"report.{kind}"), "--no-python", "sh", "-c", "exit 3",
                    env={"TORCHELASTIC_ERROR_FILE": str(self.shared / f"error.{kind}")}, expect=1)
                self.assertIn("Permission denied", err)
                self.assertEqual(treasure.read_text(), "as it was")
                self.assertFalse([path.name for path in self.shared.glob("*muster-*")])
                if kind == "file":
                    self.assertEqual((self.shared / "report.file").read_text(), "")

    def test_a_log_directory_that_another_user_has_made_a_link_of(self):
        """The other user has created --log-dir as a link. muster follows it, and creates its own
        folder in the target."""
        target = self.shared / "elsewhere"
        as_nobody("import os, sys\nos.mkdir(sys.argv[1])\nos.chmod(sys.argv[1], 0o777)\nos.symlink(sys.argv[1], sys.argv[2])",
                  str(target), str(self.shared / "logs"))
        process = self.job("-t3", f"--log-dir={self.shared}/logs")
        self.channel()
        run = list(target.iterdir())
        self.assertEqual([(p.stat().st_uid, stat.S_IMODE(p.stat().st_mode)) for p in run], [(0, 0o700)])
        self.finish(process)

    def test_a_run_folder_that_another_user_has_replaced_is_not_used(self):
        """The other user owns --log-dir: it renames the run folder, and puts its own in the place."""
        logs = self.shared / "logs"
        as_nobody("import os, sys\nos.mkdir(sys.argv[1])", str(logs))
        process = self.job("-t3", f"--log-dir={logs}", "--max-restarts=3", FAILS="yes")
        self.channel()
        run, = logs.iterdir()
        as_nobody("import os, sys\nos.rename(sys.argv[1], sys.argv[1] + '-old')\nos.mkdir(sys.argv[1])\n"
                  "os.chmod(sys.argv[1], 0o777)", str(run))
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        self.assertIn(f"{run} is not the folder that muster has made", self.read("err"))
        self.assertEqual(list(run.iterdir()), [])

    def test_a_log_folder_that_muster_makes_is_not_for_others_to_write(self):
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        process = self.job("-t3", f"--log-dir={self.shared}/logs/deep", f"--failure-report={self.shared}/report", FAILS="yes")
        self.channel()
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode)
                 for path in (self.shared / "logs", self.shared / "logs" / "deep", self.shared / "report")}
        self.assertEqual(modes, {"logs": 0o755, "deep": 0o755, "report": 0o600})


class OthersTerminal(MusterTest):
    """After su or gosu, the terminal belongs to another user: muster may write to it, and may not open it again."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        super().setUp()
        for path in (self.dir, self.dir / "tmp", self.memory):
            os.chmod(path, 0o777)
        self.program = self.dir / "muster"  # A copy that this user may read.
        shutil.copy(MUSTER, self.program)

    def on_terminal(self, *arguments):
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        terminal = Terminal(["sh", "-c", 'chmod 620 "$(tty)"; exec "$@"', "sh", *become, self.program, *arguments],
                            cwd=self.dir, env=self.environment())
        self.addCleanup(terminal.close)
        self.addCleanup(terminal.process.wait)
        self.addCleanup(terminal.process.kill)
        return terminal

    def test_a_reader_that_comes_late_misses_nothing(self):
        lines = 'i=0; while [ $i -lt 4000 ]; do echo "line $i of a text that fills the terminal."; i=$((i+1)); done; '
        terminal = self.on_terminal("-t3", "--shutdown-timeout=600", "--no-python", "sh", "-c",
                                    lines + "echo x > ready; exec sleep 1000")
        self.ready(1)
        terminal.process.send_signal(signal.SIGTERM)
        # Two seconds after a signal, muster gives up a log thread that does not answer.
        time.sleep(6)
        self.assertIsNone(terminal.process.poll())
        wait_for(lambda: [terminal.read(), terminal.process.poll()][1] is not None, "the end")
        text = terminal.read()
        self.assertNotIn("does not answer", text)
        self.assertEqual([f"line {i} of" in text for i in range(4000)].count(False), 0, text[-1000:])


if __name__ == "__main__":
    sys.exit(main())
