#!/usr/bin/env python3
"""Tests that muster works on the file systems that clusters and containers have, or says what they lack."""
import os
import pathlib
import re
import sys

from hardship import HardshipTest, own_mounts, silent_fs
from support import main, wait_for

LONG = "projects/vision-large-2/experiments/2026-11-30-ablation-of-the-second-stage/logs"
CHANNEL = ("--no-python", "sh", "-c", "echo channel=$MUSTER_WORKER_CHANNEL; test -S \"$MUSTER_WORKER_CHANNEL\"")
READ_ONLY = "mount --bind {0} {0}; mount -o remount,bind,ro {0}; "


def folders_of_muster(*places):
    return {str(path) for place in places for path in pathlib.Path(place).glob("muster_*")}


class LogFolders(HardshipTest):
    def test_why_a_log_folder_cannot_be_made(self):
        """The reason is that of the first folder that is missing, not that of what would be in it."""
        read_only = "mount -t tmpfs x disk; mkdir disk/there; mount -o remount,ro disk"
        for mount, folder, reason in (
                (read_only, "disk/missing", "Read-only file system"),
                (read_only, "disk/there/a/b/c", "Read-only file system"),
                (read_only, "disk/there", "Read-only file system"),
                ("mount -t tmpfs -o nr_inodes=2 x disk; mkdir disk/there", "disk/there/a/b", "No space left on device"),
                ("mount -t tmpfs x disk; echo > disk/file", "disk/file/a/b", "Not a directory"),
                ("mount -t tmpfs x disk; ln -s nowhere disk/link", "disk/link/a", "No such file or directory"),
                ("true", f"disk/{'n' * 300}/a", "File name too long")):
            with self.subTest(folder=folder, reason=reason):
                (self.dir / "disk").mkdir(exist_ok=True)
                done = self.mounted(mount, "--standalone", f"--log-dir={folder}", "-r3", "--no-python", "true")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"in {self.dir / folder}: {reason} (--log-dir", done.stderr)


