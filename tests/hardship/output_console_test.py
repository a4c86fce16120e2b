"""Readers of muster's output that are slow, stuck or gone, and consoles on full disks."""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time

import hardship
from support import MUSTER, PATIENCE_S, main, wait_for

# Without this variable the launcher prints a warning before there is a job, and waits for its reader.
QUIET = {"OMP_NUM_THREADS": "1"}


class ConsoleTest(hardship.HardshipTest):
    def pipe_muster(self, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, more=None,
                    **popen):
        process = subprocess.Popen([MUSTER, *map(str, args)], stdin=subprocess.DEVNULL,
                                   stdout=stdout, stderr=stderr, cwd=self.dir,
                                   env=self.environment(**(more or {})), **popen)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for stream in (process.stdout, process.stderr):
            if stream:
                self.addCleanup(stream.close)
        return process

    def fill_pipe(self):
        """A pipe that is full and that nobody reads."""
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        os.set_blocking(write_end, False)
        try:
            while True:
                os.write(write_end, b"x" * 4096)
        except BlockingIOError:
            pass
        os.set_blocking(write_end, True)
        return read_end, write_end


class Slow(ConsoleTest):
    def test_a_reader_that_comes_late_misses_nothing(self):
        for flags in ([], ["-t", "3", "--log-dir", "logs"]):
            with self.subTest(flags=flags):
                process = self.pipe_muster("--no-python", *flags, "sh", "-c",
                                           "seq 1 200000; echo LAST >&2; exit 3",
                                           stderr=subprocess.STDOUT)
                time.sleep(6)  # Longer than any bound that muster might have had.
                self.assertIsNone(process.poll())
                text = process.stdout.read().decode()
                self.assertEqual(process.wait(PATIENCE_S), 1)
                lines = [line.split("]:")[-1] for line in text.splitlines()]
                self.assertEqual([line for line in lines if line.isdigit()],
                                 [str(n) for n in range(1, 200001)])
                self.assertIn("LAST", lines)
                self.assertIn("ChildFailedError", text)

    def test_a_reader_that_comes_late_gets_the_rest_of_earlier_attempts_too(self):
        """stderr is a TCP socket: once it has room again, it has room for all that muster itself has kept. Then only
        the pipes of the first attempt still hold bytes."""
        workers, size = 16, 1_000_000
        with socket.create_server(("127.0.0.1", 0)) as server:
            stderr = socket.create_connection(server.getsockname())
            reader, _ = server.accept()
        self.addCleanup(reader.close)
        with stderr:
            process = self.pipe_muster("--no-python", f"--nproc-per-node={workers}", "--max-restarts=1", "sh", "-c",
                                       "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 1; "
                                       f"head -c {size} /dev/zero >&2; echo $LOCAL_RANK >> ready; "
                                       "[ $LOCAL_RANK != 0 ] && exec sleep 1000; "
                                       "until [ -e go ]; do sleep 0.05; done; exit 1",
                                       stdout=subprocess.DEVNULL, stderr=stderr, more=QUIET)
        self.ready(workers)
        (self.dir / "go").touch()
        # Front, shim and agent are left: both attempts are over.
        wait_for(lambda: len(self.token.processes()) == 3, "the end of both attempts")
        time.sleep(2)
        shown = 0
        while chunk := reader.recv(1 << 22):
            shown += chunk.count(0)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(shown, workers * size)

    def test_while_it_waits_for_stdout_it_says_so(self):
        process = self.pipe_muster("--no-python", "-t", "1", "--log-dir", "logs", "sh", "-c",
                                   "seq 1 200000")
        line = process.stderr.readline().decode()
        self.assertRegex(line, r"waiting for stdout to be read: \d+ bytes are left")
        text = process.stdout.read()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(len(text.splitlines()), 200000)

    def test_both_slow(self):
        process = self.pipe_muster("--no-python", "-t", "3", "--log-dir", "logs", "sh", "-c",
                                   "seq 1 100000; seq 1 100000 >&2; exit 1")
        time.sleep(3)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(len(out.splitlines()), 100000)
        self.assertEqual(err.count(b"[default0]:"), 100000)
        self.assertIn(b"Root Cause", err)


