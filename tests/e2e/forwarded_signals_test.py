#!/usr/bin/env python3
"""Tests --signals-to-forward: signals that reach the workers once and end neither muster nor the job."""
import os
import signal
import sys

from support import PATIENCE_S, MusterTest, agent_of, main, shim_of, wait_for

# Counts its signals, and ends when the file "finish" is there.
COUNTS = """
import os, signal, sys, time
rank = os.environ["RANK"]
def got(number, frame):
    with open("got", "a") as file:
        file.write(f"{rank}:{number}\\n")
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), got)
with open("ready", "a") as file:
    file.write(rank + "\\n")
while not os.path.exists("finish"):
    time.sleep(0.02)
"""
PASSED_ON = "passed on to"


class ForwardedSignals(MusterTest):
    def counts(self, *args, names=("SIGUSR1",), workers=2, env=None):
        script = self.script("counts.py", COUNTS)
        process = self.start("--standalone", f"--nproc-per-node={workers}", *args, "--no-python", sys.executable, script,
                             *names, env=env)
        self.ready(workers)
        return process

    def to_every_process(self, process, number):
        """As a scheduler's signal to a step. Here the sender may be held up between two of them, so muster's shim, which
        decides what they mean, handles them when all have been sent."""
        shim = shim_of(process.pid)
        os.kill(shim, signal.SIGSTOP)
        for pid in sorted(self.token.processes(), reverse=True):
            os.kill(pid, number)
        os.kill(shim, signal.SIGCONT)

    def got(self):
        return sorted(self.read("got").split())

    def finish(self, process):
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))

    def test_to_the_launcher_alone(self):
        process = self.counts(workers=3)
        for round_number in (1, 2):
            process.send_signal(signal.SIGUSR1)
            wait_for(lambda n=round_number: self.read("err").count(PASSED_ON) == n, "the line")
            wait_for(lambda n=round_number: self.got() == sorted([f"{rank}:10" for rank in range(3)] * n), "the workers")
        self.finish(process)

    def test_to_every_process_of_the_job(self):
        process = self.counts()
        self.to_every_process(process, signal.SIGUSR1)
        wait_for(lambda: "every process of the job has got" in self.read("err"), "the line")
        wait_for(lambda: len(self.got()) >= 2, "the workers")
        self.finish(process)
        self.assertEqual(self.got(), ["0:10", "1:10"])

    def test_to_every_process_while_workers_save_and_end(self):
        script = self.script("save.py", """
import signal, sys, time
def save(*_):
    time.sleep(1)
    open("saved." + sys.argv[1], "w").close()
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
open("ready", "a").write("x\\n")
time.sleep(1000)
""")
        process = self.start("--standalone", "--nproc-per-node=2", "--no-python", sys.executable, script, "${local_rank}")
        self.ready(2)
        self.to_every_process(process, signal.SIGUSR1)
        self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))
        self.assertEqual(sorted(path.name for path in self.dir.glob("saved.*")), ["saved.0", "saved.1"])

    def test_to_one_of_musters_processes(self):
        process = self.counts()
        os.kill(agent_of(process.pid), signal.SIGUSR1)  # It ignores it.
        os.kill(shim_of(process.pid), signal.SIGUSR1)   # As a worker sends it to its parent.
        wait_for(lambda: self.got() == ["0:10", "1:10"], "the workers")
        self.finish(process)

    def test_other_signals(self):
        names = ("SIGALRM", "SIGUSR2", "SIGRTMIN")
        process = self.counts("--signals-to-forward=SIGALRM,SIGUSR2,SIGRTMIN", names=names)
        for name in names:
            process.send_signal(getattr(signal, name))
        wait_for(lambda: len(self.got()) >= 2 * len(names), "all signals")
        self.finish(process)
        self.assertEqual(self.got(), sorted(f"{rank}:{int(getattr(signal, name))}" for rank in range(2) for name in names))
        self.assertNotIn("stacks", self.read("err"))

    def test_a_worker_that_does_not_catch_it_is_not_ended(self):
        process = self.counts(names=())
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: "no worker here catches" in self.read("err"), "the line")
        self.finish(process)

    def test_a_child_of_a_shell_gets_it(self):
        script = self.script("counts.py", COUNTS)
        shell = self.script("wrapper.sh", f"#!/bin/sh\n{sys.executable} {script} SIGUSR1\nexit $?\n")
        process = self.start("--standalone", "--no-python", shell)
        self.ready(1)
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: self.got() == ["0:10"], "the child of the shell")
        self.finish(process)

    def test_none(self):
        process = self.counts("--signals-to-forward=")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(PATIENCE_S), -signal.SIGUSR1)
        self.assert_nothing_left()

    def test_one_that_ends_the_job(self):
        process = self.counts("--signals-to-handle=SIGUSR1")
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: self.got() == ["0:10", "1:10"], "the workers")
        (self.dir / "finish").touch()
        self.assertEqual(process.wait(PATIENCE_S), 1)

    def test_one_that_was_ignored_stays_so(self):
        process = self.start("--standalone", "--no-python", "/bin/sh", "-c",
                             "grep SigIgn /proc/self/status > ignored; echo x >> ready; sleep 2",
                             before=["sh", "-c", "trap '' USR1; exec \"$@\"", "sh"])
        self.ready(1)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertTrue(int(self.read("ignored").split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
        self.assertNotIn("SIGUSR1", self.read("err"))

    def test_wrong_lists(self):
        for wrong in ("SIGKILL", "SIGTERM", "SIGINT", "SIGUSR1,SIGCHLD"):
            code, _, err = self.run_muster("--standalone", f"--signals-to-forward={wrong}", "--no-python", "/bin/true")
            self.assertEqual(code, 1, wrong)
            self.assertIn("--signals-to-forward", err)


if __name__ == "__main__":
    main()
