"""Tests logs as the user finds them: rotation, full disks, filters, prefixes, unusual lines and OOM
kills."""
import os
import pathlib
import re
import subprocess
import sys

from support import MUSTER, PATIENCE_S, MusterTest, main, wait_for

# Writes numbered lines of 16 bytes, from 0, at full speed.
COUNT = """
import os, sys
lines = int(sys.argv[1])
out = os.fdopen(1, "wb", buffering=1 << 16, closefd=False)
for number in range(lines):
    out.write(b"%015d\\n" % number)
out.flush()
"""


class LogsTest(MusterTest):
    def jobs_logs(self, name="stdout.log", root="logs"):
        """{local rank: path} of the only attempt."""
        return {int(path.parent.name): path for path in (self.dir / root).rglob(name)}

    def run_bytes(self, *args, **more):
        self.run_muster(*args, expect=0, **more)
        return (self.dir / "out").read_bytes(), (self.dir / "err").read_bytes()


class Rotation(LogsTest):
    def test_the_first_and_the_last_block_stay_and_the_rest_is_counted(self):
        lines = 400_000
        self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-r1",
                        "--log-max-bytes=256K", self.script("count.py", COUNT), lines, expect=0)
        logs = self.jobs_logs()
        self.assertEqual(sorted(logs), [0, 1])
        for path in logs.values():
            text = path.read_bytes()
            self.assertTrue(text.startswith(b"%015d\n" % 0))
            self.assertTrue(text.endswith(b"%015d\n" % (lines - 1)))
            markers = re.findall(rb"\n\[muster: +(\d+) bytes were removed here\]\n", text)
            self.assertEqual(len(markers), 1)
            holes = text.count(b"\0")
            visible = len(text) - holes
            # muster checks the size every few milliseconds, so the file may exceed its limit for a
            # moment.
            self.assertLess(visible, lines * 16 / 2)
            marker = len("\n[muster:  bytes were removed here]\n") + 16
            self.assertEqual(visible - marker + int(markers[0]), lines * 16)

    def test_the_console_gets_every_line_once_and_in_order(self):
        lines = 400_000
        out, _ = self.run_bytes("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-t1",
                                "--log-max-bytes=128K", self.script("count.py", COUNT), lines)
        shown = out.splitlines()
        self.assertEqual(len(shown), 2 * lines)
        for rank in range(2):
            prefix = b"[default%d]:" % rank
            own = [line[len(prefix):] for line in shown if line.startswith(prefix)]
            self.assertEqual(own, [b"%015d" % number for number in range(lines)])
        for path in self.jobs_logs().values():
            self.assertIn(b"bytes were removed here", path.read_bytes())

    def test_a_file_below_the_limit_is_whole_and_takes_no_more_room_than_it_has(self):
        self.run_muster("--standalone", "--log-dir=logs", "-r3", "--log-max-bytes=1M",
                        self.script("count.py", COUNT), 1000, expect=0)
        path = self.jobs_logs()[0]
        self.assertEqual(path.read_bytes(), b"".join(b"%015d\n" % n for n in range(1000)))
        for name in ("stdout.log", "stderr.log"):
            file = self.jobs_logs(name)[0].stat()
            self.assertLessEqual(file.st_blocks * 512, file.st_size + 64 * 1024, name)

    def test_each_attempt_keeps_its_ends(self):
        script = self.script("twice.py", COUNT + "import os\n"
                             "sys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) == 0)\n")
        self.run_muster("--standalone", "--max-restarts=1", "--log-dir=logs", "-r1",
                        "--log-max-bytes=64K", script, 100_000, expect=0)
        paths = sorted((self.dir / "logs").rglob("stdout.log"))
        self.assertEqual([path.parent.parent.name for path in paths], ["attempt_0", "attempt_1"])
        for path in paths:
            text = path.read_bytes()
            self.assertTrue(text.startswith(b"%015d\n" % 0))
            self.assertTrue(text.endswith(b"%015d\n" % 99_999))

    def test_sizes_that_make_no_sense_are_refused(self):
        for size in ("", "x", "10", "-1M", "1T", "63K", "99999999999G"):
            with self.subTest(size=size):
                _, _, err = self.run_muster("--log-max-bytes=" + size, "x", expect=1)
                self.assertIn("--log-max-bytes", err)