class Stuck(ConsoleTest):
    TWO = ("echo $$$$ >> pids; if [ $LOCAL_RANK = 0 ]; then while [ ! -e go ]; do sleep 0.05; done;"
           " echo boom >&2; exit 5; fi; exec sleep 1000")

    def test_peers_of_a_failed_worker_are_stopped_and_signals_end_muster(self):
        _, stuck = self.fill_pipe()
        process = self.pipe_muster("--no-python", "--nproc-per-node=2", "--event-log-handler=console",
                                   "--failure-report=report.json", "sh", "-c", self.TWO,
                                   stdout=subprocess.DEVNULL, stderr=stuck, more=QUIET)
        os.close(stuck)
        wait_for(lambda: len(self.read("pids").split()) == 2, "two workers")
        pids = [int(pid) for pid in self.read("pids").split()]
        (self.dir / "go").touch()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids),
                 "the end of both workers", 10)
        wait_for(lambda: (self.dir / "report.json").exists(), "the report", 10)
        self.assertIsNone(process.poll())  # What it has to say is not read yet.
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(15), 1)
        self.assertEqual(json.loads(self.read("report.json"))["failures"][0]["exitcode"], 5)

    def test_signals_end_workers_that_run(self):
        _, stuck = self.fill_pipe()
        process = self.pipe_muster("--no-python", "sh", "-c",
                                   "echo ready > ready; while :; do echo text >&2; done",
                                   stdout=subprocess.DEVNULL, stderr=stuck)
        os.close(stuck)
        self.ready(1)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: len(self.token.processes()) <= 3, "the end of the worker", 15)
        self.send_second_event(process)  # Somebody has become impatient.
        self.end_of(process, 15)

    def test_the_bytes_for_a_stuck_stdout_are_counted_after_a_signal(self):
        _, stuck = self.fill_pipe()
        process = self.pipe_muster("--no-python", "-t1", "--log-dir=logs", "sh", "-c",
                                   "seq 1 1000; exit 3", stdout=stuck)
        os.close(stuck)
        self.assertRegex(self.read_until(process.stderr, b"waiting for stdout"), b"waiting")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().decode()
        self.assertEqual(process.wait(15), 1)
        self.assertRegex(rest, r"\[muster: \d+ bytes could not be shown on stdout\]")

    def test_stdout_and_stderr_stuck_at_once(self):
        """One worker writes to both without an end, and the other one fails. One signal ends muster."""
        stuck = [self.fill_pipe()[1] for _ in range(2)]
        process = self.pipe_muster("--no-python", "--nproc-per-node=2", "--tee=3", "--log-dir=logs",
                                   "--failure-report=report.json", "sh", "-c",
                                   "echo $$$$ >> pids; echo text; echo text >&2; "
                                   "[ $LOCAL_RANK = 1 ] && while :; do echo text; echo text >&2; done; "
                                   "until [ -e go ]; do sleep 0.05; done; exit 5",
                                   stdout=stuck[0], stderr=stuck[1], more=QUIET)
        for descriptor in stuck:
            os.close(descriptor)
        wait_for(lambda: len(self.read("pids").split()) == 2, "two workers")
        pids = [int(pid) for pid in self.read("pids").split()]
        (self.dir / "go").touch()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of both workers", 10)
        wait_for(lambda: (self.dir / "report.json").exists(), "the report", 10)
        self.assertIsNone(process.poll())  # Its output is not read yet.
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end_of(process, 15), 1)
        self.assertEqual(self.report()["failures"][0]["exitcode"], 5)
        self.assert_nothing_left()

    @staticmethod
    def read_until(stream, wanted):
        text = b""
        while wanted not in text:
            line = stream.readline()
            if not line:
                break
            text += line
        return text

    def test_output_of_a_worker_with_a_stuck_reader_is_bounded(self):
        _, stuck = self.fill_pipe()
        process = self.pipe_muster("--no-python", "sh", "-c",
                                   "echo ready > ready; exec head -c 100000000 /dev/zero >&2",
                                   stdout=subprocess.DEVNULL, stderr=stuck)
        os.close(stuck)
        self.ready(1)
        agent = wait_for(lambda: hardship.processes_of_muster(process.pid)["agent"], "the agent")
        time.sleep(2)
        self.assertLess(hardship.memory_kb(agent), 20_000)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: len(self.token.processes()) <= 3, "the end of the worker", 15)
        self.send_second_event(process)
        self.end_of(process, 15)


