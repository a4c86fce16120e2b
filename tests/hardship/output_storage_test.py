"""Log folders on storage that hangs, that goes, or that may not be written any more."""
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from hardship import HardshipTest
from support import PATIENCE_S, MusterTest, main, wait_for


class Silent(HardshipTest):
    def setUp(self):
        super().setUp()
        self.mount()

    def end_by_sigterm(self, process, bound_s):
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(bound_s)
        return time.monotonic() - begin

    def test_before_the_job(self):
        self.fs.fall_silent()
        process = self.start("--no-python", "-t3", f"--log-dir={self.fs.folder}", "sh", "-c",
                             "echo x > ready; sleep 1000")
        wait_for(lambda: "storage does not answer" in self.read("err"), "a word about it")
        self.assertIsNone(process.poll())
        self.end_by_sigterm(process, 20)
        self.assertIn(str(self.fs.folder), self.read("err"))
        self.assertEqual(self.read("ready"), "")

    def test_before_the_job_and_then_it_answers(self):
        self.fs.fall_silent()
        process = self.start("--no-python", "-t1", f"--log-dir={self.fs.folder}", "echo", "hello")
        wait_for(lambda: "storage does not answer" in self.read("err"), "a word about it")
        self.fs.speak()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertIn("[default0]:hello", self.read("out"))

    def test_during_the_job(self):
        process = self.start("--no-python", "-t3", f"--log-dir={self.fs.folder}", "sh", "-c",
                             "echo x > ready; while :; do echo line; sleep 0.05; done")
        self.ready(1)
        wait_for(lambda: "line" in self.read("out"), "a line")
        self.fs.fall_silent()
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        self.end_by_sigterm(process, 20)
        self.assertIn("storage does not answer", self.read("err"))
        self.assert_nothing_left()

    def test_a_worker_fails_while_the_logs_hang(self):
        """Its peers are stopped at once; then muster waits for a while, or until a signal."""
        process = self.start("--no-python", "--nproc-per-node=2", "-r3",
                             f"--log-dir={self.fs.folder}", "sh", "-c",
                             "echo $$$$ >> ready; [ $LOCAL_RANK = 1 ] && exec sleep 1000; "
                             "while [ ! -e go ]; do echo line; sleep 0.05; done; exit 6")
        self.ready(2)
        pids = [int(pid) for pid in self.read("ready").split()]
        self.fs.fall_silent()
        time.sleep(0.3)
        (self.dir / "go").touch()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids),
                 "the end of the workers", 10)
        wait_for(lambda: "storage does not answer" in self.read("err"), "a word about it")
        self.end_by_sigterm(process, 20)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(self.read("err"), r"exitcode  : 6 ")

    def test_while_the_workers_are_started(self):
        """The log thread hangs before it has got the files of all workers: they are not closed elsewhere, where that would
        hang as well."""
        process = self.start("--no-python", "--nproc-per-node=100", "-r3", f"--log-dir={self.fs.folder}", "sh", "-c",
                             "[ $LOCAL_RANK = 0 ] && echo x > ready; while :; do echo line; sleep 0.2; done")
        self.ready(1)
        self.fs.fall_silent()
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        self.end_by_sigterm(process, 30)
        self.assertIn("muster ends without it", self.read("err"))
        self.assertNotIn("stopped answering", self.read("err"))


class Going(MusterTest):
    def test_a_log_folder_that_is_deleted(self):
        process = self.start("--no-python", "-t1", "--log-dir=logs", "sh", "-c",
                             "echo first; echo x > ready; while [ ! -e go ]; do sleep 0.05; done; "
                             "echo second; exit 3")
        self.ready(1)
        wait_for(lambda: "first" in self.read("out"), "the first line")
        shutil.rmtree(self.dir / "logs")
        (self.dir / "go").touch()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.read("out"), "[default0]:first\n[default0]:second\n")
        self.assertIn("exitcode  : 3", self.read("err"))

    def lose_the_memory(self, lose):
        """The first of two attempts loses its temporary folder by `lose`. Returns the second one's error file."""
        script = self.script("worker.sh", """#!/bin/sh
echo $TORCHELASTIC_ERROR_FILE >> ready
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then until [ -e go ]; do sleep 0.05; done; exit 3; fi
[ -S "$MUSTER_WORKER_CHANNEL" ] && echo yes > has_channel
until [ -e end ]; do sleep 0.05; done
""")
        # With a short id, because the path of a socket has at most 107 bytes.
        process = self.start("--no-python", "--max-restarts=1", "--rdzv-id=x", script)
        self.ready(1)
        lose()
        (self.dir / "go").touch()
        wait_for(lambda: len(self.read("ready").split()) == 2 or process.poll() is not None, "the second attempt")
        self.assertIsNone(process.poll(), self.read("err"))
        wait_for(lambda: self.read("has_channel"), "the channel", 5)
        self.assertIn("was removed while the job ran", self.read("err"))
        self.addCleanup((self.dir / "end").touch)
        folder = pathlib.Path(self.read("ready").split()[1]).parents[3]
        self.assertRegex(folder.name, "^muster_[a-z0-5]{20}$")
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        descriptor = os.open(folder, os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        with self.assertRaises(BlockingIOError):  # So no other muster takes it for an orphan.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (self.dir / "end").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertFalse(folder.exists())

    def test_a_temporary_folder_that_is_removed(self):
        """As systemd's RemoveIPC or a cleaner of /dev/shm does it."""
        self.lose_the_memory(lambda: [shutil.rmtree(path) for path in pathlib.Path(self.memory).iterdir()])

    def test_the_place_of_the_temporary_folder_is_removed(self):
        """As XDG_RUNTIME_DIR at the user's last logout. Nobody can make a folder there afterwards, not even root."""
        def lose():
            shutil.rmtree(self.memory)
            pathlib.Path(self.memory).touch()
        self.lose_the_memory(lose)

    def test_a_log_folder_that_becomes_read_only(self):
        """Files that are open may still be written; the next attempt finds no place and says so."""
        disk = self.dir / "disk"
        disk.mkdir()
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "tmpfs", str(disk)], stderr=subprocess.DEVNULL,
                check=False).returncode != 0:
            self.skipTest("needs root and mount(8)")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)], check=False)
        bound = self.dir / "bound"
        bound.mkdir()
        subprocess.run(["mount", "--bind", str(disk), str(bound)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(bound)], check=False)
        process = self.start("--no-python", "-t1", f"--log-dir={bound}", "--max-restarts=1", "sh",
                             "-c", "echo first; echo x >> ready; "
                             "while [ ! -e go ]; do sleep 0.05; done; echo second; exit 3")
        self.ready(1)
        wait_for(lambda: "first" in self.read("out"), "the first line")
        # A bind mount can be made read-only while its files are open; then they cannot be opened.
        made = subprocess.run(["mount", "-o", "remount,bind,ro", str(bound)],
                              stderr=subprocess.DEVNULL, check=False).returncode == 0
        (self.dir / "go").touch()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("[default0]:second\n", self.read("out"))
        if made:
            self.assertIn("Read-only file system", self.read("err"))


if __name__ == "__main__":
    sys.exit(main())
