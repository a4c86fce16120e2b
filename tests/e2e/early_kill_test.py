#!/usr/bin/env python3
"""Muster killed by -9 before its first worker, at each system call: no directory is left."""
import ctypes
import os
import signal
import subprocess
import sys

from support import MUSTER, MusterTest, agent_of, main, wait_for

PTRACE_TRACEME, PTRACE_SYSCALL, PTRACE_SETOPTIONS = 0, 24, 0x4200
TRACESYSGOOD, EXITKILL = 1, 0x100000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class EarlyKill(MusterTest):
    def directories(self):
        return os.listdir(self.memory) + os.listdir(self.dir / "tmp")

    def trace(self, *args):
        """Muster, stopped at its first instruction."""
        pid = os.fork()
        if pid == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            libc.ptrace(PTRACE_TRACEME, 0, None, None)
            os.execve(MUSTER, [MUSTER, *args], self.environment())
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            self.skipTest("no process can be traced here")
        libc.ptrace(PTRACE_SETOPTIONS, pid, None, TRACESYSGOOD | EXITKILL)
        return pid

    def steps(self, pid, count):
        """So many stops at system calls further; False: it has ended before."""
        for _ in range(count):
            libc.ptrace(PTRACE_SYSCALL, pid, None, None)
            _, status = os.waitpid(pid, 0)
            while os.WIFSTOPPED(status) and os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
                number = os.WSTOPSIG(status)  # A signal: it gets it.
                libc.ptrace(PTRACE_SYSCALL, pid, None, number)
                _, status = os.waitpid(pid, 0)
            if not os.WIFSTOPPED(status):
                return False
        return True

    def test_at_each_system_call_until_it_ends(self):
        args = ("--standalone", "--no-python", "true")
        calls = 0
        while True:
            calls += 1
            pid = self.trace(*args)
            if not self.steps(pid, calls):
                break
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.assert_nothing_left()
            self.assertEqual(self.directories(), [], f"killed at stop {calls}")
        self.assertGreater(calls, 100)  # It was not over at once.
        self.assertEqual(self.directories(), [])

    def killed_with_its_agent(self):
        """A job of which nothing could tidy up. Returns what it has left."""
        process = self.start("--standalone", "--no-python",
                             self.script("wait.sh", "#!/bin/sh\necho x >> ready\nexec sleep 1000\n"))
        self.ready(1)
        agent = agent_of(process.pid)
        os.kill(agent, signal.SIGSTOP)
        process.kill()
        process.wait()
        os.kill(agent, signal.SIGKILL)
        self.assert_nothing_left()
        (self.dir / "ready").unlink()
        left = self.directories()
        self.assertEqual(len(left), 1, left)
        return left[0]

    def test_what_dead_owners_left_is_removed_by_the_next_run(self):
        self.killed_with_its_agent()
        self.run_muster("--standalone", "--no-python", "true", expect=0)
        self.assertEqual(self.directories(), [])

    def test_only_what_dead_owners_left(self):
        kept = self.killed_with_its_agent()
        os.mkdir(os.path.join(self.memory, "muster_somebodyelses_of_any_kind"))
        with open(os.path.join(self.memory, kept, "error.json"), "w") as file:
            file.write("evidence")
        living = self.start("--standalone", "--no-python",
                            self.script("wait.sh", "#!/bin/sh\necho x >> ready\nexec sleep 1000\n"))
        self.ready(1)
        before = sorted(self.directories())
        self.assertEqual(len(before), 3, before)
        subprocess.run([MUSTER, "--standalone", "--no-python", "true"], check=True, timeout=60,
                       env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.assertEqual(sorted(self.directories()), before)
        living.terminate()
        living.wait(60)
        wait_for(lambda: len(self.directories()) == 2, "the end of the living job's directory")


if __name__ == "__main__":
    sys.exit(main())