class FullDisk(LogsTest):
    SIZE = 8 << 20

    def setUp(self):
        super().setUp()
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "tmpfs", str(self.disk)],
                stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("needs root and mount(8), to make a small disk")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.disk)], check=False)

    def fill(self):
        with open(self.disk / "fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass

    def test_drop_lets_workers_print_ten_times_the_size_of_the_disk(self):
        lines = self.SIZE * 10 // 16
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", f"--log-dir={self.disk}",
                                    "-r1", "--log-on-full=drop", self.script("count.py", COUNT),
                                    lines, expect=0)
        self.assertIn("the disk of the logs is full: " + str(self.disk), err)
        self.assertIn("tmpfs", err)
        for path in self.jobs_logs(root="disk").values():
            text = path.read_bytes()
            self.assertTrue(text.startswith(b"%015d\n" % 0))
            self.assertTrue(text.endswith(b"%015d\n" % (lines - 1)))

    def test_drop_never_drops_from_the_console(self):
        lines = 400_000
        out, _ = self.run_bytes("--standalone", "--nproc-per-node=2", f"--log-dir={self.disk}",
                                "-t1", "--log-on-full=drop", self.script("count.py", COUNT), lines)
        for rank in range(2):
            prefix = b"[default%d]:" % rank
            own = [line[len(prefix):] for line in out.splitlines() if line.startswith(prefix)]
            self.assertEqual(own, [b"%015d" % number for number in range(lines)])

    STEPS = """
import os, sys, time
open("ready", "a").write("x\\n")
sys.stdin.readline()
for number in range(20_000):           # 100 bytes each: 2 MB.
    os.write(1, b"%099d\\n" % number)
    if number % 1000 == 999:
        time.sleep(0.02)
"""

    def run_steps(self, *flags):
        """Runs a worker that begins to print after another process has filled the disk."""
        process = self.start("--standalone", f"--log-dir={self.disk}", "-r1", *flags,
                             self.script("steps.py", self.STEPS), stdin=subprocess.PIPE)
        self.ready(1)
        self.fill()
        process.stdin.write(b"go\n")
        process.stdin.close()
        return process.wait(PATIENCE_S), self.read("err")

    def test_by_default_a_full_disk_is_not_the_workers_matter(self):
        code, err = self.run_steps()
        self.assertEqual(code, 0, err)
        self.assertIn("the disk of the logs is full", err)
        self.assertRegex(err, r"\d+ bytes of log files were lost")

    def test_fail_ends_the_job_and_names_the_disk(self):
        code, err = self.run_steps("--log-on-full=fail", "--max-restarts=3", "--event-log-handler=console")
        self.assertEqual(code, 1, err)
        self.assertIn("the disk of the logs is full: " + str(self.disk), err)
        self.assertIn(f'"raw_error": "the disk of the logs is full: {self.disk}', err)
        self.assertNotIn("ChildFailedError", err)

    def test_a_disk_that_is_full_from_the_start(self):
        script = self.script("say.py", "import os\nos.write(1, b'out' * 100)\n"
                                       "os.write(2, b'the reason')\nos._exit(3)\n")
        # The disk has room for the directories, which are created before.
        for flag, expected in (("--log-on-full=drop", "the reason"),
                               ("--log-on-full=fail", "No space left on device")):
            with self.subTest(flag=flag):
                self.fill()
                code, _, err = self.run_muster("--standalone", f"--log-dir={self.disk}", "-r3",
                                               flag, script)
                self.assertEqual(code, 1)
                self.assertIn(expected, err)
                (self.disk / "fill").unlink()


class Load(LogsTest):
    def test_a_failure_is_seen_while_others_print_at_full_speed(self):
        """The test does not measure time: the printers would never end by themselves."""
        script = self.script("load.py", """
import os, sys
if os.environ["LOCAL_RANK"] == "2":
    sys.stdin.readline()
    sys.exit(5)
line = (b"x" * 127 + b"\\n") * 512
first = True
while True:
    os.write(1, line)
    if first:
        open("ready", "a").write("x\\n")
        first = False
""")
        process = self.start("--standalone", "--nproc-per-node=3", "--log-dir=logs", "-t1",
                             "--log-max-bytes=4M", script, stdin=subprocess.PIPE)
        self.ready(2)
        wait_for(lambda: (self.dir / "out").stat().st_size > 8 << 20, "8 MB on the console")
        process.stdin.write(b"go\n")
        process.stdin.close()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        err = self.read("err")
        self.assertRegex(err.split("Root Cause")[1], r"exitcode  : 5 ")
        self.assertEqual(err.count("stopped by muster, because rank 2 had failed"), 2)
        self.assert_nothing_left()

    def test_every_byte_is_in_the_files(self):
        lines = 3_000_000
        self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-t1",
                        self.script("count.py", COUNT), lines, expect=0)
        expected = b"".join(b"%015d\n" % number for number in range(lines))
        for path in self.jobs_logs().values():
            self.assertTrue(path.read_bytes() == expected, path)


