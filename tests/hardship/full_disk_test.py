#!/usr/bin/env python3
"""A disk that is full in one phase of a job and has room in another: the job's exit status stays its own."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

from hardship import HardshipTest, own_mounts
from support import main, wait_for

PAGE = 4096
# Prints a number of lines, writes an error file, waits until the test lets this attempt go on, prints again and ends.
WORKER = """#!/bin/sh
n=$TORCHELASTIC_RESTART_COUNT
echo "begin $n"; echo "begin $n" >&2
exec 3< gate.$n
[ -e early ] && echo '{"message": "early"}' > $TORCHELASTIC_ERROR_FILE
echo $n >> ready
read line <&3
seq 1 5000
[ -e message ] && cat message > $TORCHELASTIC_ERROR_FILE
echo "reason $n" >&2
exit $(cat code.$n)
"""
NO_SPACE = "No space left on device"
LINES = "".join(f"{number}\n" for number in range(1, 5001))


class Disk:
    """A small file system in memory, which the test fills."""

    def __init__(self, path, *, size=1 << 20, names=200):
        self.path = path
        path.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={names}", "tmpfs", str(path)], check=True)

    def unmount(self):
        subprocess.run(["umount", "-l", str(self.path)], stderr=subprocess.DEVNULL, check=False)

    def fill_bytes(self, *, leave_pages=0):
        with open(self.path / "fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(PAGE))
            except OSError:
                pass
            file.truncate(max(0, file.tell() - leave_pages * PAGE))

    def fill_names(self):
        (self.path / "names").mkdir()
        try:
            for number in range(100_000):
                (self.path / f"names/{number}").touch()
        except OSError:
            pass

    def fill(self, what):
        self.fill_bytes() if what == "bytes" else self.fill_names()

    def make_room(self):
        subprocess.run(["rm", "-rf", str(self.path / "fill"), str(self.path / "names")], check=True)

    def files(self):
        """{path: content} of what the test did not write to fill the disk."""
        return {str(path.relative_to(self.path)): path.read_text(errors="replace")
                for path in self.path.rglob("*") if path.is_file() and path.name != "fill" and path.parent.name != "names"}


class FullDiskTest(HardshipTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root, to make a small disk")
        self.disk = self.mount(self.dir / "disk")
        self.gates = []

    def environment(self, **more):
        return {**super().environment(), **more}

    def mount(self, path, **options):
        disk = Disk(path, **options)
        self.addCleanup(disk.unmount)
        return disk

    def begin(self, *args, codes=(7, 8), **more):
        """A job whose attempts end with these codes; the last one's is the job's exit status."""
        (self.dir / "ready").unlink(missing_ok=True)
        self.gates = []
        for attempt, code in enumerate(codes):
            (self.dir / f"code.{attempt}").write_text(str(code))
            (self.dir / f"gate.{attempt}").unlink(missing_ok=True)
            self.gates.append(self.gate(f"gate.{attempt}"))
        return self.start("--standalone", "--no-python", "--exit-code=propagate", f"--max-restarts={len(codes) - 1}",
                          *args, self.script("worker.sh", WORKER), **more)

    def finish_attempt(self, attempt):
        self.ready(attempt + 1)
        self.gates[attempt].open()

    def finish(self, process, *, attempts=2):
        for attempt in range(attempts):
            self.finish_attempt(attempt)
        return self.end_of(process)

    def logs(self, root):
        """[text of stdout.log] by attempt."""
        return [path.read_text(errors="replace") for path in sorted(pathlib.Path(root).rglob("stdout.log"))]

    def check_second_log(self):
        """There was room before its worker went on: at most its first line is missing, and a line says so."""
        text = self.logs(self.disk.path)[1]
        self.assertTrue(text.endswith("\n" + LINES), text[-200:])
        first_line = text[:-len(LINES)]
        self.assertIn(first_line, ("begin 1\n", "\n[muster: 8 bytes are missing here: they could not be written]\n"))


class LogFolder(FullDiskTest):
    def test_full_before_the_job_and_room_for_the_second_attempt(self):
        self.disk.fill_bytes()
        process = self.begin(f"--log-dir={self.disk.path}", "--redirects=3")
        self.finish_attempt(0)
        self.ready(2)
        self.disk.make_room()
        self.finish_attempt(1)
        self.assertEqual(self.end_of(process), 8)
        self.assertIn("the disk of the logs is full: " + str(self.disk.path), self.read("err"))
        self.check_second_log()
        self.assertIn("reason 1", self.read("err"))

    def test_no_names_before_the_job(self):
        self.disk.fill_names()
        process = self.begin(f"--log-dir={self.disk.path}", "--redirects=3", "--failure-report=report.json")
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("ready"), "")
        self.assertIn(f"in {self.disk.path}: {NO_SPACE} (--log-dir chooses another place)", self.read("err"))
        self.assertIn(NO_SPACE, self.report()["reason"])

    def test_no_names_for_the_second_attempt(self):
        process = self.begin(f"--log-dir={self.disk.path}", "--redirects=3", "--failure-report=report.json")
        self.ready(1)
        self.disk.fill_names()
        self.finish_attempt(0)
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("ready"), "0\n")
        self.assertIn(NO_SPACE, self.read("err"))
        report = self.report()
        self.assertEqual(report["ended_by"], "start_failed")
        self.assertIn(NO_SPACE, report["reason"])
        self.assertEqual([(one["attempt"], one["exitcode"]) for one in report["earlier_attempts"]], [(0, 7)])
        self.assertEqual(self.logs(self.disk.path), ["begin 0\n" + LINES])

    def test_full_between_attempts_and_room_again(self):
        process = self.begin(f"--log-dir={self.disk.path}", "--tee=3")
        self.ready(1)
        self.disk.fill_bytes()
        self.finish_attempt(0)
        self.ready(2)
        self.assertIn("the disk of the logs is full", self.read("err"))
        self.disk.make_room()
        self.finish_attempt(1)
        self.assertEqual(self.end_of(process), 8)
        first = self.logs(self.disk.path)[0]
        whole = "begin 0\n" + LINES
        self.assertTrue(whole.startswith(first) and len(first) < len(whole), first[-200:])
        self.check_second_log()
        self.assertRegex(self.read("err"), r"\d+ bytes of log files were lost")
        shown = [line.partition(":")[2] for line in self.read("out").splitlines()]
        self.assertTrue(shown == ["begin 0", *LINES.split(), "begin 1", *LINES.split()], shown[-10:])


class Temporary(FullDiskTest):
    def begin_in_disk(self, codes=(7, 8), **more):
        """The logs go to TMPDIR."""
        return self.begin("--redirects=3", "--failure-report=report.json", codes=codes,
                          env={"TMPDIR": str(self.disk.path), **more})

    def test_full_before_the_job(self):
        """The next place is used, and a line says so."""
        for what in ("bytes", "names"):
            with self.subTest(what):
                self.disk.fill(what)
                process = self.begin_in_disk()
                self.assertEqual(self.finish(process), 8)
                self.assertIn(f"cannot use {self.disk.path} ({NO_SPACE}) for error files and logs: they go to /tmp\n",
                              self.read("err"))
                self.assertEqual(self.disk.files(), {})
                stderr_file = pathlib.Path(self.report()["failures"][0]["stderr_file"])
                self.assertEqual(stderr_file.parts[:2], ("/", "tmp"))
                self.assertEqual(stderr_file.read_text(), "begin 1\nreason 1\n")
                subprocess.run(["rm", "-rf", *pathlib.Path("/tmp").glob(stderr_file.parts[2])], check=True)
                self.disk.make_room()

    def test_no_names_for_the_second_attempt(self):
        process = self.begin_in_disk()
        self.ready(1)
        self.disk.fill_names()
        self.finish_attempt(0)
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("ready"), "0\n")
        self.assertIn(NO_SPACE, self.report()["reason"])

    def test_full_between_attempts_and_room_again(self):
        process = self.begin_in_disk()
        self.ready(1)
        self.disk.fill_bytes()
        self.finish_attempt(0)
        self.ready(2)
        self.disk.make_room()
        self.finish_attempt(1)
        self.assertEqual(self.end_of(process), 8)
        self.check_second_log()

    def test_no_name_for_the_pipe_of_file_timers(self):
        self.disk.fill_names()
        process = self.begin_in_disk(codes=(0,), TORCHELASTIC_ENABLE_FILE_TIMER="1")
        self.ready(1)
        self.assertIn(f"cannot use {self.disk.path} ({NO_SPACE}) for the timers' pipe: it goes to /tmp\n", self.read("err"))
        self.finish_attempt(0)
        self.assertEqual(self.end_of(process), 0)
        self.assert_no_files_left()

    def test_stacks_that_do_not_fit_on_the_disk(self):
        """SIGUSR2 asks for stacks: a line says why there are none, and the job goes on."""
        for what in ("bytes", "names"):
            with self.subTest(what):
                process = self.begin_in_disk(codes=(0,))
                self.ready(1)
                self.disk.fill(what)
                process.send_signal(signal.SIGUSR2)
                problem = rf"cannot write (all of )?\S*/stacks\.0\.txt: {NO_SPACE}"
                wait_for(lambda: re.search(problem, self.read("err")), "a line about the stacks")
                self.disk.make_room()
                self.assertEqual(self.finish(process, attempts=1), 0)


class Reports(FullDiskTest):
    def begin_job(self, **more):
        # All other files of muster and of the workers are on another disk.
        return self.begin(f"--failure-report={self.disk.path}/report.json", "--log-dir=logs",
                          env={"TORCHELASTIC_ERROR_FILE": f"{self.disk.path}/error.json"}, **more)

    def check_unwritten(self, expected_files):
        err = self.read("err")
        self.assertIn(f"cannot write the failure report to {self.disk.path}/report.json: {NO_SPACE}", err)
        self.assertIn(f"cannot write the error file to {self.disk.path}/error.json: {NO_SPACE}", err)
        self.assertEqual(self.disk.files(), expected_files)
        self.assertIn("ChildFailedError", err)
        self.assertIn("reason 1", err)

    def check_whole(self):
        files = self.disk.files()
        self.assertEqual(set(files), {"report.json", "error.json"})
        self.assertEqual(json.loads(files["report.json"])["failures"][0]["exitcode"], 8)
        self.assertEqual(json.loads(files["error.json"])["message"]["errorCode"], 8)
        self.assertNotIn("cannot write", self.read("err"))

    def fill_in(self, phase, what):
        """A job on whose disk there is no room from this phase on."""
        if phase == "before":
            self.disk.fill(what)
        process = self.begin_job()
        self.ready(1)
        if phase == "between":
            self.disk.fill(what)
        self.finish_attempt(0)
        self.ready(2)
        if phase == "report":
            self.disk.fill(what)
        return process

    def phases(self, what):
        for phase in ("before", "between", "report"):
            with self.subTest(phase):
                process = self.fill_in(phase, what)
                self.gates[1].open()
                self.assertEqual(self.end_of(process), 8)
                self.check_unwritten({})
                self.disk.make_room()

    def test_no_bytes(self):
        self.phases("bytes")

    def test_no_names(self):
        self.phases("names")

    def test_room_again_before_the_report(self):
        process = self.fill_in("before", "bytes")
        self.disk.make_room()
        self.gates[1].open()
        self.assertEqual(self.end_of(process), 8)
        self.check_whole()

    def test_a_report_that_fits_in_part(self):
        """Its first page can be written, and the rest cannot."""
        (self.dir / "message").write_text(json.dumps({"message": "much " * 2000}))
        process = self.begin_job()
        self.finish_attempt(0)
        self.ready(2)
        self.disk.fill_bytes(leave_pages=1)
        self.gates[1].open()
        self.assertEqual(self.end_of(process), 8)
        (self.disk.path / "fill").unlink()
        self.check_unwritten_in_part()

    def check_unwritten_in_part(self):
        err = self.read("err")
        self.assertIn(f"cannot write the failure report to {self.disk.path}/report.json: {NO_SPACE}", err)
        self.assertIn(f"cannot write the error file to {self.disk.path}/error.json: {NO_SPACE}", err)
        self.assertEqual(self.disk.files(), {})

    def test_an_old_report_stays(self):
        """The old file stays whole as long as the new one is not complete."""
        for name in ("report.json", "error.json"):
            (self.disk.path / name).write_text("old")
        process = self.fill_in("report", "bytes")
        self.gates[1].open()
        self.assertEqual(self.end_of(process), 8)
        self.check_unwritten({"report.json": "old", "error.json": "old"})

    def test_a_file_that_cannot_be_replaced(self):
        """Such a file is written in place. On a full disk it becomes empty: half a report would look like a report."""
        inside = self.dir / "inside.json"
        inside.touch()
        behind = self.disk.path / "behind"
        behind.touch()
        subprocess.run(["mount", "--bind", str(behind), str(inside)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(inside)], check=False)
        (self.dir / "message").write_text(json.dumps({"message": "much " * 2000}))
        process = self.begin(f"--failure-report={inside}", "--log-dir=logs", codes=(7,))
        self.ready(1)
        self.disk.fill_bytes(leave_pages=1)
        self.gates[0].open()
        self.assertEqual(self.end_of(process), 7)
        self.assertIn(f"cannot write the failure report to {inside}: {NO_SPACE}", self.read("err"))
        self.assertEqual(self.disk.files(), {"behind": ""})

    def test_the_report_of_a_lost_agent(self):
        process = self.fill_in("report", "bytes")
        self.victim(process, "agent").send_signal(signal.SIGKILL)
        self.assertEqual(self.end_of(process), 1)
        self.assertIn(f"cannot write the failure report to {self.disk.path}/report.json: {NO_SPACE}", self.read("err"))
        self.assertEqual(self.disk.files(), {})

    def test_the_report_of_a_job_that_is_refused(self):
        self.disk.fill_bytes()
        process = self.start("--nproc-per-node=x", f"--failure-report={self.disk.path}/report.json", "x.py")
        self.assertEqual(self.end_of(process), 1)
        self.assertIn(f"cannot write the failure report to {self.disk.path}/report.json: {NO_SPACE}", self.read("err"))
        self.assertIn("--nproc-per-node", self.read("err"))
        self.assertEqual(self.disk.files(), {})


class Memory(FullDiskTest):
    """The worker's error file, in memory: in XDG_RUNTIME_DIR, or in /dev/shm."""
    MESSAGE = json.dumps({"message": "out of luck"})

    def in_memory(self):
        """Both places, each a small disk: (environment, disk)"""
        yield {"XDG_RUNTIME_DIR": str(self.disk.path)}, self.disk
        shared = self.mount(pathlib.Path("/dev/shm"))
        yield {"XDG_RUNTIME_DIR": ""}, shared
        shared.unmount()

    def begin_in(self, env, **more):
        (self.dir / "report.json").unlink(missing_ok=True)
        return self.begin("--failure-report=report.json", env=env, **more)

    def check_nothing_left(self, disk):
        disk.make_room()
        wait_for(lambda: not list(disk.path.iterdir()), "an empty disk", 10)
        self.assertEqual(os.listdir(self.dir / "tmp"), [])

    def test_full_while_the_worker_fails(self):
        (self.dir / "message").write_text(self.MESSAGE)
        for env, disk in self.in_memory():
            with self.subTest(disk.path):
                process = self.begin_in(env, codes=(7,))
                self.ready(1)
                disk.fill_bytes()
                self.gates[0].open()
                self.assertEqual(self.end_of(process), 7)
                failure = self.report()["failures"][0]
                self.assertEqual((failure["exitcode"], failure["error"]), (7, None))
                self.assertIn("reason 0", failure["stderr_tail"])
                self.assertIn("reason 0", self.read("err"))
                self.check_nothing_left(disk)

    def test_an_error_file_that_fits_in_part(self):
        (self.dir / "message").write_text(json.dumps({"message": "much " * 2000}))
        for env, disk in self.in_memory():
            with self.subTest(disk.path):
                process = self.begin_in(env, codes=(7,))
                self.ready(1)
                disk.fill_bytes(leave_pages=1)
                self.gates[0].open()
                self.assertEqual(self.end_of(process), 7)
                self.assertIn("its error file cannot be read: ", self.read("err"))
                failure = self.report()["failures"][0]
                self.assertIsNotNone(failure["error_file_defect"])
                self.assertIn("reason 0", failure["stderr_tail"])

    def test_full_in_the_first_attempt_and_room_in_the_second(self):
        (self.dir / "message").write_text(self.MESSAGE)
        for env, disk in self.in_memory():
            with self.subTest(disk.path):
                process = self.begin_in(env)
                self.ready(1)
                disk.fill_bytes()
                self.finish_attempt(0)
                self.ready(2)
                disk.make_room()
                self.finish_attempt(1)
                self.assertEqual(self.end_of(process), 8)
                report = self.report()
                self.assertEqual(report["failures"][0]["error"]["message"], "out of luck")
                self.assertEqual([(one["exitcode"], one["cause"]) for one in report["earlier_attempts"]],
                                 [(7, "reason 0")])

    def without_names(self, *, attempts):
        """The names on the disk are used up in the first attempt."""
        for env, disk in self.in_memory():
            with self.subTest(disk.path):
                process = self.begin_in(env)
                self.ready(1)
                disk.fill_names()
                self.assertEqual(self.finish(process, attempts=attempts), 8 if attempts == 2 else 1)
                yield disk

    def test_no_names_for_the_second_attempt(self):
        """The second attempt uses the names of the first one, which has left no file."""
        (self.dir / "message").write_text(self.MESSAGE)
        for disk in self.without_names(attempts=2):
            failure = self.report()["failures"][0]
            self.assertEqual((failure["exitcode"], failure["error"]), (8, None))
            self.assertIn("reason 1", failure["stderr_tail"])
            self.check_nothing_left(disk)

    def test_no_names_for_the_second_attempt_beside_the_first_ones_error_file(self):
        (self.dir / "early").touch()
        for _ in self.without_names(attempts=1):
            report = self.report()
            self.assertIn(NO_SPACE, report["reason"])
            self.assertEqual([one["cause"] for one in report["earlier_attempts"]], ["early"])


if __name__ == "__main__":
    if os.geteuid() == 0:
        own_mounts()
    sys.exit(main())