class StuckAtTheEnd(ConsoleTest):
    """Nobody reads, and one of muster's processes is killed: those that are left end without a reader."""
    BOUND_S = 20

    def lose(self, name, *, both_streams=False):
        """Kills this process of a muster whose stderr is a full pipe, and with `both_streams` its stdout, too."""
        _, stuck = self.fill_pipe()
        process = self.pipe_muster("--no-python", "--nproc-per-node=2", "--failure-report=report.json", "sh", "-c",
                                   "echo $LOCAL_RANK >> ready; exec sleep 1000", stderr=stuck,
                                   stdout=stuck if both_streams else subprocess.DEVNULL, more=QUIET)
        os.close(stuck)
        self.ready(2)
        os.kill(hardship.processes_of_muster(process.pid)[name], signal.SIGKILL)
        self.assertEqual(self.end_of(process, self.BOUND_S), 1)
        self.assert_nothing_left()
        self.assert_no_files_left()

    def test_a_killed_agent_and_a_stuck_stderr(self):
        self.lose("agent")
        self.check_agent_lost("was killed by signal 9")

    def test_a_killed_agent_and_two_stuck_streams(self):
        self.lose("agent", both_streams=True)
        self.check_agent_lost("was killed by signal 9")

    def test_a_killed_agent_and_a_stuck_stderr_beside_a_log_file(self):
        """The worker writes to both while it saves: its log is whole."""
        _, stuck = self.fill_pipe()
        process = self.pipe_muster("--no-python", "-r1", "--log-dir=logs", "sh", "-c",
                                   "trap 'echo saving >&2; sleep 1; echo saved; exit' TERM; echo $LOCAL_RANK >> ready; "
                                   "while :; do sleep 0.05; done", stdout=subprocess.DEVNULL, stderr=stuck, more=QUIET)
        os.close(stuck)
        self.ready(1)
        os.kill(hardship.processes_of_muster(process.pid)["agent"], signal.SIGKILL)
        self.assertEqual(self.end_of(process, self.BOUND_S), 1)
        log, = (self.dir / "logs").rglob("stdout.log")
        self.assertEqual(log.read_text(), "saved\n")
        self.assert_nothing_left()

    def test_a_killed_shim_and_a_stuck_stderr(self):
        self.lose("shim")

    def test_a_killed_shim_and_two_stuck_streams(self):
        self.lose("shim", both_streams=True)


class Gone(ConsoleTest):
    def test_a_reader_that_goes_costs_its_output_alone(self):
        for which in ("stdout", "stderr", "both"):
            with self.subTest(which=which):
                process = self.pipe_muster(
                    "--no-python", "-t3", "--log-dir", which, "sh", "-c",
                    "trap '' PIPE; seq 1 100; echo e >&2; sleep 0.5; seq 1 50000; "
                    "seq 1 50000 >&2; exit 7")
                if which in ("stdout", "both"):
                    process.stdout.readline()
                    process.stdout.close()
                if which in ("stderr", "both"):
                    process.stderr.readline()
                    process.stderr.close()
                left = [s for s in (process.stdout, process.stderr) if not s.closed]
                while left:
                    for stream in select.select(left, [], [], PATIENCE_S)[0]:
                        if not os.read(stream.fileno(), 1 << 16):
                            left.remove(stream)
                self.assertEqual(process.wait(PATIENCE_S), 1)
                logs = {path.name: path.read_text() for path in (self.dir / which).rglob("*.log")}
                self.assertEqual(logs["stdout.log"].splitlines()[-1], "50000")
                self.assertEqual(logs["stderr.log"].splitlines()[-1], "50000")


