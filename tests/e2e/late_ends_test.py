#!/usr/bin/env python3
"""Tests what muster says and does about ends that others have caused: a rank that ended early, a reader that never
reads, keys of a terminal, a terminal that a killed worker had changed."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import termios
import time

from support import MUSTER, PATIENCE_S, MusterTest, Terminal, main, wait_for


class EarlyEnds(MusterTest):
    def test_a_rank_that_ended_with_0_before_the_failure(self):
        report = self.dir / "report.json"
        _, _, err = self.run_muster(
            "--standalone", "--nproc-per-node=3", f"--failure-report={report}", "--no-python", "/bin/sh", "-c",
            "[ $RANK = 2 ] && exit 0; sleep 1.7; [ $RANK = 0 ] && exit 9; sleep 1000", expect=1)
        self.assertEqual(err.count("rank 2 had ended with 0 before"), 2, err)  # At once, and in the report.
        failures = json.loads(report.read_text())["failures"]
        notes = {failure["rank"]: failure["notes"] for failure in failures}
        self.assertIn("rank 2 had ended with 0", notes[0][0])
        self.assertEqual(notes[1], [])


class Memory(MusterTest):
    def test_a_child_that_the_oom_killer_has_killed(self):
        memory = pathlib.Path("/sys/fs/cgroup/memory")
        if not os.access(memory / "memory.limit_in_bytes", os.R_OK) or os.geteuid() != 0:
            self.skipTest("needs root and cgroup v1")
        cgroup = memory / f"muster-test-{os.getpid()}"
        cgroup.mkdir()
        self.addCleanup(cgroup.rmdir)
        (cgroup / "memory.limit_in_bytes").write_text(str(400 << 20))  # With sanitizers, muster itself has some 40 MiB a process.
        worker = self.script("child.py", """
import os, sys
if os.fork() == 0:
    hold = []
    while True:
        hold.append(b"1" * (10 << 20))
os.wait()
sys.exit(1)
""")
        _, _, err = self.run_muster("--standalone", "--no-python", sys.executable, worker, expect=1, before=[
            "sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh"])
        self.assertRegex(err, rf"OOM killer has killed \d+ process(es)? of {cgroup}, which has a limit of 400.0 MiB")

    def test_a_bus_error_of_a_full_dev_shm(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        worker = self.script("bus.py", """
import mmap, os
file = os.open("/dev/shm/large", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 30 << 20)
memory = mmap.mmap(file, 30 << 20)
for at in range(0, 30 << 20, 4096):
    memory[at] = 1
""")
        _, _, err = self.run_muster("--standalone", "--no-python", sys.executable, worker, expect=1, before=[
            "unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=12m none /dev/shm; exec "$@"', "sh"],
            env={"XDG_RUNTIME_DIR": str(self.dir / "tmp")})
        self.assertIn("SIGBUS", err)
        self.assertIn("/dev/shm was full: 0.0 MiB of 12.0 MiB are free", err)


class Readers(MusterTest):
    def check_reader_that_never_reads(self, to):
        worker = self.script("noise.sh", f"#!/bin/sh\necho $RANK >> ready\nwhile :; do echo 0123456789abcdef{to}; done\n")
        process = self.start("--standalone", "--nproc-per-node=2", "--shutdown-timeout=3", "--no-python", worker,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.ready(2)
        time.sleep(0.5)  # The pipes fill.
        process.terminate()
        self.assertEqual(process.wait(40), 1)
        self.assert_nothing_left()

    def test_a_reader_that_never_reads_does_not_keep_a_stopped_job(self):
        self.check_reader_that_never_reads("")

    def test_a_reader_of_stderr_that_never_reads_does_not_keep_a_stopped_job(self):
        """Muster itself passes stderr on."""
        self.check_reader_that_never_reads(" >&2")


class Terminals(MusterTest):
    def terminal(self, line):
        terminal = Terminal(["/bin/bash", "--norc", "-c", line], env=self.environment(), cwd=self.dir)
        self.addCleanup(terminal.close)
        return terminal

    def test_ctrl_c_on_a_tail_leaves_a_job_under_nohup(self):
        worker = self.script("work.sh", "#!/bin/sh\necho x >> ready\nwhile [ ! -e finish ]; do sleep 0.05; done\n"
                                        "echo done\n")
        for key in (b"\x03", b"\x1c"):
            for name in ("ready", "finish", "log"):
                (self.dir / name).unlink(missing_ok=True)
            terminal = self.terminal(f"nohup {MUSTER} --standalone --no-python {worker} > log 2>&1 &\ntail -f /dev/null")
            self.ready(1)
            terminal.type(key)
            wait_for(lambda: "does not end this job" in self.read("log"), "the line about the key")
            (self.dir / "finish").touch()
            wait_for(lambda: "done" in self.read("log"), "the end of the worker")
            wait_for(lambda: not any(MUSTER in line for line in self.token.processes().values()), "the end of muster")

    def test_kill_still_ends_it(self):
        def ignore():
            for number in (signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        process = self.start("--standalone", "--no-python", "/bin/sh", "-c", "echo x >> ready; sleep 1000",
                             preexec_fn=ignore)
        self.ready(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 1)

    def test_a_terminal_that_a_killed_worker_had_changed(self):
        worker = self.script("raw.py", """
import os, sys, termios, time, tty
terminal = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
if os.environ["RANK"] == "0":
    tty.setraw(terminal)
    open("raw", "w").close()
    time.sleep(1000)
while not os.path.exists("raw"):
    time.sleep(0.02)
sys.exit(5)
""")
        argv = [MUSTER, "--standalone", "--nproc-per-node=2", "--no-python", sys.executable, str(worker)]
        terminal = Terminal(["/bin/sh", "-c", '"$@" $(tty); echo code $?; sleep 1000', "sh", *argv],
                            env=self.environment(), cwd=self.dir)
        self.addCleanup(terminal.close)
        self.addCleanup(terminal.process.kill)
        wait_for(lambda: "code 1" in terminal.read(), "the end of muster")
        self.assertTrue(termios.tcgetattr(terminal.master)[3] & (termios.ECHO | termios.ICANON))
        self.assertIn("another mode", terminal.read())


if __name__ == "__main__":
    main()