class Oom(LogsTest):
    ROOT = pathlib.Path("/sys/fs/cgroup")

    def make_cgroup(self, limit):
        """Creates a memory cgroup below the root, for either version of cgroups. Returns its
        cgroup.procs."""
        v1, name = self.ROOT / "memory", f"muster-e2e-{os.getpid()}"
        path = (v1 if v1.is_dir() else self.ROOT) / name
        try:
            path.mkdir()
            self.addCleanup(lambda: wait_for(lambda: self.remove(path), f"rmdir {path}"))
            file = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
            (path / file).write_text(str(limit))
            swap = path / "memory.swap.max"
            if swap.exists():
                swap.write_text("0")
        except OSError as error:
            self.skipTest(f"cannot make a memory cgroup: {error}")
        return path / "cgroup.procs"

    @staticmethod
    def remove(path):
        try:
            path.rmdir()
            return True
        except OSError:
            return False

    def test_the_oom_killer_is_recognised(self):
        procs = self.make_cgroup(512 << 20)  # Enough for a muster with sanitizers.
        script = self.script("eat.py", "x = bytearray(1 << 30)\n")
        _, _, err = self.run_muster("--standalone", "--failure-report=report.json", script,
                                    expect=1, preexec_fn=lambda: procs.write_text("0"))
        self.assertIn("(SIGKILL)", err)
        self.assertIn("killed by the kernel's OOM killer: ", err)
        self.assertRegex(self.read("report.json"), r'"oom_evidence": "')

    def test_another_kill_9_is_not_called_an_oom_kill(self):
        _, _, err = self.run_muster("--standalone", "--no-python", "/bin/sh", "-c",
                                    "kill -9 $$$$", expect=1)
        self.assertIn("SIGKILL from outside (not muster)", err)
        self.assertNotIn("killed by the kernel", err)


class Report(LogsTest):
    def test_a_stderr_that_was_seen_and_empty_is_not_called_unknown(self):
        for flags in ([], ["-r2", "--log-dir=logs"]):
            with self.subTest(flags=flags):
                _, _, err = self.run_muster("--standalone", *flags, "--no-python", "/bin/sh", "-c",
                                            "exit 4", expect=1)
                self.assertIn("it wrote nothing to", err)
        _, _, err = self.run_muster("--standalone", "--capture-stderr=never", "--no-python",
                                    "/bin/sh", "-c", "exit 4", expect=1)
        self.assertIn("nothing of its stderr is known here", err)


