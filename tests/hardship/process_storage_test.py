#!/usr/bin/env python3
"""Storage that hangs below what muster reads and writes: three signals end muster anyway."""
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from hardship import own_mounts
from support import MusterTest, main, wait_for

SERVER = pathlib.Path(__file__).resolve().parent / "silent_fuse.py"
MNT_DETACH = 2
HAVE_FUSE = os.getuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@unittest.skipUnless(HAVE_FUSE, "needs root and /dev/fuse")
class HangingStorage(MusterTest):
    SERVER_ARGUMENTS = ()

    def setUp(self):
        super().setUp()
        self.dead = self.dir / "dead"
        self.dead.mkdir()
        self.server = subprocess.Popen([sys.executable, SERVER, self.dead, *self.SERVER_ARGUMENTS],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.bring_back)
        line = self.server.stdout.readline()
        if line != b"mounted\n":
            self.skipTest(f"no FUSE here: {line.decode().strip()}")

    def bring_back(self):
        """Who waits for the server gets an error when it ends."""
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()
        ctypes.CDLL(None).umount2(str(self.dead).encode(), MNT_DETACH)


class Storage(HangingStorage):
    def end_by_three_signals(self, process, *, after="ready"):
        if after:
            self.ready(1)
        begin = time.monotonic()
        for _ in range(3):
            if process.poll() is None:
                process.terminate()
                time.sleep(1.1)  # Each is a wish of its own.
        code = process.wait(30)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertIn(code, (1, -signal.SIGTERM))
        wait_for(lambda: not self.workers(), "the workers' end")

    def workers(self):
        return [words for words in self.token.processes().values() if words.startswith("/bin/sh ")]

    def worker(self, then):
        return self.script("worker.sh", f"#!/bin/sh\necho $LOCAL_RANK >> {self.dir}/ready\n{then}\n")

    def test_below_the_report(self):
        process = self.start("--no-python", f"--failure-report={self.dead}/report.json",
                             self.worker("exit 3"))
        self.end_by_three_signals(process)

    def test_below_the_error_file(self):
        process = self.start("--no-python", self.worker("exit 3"),
                             env={"TORCHELASTIC_ERROR_FILE": f"{self.dead}/error.json"})
        self.end_by_three_signals(process)

    def test_below_tmpdir(self):
        (self.dir / "tmp").rmdir()
        (self.dir / "tmp").symlink_to(self.dead)
        process = self.start("--no-python", "--tee=3", self.worker("sleep 1000"))
        wait_for(lambda: len(self.token.processes()) >= 3, "muster's three")
        self.end_by_three_signals(process, after=None)

    def test_below_the_program(self):
        # Found by env, in a worker that has started, and by muster itself.
        for command in (("/usr/bin/env", f"{self.dead}/program"), (f"{self.dead}/program",)):
            with self.subTest(command=command):
                process = self.start("--no-python", "--nproc-per-node=2", *command)
                wait_for(lambda: len(self.token.processes()) >= 3, "muster's three")
                self.end_by_three_signals(process, after=None)


class SickProcess(HangingStorage):
    """A stranger on the machine closes a file on dead storage while it executes a program. Since Linux 6.18 nobody
    can read its /proc/PID/stat meanwhile, and on every Linux nobody its environ."""
    SERVER_ARGUMENTS = ("--opens",)

    def test_a_process_that_cannot_be_read_holds_up_no_job(self):
        begin = f"import os; os.open({str(self.dead / 'file')!r}, os.O_RDONLY); os.execv('/bin/true', ['true'])"
        sick = subprocess.Popen([sys.executable, "-c", begin])
        self.addCleanup(sick.wait)
        self.addCleanup(self.server.kill)
        # It has no command line while it executes a program: it waits for the storage then.
        wait_for(lambda: not pathlib.Path(f"/proc/{sick.pid}/cmdline").read_bytes(), "the sick process", 30)
        self.assertIsNone(sick.poll())
        # The child left behind makes muster look for descendants; the hang watch looks at all processes, too.
        process = self.start("--no-python", "--hang-timeout=0.5", self.script(
            "worker.sh", "#!/bin/sh\nsetsid sleep 1000 &\nsleep 0.3\n"))
        self.assertEqual(process.wait(60), 0)
        self.assertIsNone(sick.poll())


if __name__ == "__main__":
    if HAVE_FUSE:
        own_mounts()
    main()
