#!/usr/bin/env python3
"""Another user of the same machine: what a job leaves in shared folders is not his, and he cannot mislead it."""
import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import time

from support import MusterTest, main, wait_for

NOBODY = 65534
PYTHON = "/usr/bin/python3"  # Every user may run it.

# Says where its channel is, and waits for the file "finish".
WORKER = """
import os, time
with open(os.environ["TEST_DIR"] + "/channel.new", "w") as file:
    file.write(os.environ["MUSTER_WORKER_CHANNEL"])
os.rename(file.name, file.name[:-4])
while not os.path.exists(os.environ["TEST_DIR"] + "/finish"):
    time.sleep(0.01)
"""

# Connects as a worker would, and prints what comes: nothing.
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
    """Output of the Python program, run as another user."""
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
        # A folder that all users share, as /tmp: they may make names in it, and not remove others'.
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
        self.assertEqual(process.wait(60), 0, self.read("err"))

    def test_the_worker_channel_is_for_its_own_user(self):
        process = self.job()
        path = self.channel()
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(as_nobody(INTRUDER, str(path)), "not permitted")
        # Somebody has opened the way: the kernel still says who comes.
        for place in (path, *path.parents):
            if place.stat().st_mode & 0o005 != 0o005:
                place.chmod(0o777 if place == path else 0o755)
        for _ in range(3):
            self.assertEqual(as_nobody(INTRUDER, str(path)), "b''")
        self.assertEqual(self.read("err").count("worker_channel_refused uid=65534"), 1, self.read("err"))
        with socket.socket(socket.AF_UNIX) as own:  # And its own user is served.
            own.connect(str(path))
            own.settimeout(0.3)
            own.sendall(b'{"type":"hello","local_rank":0}\n')
            with self.assertRaises(TimeoutError):
                own.recv(1)
        self.finish(process)

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

    def test_links_that_another_user_lays_in_the_way_lead_nowhere(self):
        """He makes links to a file of root's with every name that he sees come up in the shared folders, as fast as he
        can; the jobs' names are new each time, so none is ever followed."""
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
        racer.wait(60)
        self.assertTrue(any(path.is_symlink() for path in self.shared.iterdir()), "he has laid no link")
        for name in set(os.listdir("/dev/shm")) - before:
            if os.path.islink(f"/dev/shm/{name}"):
                os.unlink(f"/dev/shm/{name}")
        self.assertEqual(treasure.read_text(), "as it was")
        self.assertEqual(stat.S_IMODE(treasure.stat().st_mode) & 0o022, 0)

    def test_a_log_directory_that_another_user_has_made_a_link_of(self):
        """He has laid --log-dir's own name, as a link: muster goes where it leads, and makes a folder of its own there."""
        target = self.shared / "elsewhere"
        as_nobody("import os, sys\nos.mkdir(sys.argv[1])\nos.chmod(sys.argv[1], 0o777)\nos.symlink(sys.argv[1], sys.argv[2])",
                  str(target), str(self.shared / "logs"))
        process = self.job("-t3", f"--log-dir={self.shared}/logs")
        self.channel()
        run = list(target.iterdir())
        self.assertEqual([(p.stat().st_uid, stat.S_IMODE(p.stat().st_mode)) for p in run], [(0, 0o700)])
        self.finish(process)


if __name__ == "__main__":
    sys.exit(main())
