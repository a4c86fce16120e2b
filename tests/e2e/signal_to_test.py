#!/usr/bin/env python3
"""Tests --signal-to: a worker that catches the signal that ends it gets it before its helpers do."""
import os
import signal
import sys
import time

from support import PATIENCE_S, MusterTest, agent_of, main, one_second, wait_for

COUNT = int(os.environ.get("MUSTER_SAVES", "1"))  # 50 is the long form.

# Asks a helper of its own group for an answer before it can save. argv: what the handler and the helper do.
SAVES = """
import os, signal, sys, time
rank = os.environ["RANK"]
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
def note(name, text=""):
    with open(name + "." + rank, "a") as file:
        file.write(text + "\\n")
to_helper = os.pipe()
to_leader = os.pipe()
helper = os.fork()
if helper == 0:
    os.close(to_helper[1]); os.close(to_leader[0])
    if "helper-notes" in sys.argv:
        def noted(number, frame):
            note("helper", str(number))
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, noted)
        note("helper-ready")
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        note("helper-ready")
        os.read(to_helper[0], 1)
        if "slow" in sys.argv:
            time.sleep(5)
        os.write(to_leader[1], b"x")
    time.sleep(1000)
os.close(to_helper[0]); os.close(to_leader[1])
def save(number, frame):
    note("asked", str(number))
    if "hangs" in sys.argv:
        time.sleep(1000)
    if "helper-notes" not in sys.argv:
        try:
            os.write(to_helper[1], b"x")
            answer = os.read(to_leader[0], 1)
        except BrokenPipeError:
            answer = b""
        if answer == b"x":
            note("saved", attempt)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save)
while not os.path.exists("helper-ready." + rank):
    time.sleep(0.01)
with open("ready", "a") as file:
    file.write(rank + "\\n")
while True:
    time.sleep(0.05)
    if "fails" in sys.argv and rank == "1" and attempt == "0" and os.path.exists("fail"):
        sys.exit(5)
    if attempt == "1":
        os._exit(0)
"""


class SignalTo(MusterTest):
    @staticmethod
    def state_of(pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    def saves(self, *words, options=(), workers=2, **popen):
        script = self.script("saves.py", SAVES)
        process = self.start("--standalone", f"--nproc-per-node={workers}", *options, "--no-python", sys.executable,
                             script, *words, **popen)
        self.ready(workers)
        return process

    def texts(self, name, workers=2):
        return [self.read(f"{name}.{rank}").split() if (self.dir / f"{name}.{rank}").exists() else []
                for rank in range(workers)]

    def test_a_worker_that_saves_with_a_helper_of_its_group(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                process = self.saves(workers=3)
                process.send_signal(number)
                self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
                self.assertEqual(self.texts("asked", 3), [[str(int(number))]] * 3)
                self.assertEqual(self.texts("saved", 3), [["0"]] * 3, self.read("err"))
                self.assert_nothing_left()
                for file in [*self.dir.glob("*.[0-2]"), self.dir / "ready"]:
                    file.unlink()

    def test_a_handler_that_needs_its_helper_for_five_seconds(self):
        for number in range(COUNT):
            with self.subTest(number):
                process = self.saves("slow")
                process.terminate()
                self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
                self.assertEqual(self.texts("saved"), [["0"], ["0"]], self.read("err"))
                self.assert_nothing_left()
                for file in [*self.dir.glob("*.[01]"), self.dir / "ready"]:
                    file.unlink()

    def test_after_ctrl_z(self):
        # A person types ctrl-Z: muster stops its workers, and then itself. Then somebody ends the job: muster continues the
        # workers, and they save.
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                process = self.saves(preexec_fn=os.setpgrp)  # A shell gives each job a group.
                os.killpg(process.pid, signal.SIGTSTP)
                stopped = [pid for pid, words in self.token.processes().items() if words.startswith(sys.executable)]
                self.assertEqual(len(stopped), 4)  # Two workers with their helpers.
                wait_for(lambda: all(self.state_of(pid) == "T" for pid in [process.pid, *stopped]), "all to be stopped")
                os.killpg(process.pid, number)
                os.killpg(process.pid, signal.SIGCONT)
                self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
                self.assertEqual(self.texts("asked"), [[str(int(number))]] * 2)
                self.assertEqual(self.texts("saved"), [["0"], ["0"]], self.read("err"))
                self.assert_nothing_left()
                for file in [*self.dir.glob("*.[01]"), self.dir / "ready"]:
                    file.unlink()

    def test_the_whole_group_at_once_as_torchrun_does(self):
        process = self.saves(options=["--signal-to=group"])
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        self.assertEqual(self.texts("asked"), [["15"], ["15"]])
        self.assertEqual(self.texts("saved"), [[], []])

    def test_the_rest_of_the_group_gets_the_signal_when_the_worker_has_ended(self):
        process = self.saves("helper-notes")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        self.assertEqual(self.texts("helper"), [["15"], ["15"]])

    def test_the_rest_of_the_group_gets_the_signal_before_all_are_killed(self):
        process = self.saves("helper-notes", "hangs", options=["--shutdown-timeout=4"])
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        self.assertEqual(self.texts("helper"), [["15"], ["15"]])
        self.assertEqual(self.texts("asked"), [["15"], ["15"]])  # Not a second time.
        self.assert_nothing_left()

    def test_after_another_worker_has_failed(self):
        process = self.saves("fails", options=["--max-restarts=1"])
        (self.dir / "fail").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0, self.read("err"))
        self.assertEqual(self.texts("saved"), [["0"], []])

    def test_without_the_agent(self):
        process = self.saves()
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        self.assertEqual(self.texts("saved"), [["0"], ["0"]])
        self.assert_nothing_left()

    def test_a_second_signal_kills_at_once(self):
        process = self.saves("helper-notes", "hangs", options=["--shutdown-timeout=1000"])
        process.terminate()
        wait_for(lambda: self.texts("asked") == [["15"], ["15"]], "the first signal")
        time.sleep(1.2 * one_second())  # A signal within a second belongs to the same event.
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        self.assert_nothing_left()

    def test_a_shell_with_a_trap_does_not_keep_the_signal_from_its_program(self):
        program = self.script("program.py", """
import signal, sys, time
def save(*_):
    open("program-saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("ready", "a").write("x\\n")
time.sleep(1000)
""")
        for shell in ("/bin/sh", "/bin/bash"):
            with self.subTest(shell):
                wrapper = self.script("wrapper.sh", f"#!{shell}\ntrap 'echo trapped' TERM\n{sys.executable} {program}\n"
                                                    "touch wrapper-ended\n")
                process = self.start("--standalone", "--shutdown-timeout=1000", "--no-python", wrapper)
                self.ready(1)
                process.terminate()
                self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
                for name in ("program-saved", "wrapper-ended", "ready"):
                    (self.dir / name).unlink()


if __name__ == "__main__":
    main()