class Channel(HardshipTest):
    """The worker channel does not depend on where the logs are."""

    def check_channel(self, *args):
        before = folders_of_muster(self.memory, self.dir / "tmp")
        _, out, err = self.run_muster(*args, *CHANNEL, expect=0)
        self.assertRegex(out, r"channel=/\S+/channel")
        self.assertNotIn("worker_channel", err)
        self.assertEqual(folders_of_muster(self.memory, self.dir / "tmp"), before)
        # The folder may be in a place that all programs of the machine share.
        folder = pathlib.Path(re.search(r"channel=(/\S+)/channel", out).group(1))
        self.assertFalse(folder.exists(), folder)

    def test_a_long_log_folder(self):
        self.check_channel(f"--log-dir={LONG}", "-t3")
        self.assertTrue(list((self.dir / LONG).glob("*/attempt_0/0/stdout.log")))

    def test_a_long_run_id(self):
        self.check_channel("--log-dir=logs", "--rdzv-id=" + "a-long-name-of-a-run-" * 6)

    def test_no_log_folder(self):
        self.check_channel("--log-dir=/dev/null")

    def test_a_file_system_without_sockets(self):
        self.check_channel(f"--log-dir={self.mount()}/logs", "-t3")

    def test_a_temporary_folder_with_a_long_name(self):
        (self.dir / LONG).mkdir(parents=True)
        done = self.mounted("mount -t proc x /dev/shm; unset XDG_RUNTIME_DIR", "--standalone", "-t3", *CHANNEL,
                            env={"TMPDIR": str(self.dir / LONG)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"channel=(/tmp|/var/tmp|/usr/tmp)/muster_\w+/channel")

    def test_no_place_for_the_channel(self):
        (self.dir / LONG).mkdir(parents=True)
        places = " ".join(("/dev/shm", "/tmp", "/var/tmp"))
        done = self.mounted(f"for dir in {places}; do {READ_ONLY.format('$dir')} done; mount -t tmpfs x {self.dir}; "
                            f"mkdir -p {self.dir / LONG}; cd {self.dir / LONG}; unset XDG_RUNTIME_DIR TMPDIR",
                            "--standalone", "-t3", "--no-python", "sh", "-c", "echo channel=$MUSTER_WORKER_CHANNEL.")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("channel=.", done.stdout)
        self.assertRegex(done.stderr, "worker_channel_unavailable reason=.*File name too long")

    def test_a_log_folder_that_is_removed_while_the_job_runs(self):
        """The next attempt has a channel again."""
        for logs in ("logs", LONG):
            with self.subTest(logs):
                script = self.script("job.sh", "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then rm -rf ${MUSTER_WORKER_CHANNEL%/*}; "
                                               "exit 1; fi\ntest -S \"$MUSTER_WORKER_CHANNEL\"")
                self.run_muster("--standalone", f"--log-dir={logs}", "--max-restarts=1", "--no-python", "sh", script, expect=0)


class Identity(HardshipTest):
    """A folder's owner and number say nothing on many file systems. There they stop no job."""

    FAILS_TWICE = ("--standalone", "--max-restarts=4", "--no-python", "sh", "-c",
                   "echo $TORCHELASTIC_RESTART_COUNT >> ready; [ $TORCHELASTIC_RESTART_COUNT = 2 ]")

    def test_a_file_system_that_shows_one_owner(self):
        folder = self.mount(owner=4321)
        for place in ({}, {"TMPDIR": str(folder)}):
            with self.subTest(place):
                (self.dir / "ready").unlink(missing_ok=True)
                logs = [] if place else [f"--log-dir={folder}/new/logs"]
                self.run_muster(*logs, "-t3", "--failure-report", folder / "report", *self.FAILS_TWICE, expect=0,
                                env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", **place})
                self.assertEqual(self.read("ready"), "0\n1\n2\n")
        self.assertEqual(len(list((folder / "new/logs").glob("*/attempt_*/0/stdout.log"))), 3)

    def restarts_after(self, change, *options, env=None):
        """Calls `change` before the first and the second restart."""
        process = self.start(*options, "--standalone", "--max-restarts=4", "--no-python", "sh", "-c",
                             "n=$TORCHELASTIC_RESTART_COUNT; echo $n >> ready; while [ ! -e go$n ]; do sleep 0.01; done; "
                             "[ $n = 2 ]", env=env)
        for attempt in range(3):
            self.ready(attempt + 1)
            if attempt < 2:
                change()
            (self.dir / f"go{attempt}").touch()
        self.assertEqual(self.end_of(process), 0, self.read("err"))

    def test_numbers_that_change(self):
        """Without -r no log file keeps the folder's number."""
        folder = self.mount(owner=77)
        for options, env in (([f"--log-dir={folder}/logs"], {}), ([f"--log-dir={folder}/logs", "-r3"], {}),
                             (["-r3"], {"TMPDIR": str(folder)})):
            with self.subTest(options=options, env=env):
                for name in ("ready", "go0", "go1", "go2"):
                    (self.dir / name).unlink(missing_ok=True)
                self.restarts_after(self.fs.renumber, *options,
                                    env={"XDG_RUNTIME_DIR": "", "TORCHELASTIC_ENABLE_FILE_TIMER": "1", **env})
                self.assertNotIn("was removed", self.read("err"))

    def test_a_disk_that_is_mounted_again(self):
        """An overlay has a new device number after that."""
        for name in ("disk", "lower", "back/upper", "back/work", "other"):
            (self.dir / name).mkdir(parents=True)
        mount = "mount -t overlay -o lowerdir=lower,upperdir=back/upper,workdir=back/work x disk"
        again = f"n=$TORCHELASTIC_RESTART_COUNT; echo $n >> ready; [ $n = 2 ] || {{ umount -l disk; mount -t tmpfs x other; " \
                f"{mount}; exit 1; }}"
        done = self.mounted(f"mount -t tmpfs x back; mkdir back/upper back/work; {mount} 2>/dev/null || exit 77",
                            "--standalone", "--log-dir=disk/logs", "--max-restarts=3", "--no-python", "sh", "-c", again)
        if done.returncode == 77:
            self.skipTest("no overlay in this machine")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.read("ready"), "0\n1\n2\n")

    def test_a_file_system_that_another_one_takes_the_place_of(self):
        """Where the folder was made on this machine's own disk, a strange file system over it is refused: it may be
        another user's."""
        (self.dir / "logs").mkdir()
        process = self.start("--standalone", "--log-dir=logs", "-r3", "--max-restarts=2", "--no-python", "sh", "-c",
                             "echo x >> ready; while [ ! -e go ]; do sleep 0.01; done; exit 1")
        self.ready(1)
        run, = (self.dir / "logs").iterdir()
        (self.dir / "silent").symlink_to(run)
        self.mount()
        (self.dir / "go").touch()
        self.assertEqual(self.end_of(process), 1)
        self.assertIn("another user may have put it there", self.read("err"))
        self.assertEqual(os.listdir(run), [])


class TemporaryPlaces(HardshipTest):
    """Everything temporary goes to the first place that can be used, as torchrun's files do."""

    def in_read_only_container(self, *args, env=None, more="true", keeps=False):
        """Runs muster where nothing can be written but the working directory, self.dir/here."""
        places = "/dev/shm /tmp /var/tmp"
        disk = "--bind /mnt" if keeps else "-t tmpfs x"
        commands = f"mount --bind {self.dir} /mnt; for dir in {places}; do {READ_ONLY.format('$dir')} done; " \
                   f"mount {disk} {self.dir}; mkdir -p {self.dir}/here; cd {self.dir}/here; unset XDG_RUNTIME_DIR TMPDIR"
        return self.mounted(f"{commands}; {more}", "--standalone", *args, env=env)

    def test_only_the_working_directory_can_be_written(self):
        script = "echo error=$TORCHELASTIC_ERROR_FILE; echo timers=$TORCHELASTIC_TIMER_FILE; " \
                 "test -p $TORCHELASTIC_TIMER_FILE && test -S $MUSTER_WORKER_CHANNEL"
        for options in ((), ("-t3",), ("--log-dir=/dev/null",)):
            with self.subTest(options):
                done = self.in_read_only_container(*options, "--no-python", "sh", "-c", script,
                                                   env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                here = rf"{self.dir}/here/muster_\w+/"
                self.assertRegex(done.stdout, f"timers={here}timers")
                self.assertIn("cannot use /", done.stderr)
                if "/dev/null" not in str(options):
                    self.assertRegex(done.stdout, f"error={here}")

    def test_nothing_stays_in_the_working_directory(self):
        """Also not if the agent is killed: the others know where its files may be."""
        kill = "for p in $(cat /proc/$PPID/task/$PPID/children); do grep -q muster-agent /proc/$p/comm && kill -9 $p; done; sleep 9"
        (self.dir / "here").mkdir()
        for script, code in (("exit 0", 0), (kill, 1)):
            with self.subTest(script):
                done = self.in_read_only_container("-t3", "--no-python", "sh", "-c", script, keeps=True,
                                                   env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(f"they go to {self.dir}/here", done.stderr)
                self.assertEqual(os.listdir(self.dir / "here"), [])

    def test_no_place_at_all(self):
        """A job without logs can do without error files. One with logs cannot."""
        for options, code in (((), 0), (("-t3",), 1)):
            with self.subTest(options):
                done = self.in_read_only_container(*options, "--no-python", "sh", "-c", "echo file=$TORCHELASTIC_ERROR_FILE.",
                                                   more=f"mount -o remount,ro {self.dir}")
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, r"cannot make a directory for logs and error files in .*, "
                                              rf"{self.dir}/here: Read-only file system")
                self.assertEqual(done.stdout, "" if code else "file=.\n")

    def test_a_tmpdir_that_cannot_be_used(self):
        """File timers, and stacks of a job without logs."""
        (self.dir / "file").touch()
        for bad, reason in ((self.dir / "none", "No such file or directory"), (self.dir / "file", "Not a directory")):
            with self.subTest(reason):
                (self.dir / "ready").unlink(missing_ok=True)
                process = self.start("--standalone", "--log-dir=/dev/null", "--no-python", "sh", "-c",
                                     "test -p $TORCHELASTIC_TIMER_FILE && echo $TORCHELASTIC_TIMER_FILE >> ready; "
                                     "exec sleep 1000", env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TMPDIR": str(bad)})
                self.ready(1)
                self.assertRegex(self.read("ready"), r"^/tmp/muster_\w+/timers$")
                self.assertIn(f"cannot use {bad} ({reason}) for the timers' pipe: it goes to /tmp", self.read("err"))
                process.send_signal(12)
                wait_for(lambda: "/tmp/muster_stacks_" in self.read("err"), "stacks in /tmp")
                process.terminate()
                self.end_of(process)
                self.assertFalse(os.path.exists(self.read("ready").strip()))

    def test_a_file_system_without_named_pipes(self):
        _, out, err = self.run_muster("--standalone", "-r3", "--no-python", "sh", "-c", "test -p $TORCHELASTIC_TIMER_FILE",
                                      env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TMPDIR": str(self.mount())}, expect=0)
        self.assertIn(f"cannot use {self.dir}/silent (Function not implemented) for the timers' pipe", err)


if __name__ == "__main__":
    if silent_fs.available():
        own_mounts()
    main()