class FullDisk(ConsoleTest):
    def setUp(self):
        super().setUp()
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", str(self.disk)],
                stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("needs root and mount(8), to make a small disk")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.disk)], check=False)

    def fill(self):
        with open(self.disk / "fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
            except OSError:
                pass

    def test_when_there_is_room_again_the_output_goes_on(self):
        with open(self.disk / "out", "wb") as out:
            process = self.pipe_muster("--no-python", "-t1", "--log-dir=logs", "sh", "-c",
                                       "echo first; echo x > ready; while [ ! -e go ]; do sleep 0.05; "
                                       "done; echo second; echo x >> ready; "
                                       "while [ ! -e more ]; do sleep 0.05; done; echo third",
                                       stdout=out)
        wait_for(lambda: (self.disk / "out").stat().st_size > 0, "the first line")
        self.fill()
        (self.dir / "out-page").touch()
        with open(self.disk / "out", "ab", buffering=0) as rest:  # What is left of its last page.
            try:
                rest.write(b"#" * 4095 + b"\n")
            except OSError:
                pass
        (self.dir / "go").touch()
        self.ready(2)
        time.sleep(0.5)
        (self.disk / "fill").unlink()
        (self.dir / "more").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        text = (self.disk / "out").read_text()
        self.assertIn("first\n", text)
        self.assertIn("third\n", text)

    def test_a_disk_that_stays_full_ends_no_job_and_is_counted(self):
        with open("/dev/full", "wb") as full:
            process = self.pipe_muster("--no-python", "-t1", "--log-dir=logs", "sh", "-c",
                                       "seq 1 500000", stdout=full)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0)
        lost = re.search(rb"\[muster: (\d+) bytes could not be shown on stdout\]", err)
        self.assertTrue(lost, err)
        prefixed = sum(len(f"[default0]:{n}\n") for n in range(1, 500001))
        self.assertEqual(int(lost[1]), prefixed)

    def test_logs_of_a_full_disk_go_on_when_there_is_room(self):
        with open(self.dir / "err", "wb") as err:
            process = self.pipe_muster("--no-python", "-r1", f"--log-dir={self.disk}", "sh", "-c",
                                       "echo x > ready; while [ ! -e go ]; do sleep 0.05; done; seq 1 1000; "
                                       "while [ ! -e more ]; do sleep 0.05; done; echo last", stderr=err)
        self.ready(1)
        self.fill()
        (self.dir / "go").touch()
        # The log thread has failed to write. The numbers are one write of the worker: none of them comes later.
        wait_for(lambda: "the disk of the logs is full" in self.read("err"), "the log thread to meet the full disk")
        (self.disk / "fill").unlink()
        (self.dir / "more").touch()
        self.assertEqual(self.end_of(process), 0)
        text = next(self.disk.rglob("stdout.log")).read_text()
        self.assertTrue(text.endswith("last\n"), text[-200:])
        missing = re.search(r"\[muster: (\d+) bytes are missing here", text)
        self.assertTrue(missing, text[-200:])


class Odd(ConsoleTest):
    def test_a_worker_that_closes_its_streams(self):
        process = self.pipe_muster("--no-python", "-t3", "--log-dir=logs", "sh", "-c",
                                   "echo before; exec >&- 2>&-; sleep 0.3; exit 4")
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(out, b"[default0]:before\n")
        self.assertIn(b"exitcode  : 4", err)

    def test_much_output_without_a_newline(self):
        size = int(os.environ.get("MUSTER_ONE_LINE_BYTES", 50_000_000))
        process = self.pipe_muster("--no-python", "-t1", "--log-dir=logs", "sh", "-c",
                                   f"head -c {size} /dev/zero | tr '\\0' x")
        agent = wait_for(lambda: hardship.processes_of_muster(process.pid)["agent"], "the agent")
        most, got = 0, 0
        while chunk := process.stdout.read1(1 << 20):
            got += chunk.count(b"x")
            most = max(most, hardship.memory_kb(agent) or 0)
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(got, size)
        self.assertGreater(most, 0)
        self.assertLess(most, 40_000)

    def test_binary_output_comes_unchanged_through_a_pipe(self):
        data = bytes(range(256)) * 1000
        (self.dir / "data").write_bytes(data)
        process = self.pipe_muster("--no-python", "sh", "-c", "cat data >&2")
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(err, data)

    def test_a_terminal(self):
        """The workers have it themselves; muster's own lines stand between theirs."""
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(MUSTER, [MUSTER, "--no-python", "--nproc-per-node=2", "sh", "-c",
                               "echo hello $LOCAL_RANK; touch on$LOCAL_RANK; "
                               "until [ -e on0 ] && [ -e on1 ]; do sleep 0.05; done; "
                               "echo oops >&2; exit 2"], self.environment())
        self.addCleanup(os.close, master)
        text = b""
        while select.select([master], [], [], PATIENCE_S)[0]:
            try:
                chunk = os.read(master, 65536)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        for word in (b"hello 0", b"hello 1", b"ChildFailedError", b"Root Cause"):
            self.assertIn(word, text)


if __name__ == "__main__":
    sys.exit(main())