class Options(LogsTest):
    def test_capture_stderr(self):
        script = self.script("tell.sh", "#!/bin/sh\n[ -p /dev/stderr ] && echo a pipe\n"
                                        "echo the reason >&2\nexit 3\n")
        for when, is_pipe in (("auto", True), ("always", True), ("never", False)):
            with self.subTest(when=when):
                _, out, err = self.run_muster("--standalone", f"--capture-stderr={when}",
                                              "--no-python", script, expect=1)
                self.assertEqual("a pipe" in out, is_pipe)
                self.assertIn("the reason\n", err)
                self.assertEqual("the reason" in err.split("Root Cause")[1], is_pipe)

    SAY = "#!/bin/sh\nfor word in loss=1 step=2 loss=3; do echo $word; echo $word >&2; done\n"

    def test_duplicate_filters(self):
        self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-t3",
                        "--duplicate-stdout-filters=loss", "--duplicate-stderr-filters=step,nope",
                        "--no-python", self.script("say.sh", self.SAY), expect=0)
        found = {path.name: sorted(path.read_text().splitlines())
                 for path in (self.dir / "logs").rglob("filtered_*.log")}
        self.assertEqual(found, {
            "filtered_stdout.log": sorted(f"[default{rank}]:loss={n}"
                                          for rank in range(2) for n in (1, 3)),
            "filtered_stderr.log": [f"[default{rank}]:step=2" for rank in range(2)]})

    def test_the_limit_of_a_log_is_one_of_the_filtered_lines_too(self):
        self.run_muster("--tee=1", "--log-dir=logs", "--log-max-bytes=64K", "--duplicate-stdout-filters=loss",
                        "--no-python", "sh", "-c", "seq -f loss=%.0f 1 20000", expect=0)
        path, = (self.dir / "logs").rglob("filtered_stdout.log")
        lines = path.read_text().splitlines()
        self.assertLessEqual(path.stat().st_size, 64 << 10)
        self.assertEqual((lines[0], lines[-1]), ("[default0]:loss=1", "[default0]:loss=20000"))

    def test_local_ranks_filter(self):
        script = self.script("rank.sh", "#!/bin/sh\necho out$LOCAL_RANK\necho err$LOCAL_RANK >&2\n")
        for flags in ([], ["-t3", "--log-dir=logs"]):
            with self.subTest(flags=flags):
                _, out, err = self.run_muster("--standalone", "--nproc-per-node=3",
                                              "--local-ranks-filter=0,2", *flags, "--no-python",
                                              script, expect=0)
                self.assertEqual(re.findall(r"out\d", "".join(sorted(out.splitlines()))),
                                 ["out0", "out2"])
                self.assertEqual(sorted(re.findall(r"err\d", err)), ["err0", "err2"])
        # The file contains the line nevertheless.
        self.assertEqual(self.jobs_logs()[1].read_text(), "out1\n")

    def test_prefix_template(self):
        template = "${time} ${host} ${role_name}/${rank}/${local_rank} $$ "
        _, out, _ = self.run_muster(
            "--standalone", "--role=trainer", "-t1", "--no-python", "/bin/echo", "hello", expect=0,
            env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": template})
        host = re.escape(os.uname().nodename)
        self.assertRegex(out, rf"^\d\d:\d\d:\d\d\.\d\d\d {host} trainer/0/0 \$ hello\n$")

    def test_prefix_template_of_the_option(self):
        # The option is stronger than its PET_ variable, and both are stronger than torchelastic's.
        _, out, _ = self.run_muster(
            "--standalone", "--nproc-per-node=2", "-t1", "--log-line-prefix-template=${hostname}:${rank}: ",
            "--no-python", "/bin/echo", "hello", expect=0,
            env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "a ", "PET_LOG_LINE_PREFIX_TEMPLATE": "b "})
        host = os.uname().nodename
        self.assertEqual(sorted(out.splitlines()), [f"{host}:0: hello", f"{host}:1: hello"])
        _, out, _ = self.run_muster(
            "--standalone", "-t1", "--no-python", "/bin/echo", "hello", expect=0,
            env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "a ", "PET_LOG_LINE_PREFIX_TEMPLATE": "b "})
        self.assertEqual(out, "b hello\n")


class OddOutput(LogsTest):
    def tee(self, text):
        """The console output of a worker that runs this Python text, without prefixes."""
        out, _ = self.run_bytes("--standalone", "-t1", "--log-dir=logs",
                                self.script("odd.py", "import os, sys\n" + text))
        return out

    def test_output_is_shown_before_the_worker_ends(self):
        script = self.script("prompt.py", "import sys\nprint('now', flush=True)\n"
                                          "sys.stdin.readline()\n")
        for flags in ([], ["-t1"]):
            with self.subTest(flags=flags):
                process = subprocess.Popen(
                    [MUSTER, "--standalone", *flags, str(script)], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, env=self.environment(), cwd=self.dir)
                self.addCleanup(process.stdout.close)
                self.addCleanup(process.kill)
                self.assertTrue(process.stdout.readline().endswith(b"now\n"))
                self.assertIsNone(process.poll())
                process.communicate(b"\n", PATIENCE_S)
                self.assertEqual(process.returncode, 0)

    def test_carriage_returns_leave_the_last_state(self):
        out = self.tee("os.write(1, b'0%\\r50%\\r100%\\ndone\\r\\n')")
        self.assertEqual(out, b"[default0]:100%\n[default0]:done\n")
        self.assertEqual(self.jobs_logs()[0].read_bytes(), b"0%\r50%\r100%\ndone\r\n")

    def test_a_last_line_without_newline(self):
        self.assertEqual(self.tee("os.write(1, b'no end')"), b"[default0]:no end\n")

    def test_a_line_of_a_megabyte(self):
        out = self.tee("print('x' * (1 << 20)); print('after')")
        self.assertEqual(out, b"[default0]:" + b"x" * (1 << 20) + b"\n[default0]:after\n")

    def test_every_byte_value(self):
        data = bytes(b for b in range(256) if b not in b"\r\n")
        out = self.tee("os.write(1, bytes(b for b in range(256) if b not in b'\\r\\n') + b'\\n')")
        self.assertEqual(out, b"[default0]:" + data + b"\n")
        self.assertEqual(self.jobs_logs()[0].read_bytes(), data + b"\n")


if __name__ == "__main__":
    sys.exit(main())
