#!/usr/bin/env python3
"""Tests that no worker and no child of a worker outlives muster, however muster ends."""
import os
import random
import signal
import subprocess
import sys
import time

from support import MUSTER, PATIENCE_S, MusterTest, Terminal, agent_of, is_sanitized, main, shim_of, wait_for

# A worker with several children: one in its group, one that has left its session, one in the
# background, and some that have done both. Two of them have no mark in their environment, and the
# last one has no parent in the job.
FAMILY = """#!/bin/sh
sleep 1000 &
setsid sleep 1000 &
(setsid sh -c 'sleep 1000 & wait' &)
setsid sh -c 'env -i sleep $E2E_SLEEP & wait' &
(setsid env -i sleep $E2E_SLEEP &)
echo $LOCAL_RANK >> ready
{trap}
while :; do sleep 1000 & wait $!; done
"""
STUBBORN = "trap '' TERM INT HUP QUIT"


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


class NothingLeft(MusterTest):
    def start_family(self, trap="", *args):
        script = self.script("family.sh", FAMILY.format(trap=trap))
        process = self.start("--standalone", "--nproc-per-node=2", *args, "--no-python", script)
        self.ready(2)
        # muster has 3 processes. Each worker has itself, 6 processes that sleep and 2 shells. No
        # fork is in progress any more.
        wait_for(lambda: sum(name.startswith("sleep") for name in self.token.processes().values())
                 == 2 * 6, "the whole family")  # In the middle of an exec a process has no name.
        return process

    def test_after_kill_9_of_muster(self):
        process = self.start_family()
        process.kill()
        process.wait()
        self.assert_nothing_left()

    def test_after_kill_9_of_muster_with_workers_that_ignore_signals(self):
        process = self.start_family(STUBBORN)
        process.kill()
        process.wait()
        self.assert_nothing_left()

    def test_after_kill_9_of_the_shim(self):
        process = self.start_family(STUBBORN)
        os.kill(shim_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("the shim", self.read("err"))
        self.assertIn("was killed by signal 9", self.read("err"))
        self.assertEqual(self.token.processes(), {})
        self.assertEqual(os.listdir(self.memory) + os.listdir(self.dir / "tmp"), [])

    def test_after_kill_9_of_muster_and_its_shim_at_once(self):
        """All ancestors are dead: the processes are found by their sessions, their environment and
        their parents."""
        script = self.script("found.sh", """#!/bin/sh
sleep 1000 &
setsid sleep 1000 &
setsid sh -c 'env -i sleep $E2E_SLEEP & wait' &
(setsid sh -c 'sleep 1000 & env -i setsid sleep $E2E_SLEEP & wait' &)
echo $LOCAL_RANK >> ready
while :; do sleep 1000 & wait $!; done
""")
        process = self.start("--standalone", "--nproc-per-node=2", "--no-python", script)
        self.ready(2)
        wait_for(lambda: sum(name.startswith("sleep") for name in self.token.processes().values())
                 == 2 * 6, "the whole family")
        shim = shim_of(process.pid)
        # A stopped shim cannot act in the moment in which muster is already dead.
        os.kill(shim, signal.SIGSTOP)
        process.kill()
        os.kill(shim, signal.SIGKILL)
        process.wait()
        self.assert_nothing_left()

    def test_after_kill_9_of_the_agent(self):
        process = self.start_family(STUBBORN, "--shutdown-timeout=1")
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("was killed by signal 9", self.read("err"))
        self.assertEqual(self.token.processes(), {})
        self.assertEqual(os.listdir(self.memory) + os.listdir(self.dir / "tmp"), [])

    def test_after_sigterm(self):
        process = self.start_family()
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.token.processes(), {})

    def test_workers_that_ignore_sigterm_are_killed_after_the_timeout(self):
        process = self.start_family(STUBBORN, "--shutdown-timeout=1")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.token.processes(), {})

    def test_a_second_signal_kills_at_once(self):
        process = self.start_family(STUBBORN, "--shutdown-timeout=1000")
        process.send_signal(signal.SIGINT)
        wait_for(lambda: "SIGINT" in self.read("err"), "the first signal to be taken")
        time.sleep(1.1)  # A second signal within a second would count as the same event.
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.token.processes(), {})

    def test_after_an_unhandled_signal(self):
        for number in (signal.SIGVTALRM, signal.SIGSEGV, signal.SIGALRM):
            with self.subTest(signal=number.name):
                (self.dir / "ready").unlink(missing_ok=True)
                process = self.start_family(STUBBORN)
                process.send_signal(number)
                # ASan catches the signal and exits.
                is_caught = number == signal.SIGSEGV and is_sanitized()
                self.assertEqual(process.wait(PATIENCE_S), 1 if is_caught else -number)
                self.assert_nothing_left()

    def test_after_success(self):
        script = self.script("leave.sh", "#!/bin/sh\nsleep 1000 &\nsetsid sleep 1000 &\nexit 0\n")
        self.run_muster("--standalone", "--nproc-per-node=2", "--leftover-timeout=0.5", "--no-python", script, expect=0)
        self.assertEqual(self.token.processes(), {})

    def test_a_restart_begins_without_children_of_the_last_attempt(self):
        script = self.script("restart.sh", """#!/bin/sh
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
  setsid sleep 1000 & echo $! > old
  exit 5
fi
kill -0 $(cat old) 2>/dev/null && exit 6
exit 0
""")
        self.run_muster("--standalone", "--max-restarts=1", "--no-python", script, expect=0)

    def test_after_kill_9_of_the_parent_shell(self):
        script = self.script("family.sh", FAMILY.format(trap=""))
        terminal = Terminal(["/bin/sh", "-c", f"{MUSTER} --standalone --nproc-per-node=2 "
                                              f"--no-python {script}; true"],
                            env=self.environment(), cwd=self.dir)
        self.addCleanup(terminal.close)
        self.ready(2)
        # The terminal closes with its session's leader, which causes SIGHUP: muster ends as after a signal.
        terminal.process.kill()
        terminal.process.wait()
        wait_for(lambda: not any(MUSTER in line for line in self.token.processes().values()), "the end of muster")
        self.assert_nothing_left()

    def test_kill_9_of_a_parent_without_a_terminal_leaves_muster_running(self):
        """As under torchrun, a launcher in the background of a script continues."""
        script = self.script("family.sh", FAMILY.format(trap=""))
        shell = subprocess.Popen(
            ["/bin/sh", "-c", f"{MUSTER} --standalone --nproc-per-node=2 --no-python {script} & "
                              "echo $! > launcher; wait"],
            env=self.environment(), cwd=self.dir, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.ready(2)
        wait_for(lambda: self.read("launcher").endswith("\n"), "the launcher's pid")
        shell.kill()
        shell.wait()
        muster = int(self.read("launcher"))
        wait_for(lambda: parent_of(muster) != shell.pid, "muster to have another parent")
        os.kill(muster, signal.SIGTERM)  # muster still runs, and ends as usual.
        wait_for(lambda: muster not in self.token.processes(), "the end of muster")
        self.assert_nothing_left()

    def test_ctrl_c_twice(self):
        script = self.script("family.sh", FAMILY.format(trap=STUBBORN))
        terminal = Terminal([MUSTER, "--standalone", "--nproc-per-node=2", "--no-python",
                             str(script)], env=self.environment(), cwd=self.dir)
        self.addCleanup(terminal.close)
        self.ready(2)
        terminal.type(b"\x03")
        wait_for(lambda: "SIGINT" in terminal.read(), "the first ctrl-C to be taken")
        terminal.type(b"\x03")
        wait_for(lambda: (terminal.read(), terminal.process.poll() is not None)[1], "the end")
        self.assertEqual(terminal.process.returncode, 1)
        self.assertEqual(self.token.processes(), {})

    def counting_script(self):
        # The worker is no shell: a stopped child of a shell, between vfork and exec, would prevent
        # the shell from stopping.
        return self.script("count.py", """
import time
open("ready", "w").write("x")
while True:
    with open("ticks", "a") as f:
        f.write("x")
    time.sleep(0.01)
""")

    def test_ctrl_z_stops_the_workers_and_fg_continues_them(self):
        script = self.counting_script()
        terminal = Terminal(["/bin/bash", "--norc", "-i"], env=self.environment(), cwd=self.dir)
        self.addCleanup(terminal.close)
        terminal.type(f"{MUSTER} --standalone --no-python {sys.executable} {script}\n".encode())
        self.ready(1)

        def states(name):
            found = set()
            for pid, line in self.token.processes().items():
                if line.startswith(name):
                    with open(f"/proc/{pid}/stat") as f:
                        found.add(f.read().rsplit(")", 1)[1].split()[0])
            return found

        terminal.type(b"\x1a")
        wait_for(lambda: (terminal.read(), states(f"{sys.executable} {script}"))[1] == {"T"}, "the worker to stop")
        terminal.type(b"fg\n")
        stopped_at = len(self.read("ticks"))
        wait_for(lambda: (terminal.read(), len(self.read("ticks")) > stopped_at + 4)[1],
                 "the worker to go on")
        terminal.type(b"\x03")
        terminal.type(b"exit\n")
        wait_for(lambda: (terminal.read(), terminal.process.poll() is not None)[1], "the end")
        self.assertEqual(self.token.processes(), {})

    def test_ctrl_z_where_no_shell_could_continue_muster(self):
        # As with `ssh -t HOST muster ...`: the kernel ignores SIGTSTP in such a session.
        terminal = Terminal([MUSTER, "--standalone", "--no-python", sys.executable, self.counting_script()],
                            env=self.environment(), cwd=self.dir)
        self.addCleanup(terminal.close)
        self.ready(1)
        for _ in range(3):
            terminal.type(b"\x1a")
            wait_for(lambda: "^Z" in terminal.read(), "the echo")
            ticks = len(self.read("ticks"))
            wait_for(lambda ticks=ticks: (terminal.read(), len(self.read("ticks")) > ticks + 10)[1], "the worker to go on")
        terminal.type(b"\x03")
        wait_for(lambda: (terminal.read(), terminal.process.poll() is not None)[1], "the end")
        self.assertEqual(self.token.processes(), {})

    def test_children_from_before_exec_are_spared(self):
        line = (f"sleep 1000 & echo $! > helper; exec {MUSTER} --standalone --no-python "
                f"/bin/true")
        subprocess.run(["/bin/sh", "-c", line], env=self.environment(), cwd=self.dir, check=True,
                       timeout=60)
        os.kill(int(self.read("helper")), 0)  # The helper still runs.

    def test_kill_9_at_random_moments(self):
        """Kills muster, its shim or its agent at random moments from its first microseconds to its
        end."""
        seed = int(os.environ.get("MUSTER_SEED", "1"))
        rounds = int(os.environ.get("MUSTER_KILL_ROUNDS", "40"))
        chance = random.Random(seed)
        script = self.script("short.sh", """#!/bin/sh
sleep 1000 &
setsid sleep 1000 &
(setsid env -i sleep $E2E_SLEEP &)
sleep 0.02
[ $LOCAL_RANK = 1 ] && exit 1
exit 0
""")
        for round_number in range(rounds):
            with self.subTest(seed=seed, round=round_number):
                process = self.start("--standalone", "--nproc-per-node=3", "--max-restarts=2",
                                     "--no-python", script)
                delay_s = chance.random() * 0.15
                whom = chance.choice(["muster", "muster", "shim", "agent"])
                end = time.monotonic() + delay_s
                wait_for(lambda: time.monotonic() >= end or process.poll() is not None,
                         "the moment", 10)
                found = {"shim": shim_of, "agent": agent_of}.get(whom, lambda pid: pid)(process.pid)
                victim = found or process.pid
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait(PATIENCE_S)
                self.assert_nothing_left()


if __name__ == "__main__":
    sys.exit(main())
