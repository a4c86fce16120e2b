#!/usr/bin/env python3
"""Kills muster or its agent with SIGKILL at each system call before the first worker starts, and
checks that no directory and no pipe is left. Needs ptrace."""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys

from support import MUSTER, PATIENCE_S, MusterTest, agent_of, is_sanitized, main, shim_of, wait_for

PTRACE_TRACEME, PTRACE_CONT, PTRACE_DETACH, PTRACE_SYSCALL = 0, 7, 17, 24
PTRACE_SETOPTIONS, PTRACE_GETEVENTMSG = 0x4200, 0x4201
TRACESYSGOOD, TRACEFORK, EXITKILL = 1, 2, 0x100000
FORKED = signal.SIGTRAP | 1 << 8  # The form of a wait status: PTRACE_EVENT_FORK.
WALL = 0x40000000  # waitpid also accepts processes that are not our children.
# A sanitizer makes hundreds of its own calls at each start, and makes the start ten times slower.
STRIDE = 29 if is_sanitized() else 1
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class EarlyKill(MusterTest):
    TIMERS = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

    def directories(self):
        """The run directories, and folders with a timer pipe, that muster may have left."""
        return os.listdir(self.memory) + os.listdir(self.dir / "tmp")

    def pipes(self):
        return [path for path in (self.dir / "tmp").rglob("*") if path.is_fifo()]

    def trace(self, *args, options=0, **env):
        """Starts muster, stopped at its first instruction. Returns its pid."""
        pid = os.fork()
        if pid == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            libc.ptrace(PTRACE_TRACEME, 0, None, None)
            os.execve(MUSTER, [MUSTER, *args], self.environment(**env))
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            self.skipTest("no process can be traced here")
        libc.ptrace(PTRACE_SETOPTIONS, pid, None, TRACESYSGOOD | EXITKILL | options)
        return pid

    def follow_fork(self, pid):
        """Returns the next child of `pid`, stopped at its first instruction. `pid` itself runs on
        untraced."""
        number = 0
        while True:
            libc.ptrace(PTRACE_CONT, pid, None, number)
            _, status = os.waitpid(pid, WALL)
            self.assertTrue(os.WIFSTOPPED(status), status)
            if status >> 8 == FORKED:
                break
            number = os.WSTOPSIG(status)
        child = ctypes.c_ulong()
        libc.ptrace(PTRACE_GETEVENTMSG, pid, None, ctypes.cast(ctypes.byref(child), ctypes.c_void_p))
        os.waitpid(child.value, WALL)
        libc.ptrace(PTRACE_DETACH, pid, None, None)
        return child.value

    def steps(self, pid, count):
        """Runs the process up to its `count`-th next stop at a system call. Returns False if it has
        ended before."""
        for _ in range(count):
            libc.ptrace(PTRACE_SYSCALL, pid, None, None)
            _, status = os.waitpid(pid, WALL)
            while os.WIFSTOPPED(status) and os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
                number = os.WSTOPSIG(status)  # The process gets the signal.
                libc.ptrace(PTRACE_SYSCALL, pid, None, number)
                _, status = os.waitpid(pid, WALL)
            if not os.WIFSTOPPED(status):
                return False
        return True

    def test_at_each_system_call_until_it_ends(self):
        args = ("--standalone", "--no-python", "true")
        calls = 0
        while True:
            calls += STRIDE
            pid = self.trace(*args, **self.TIMERS)
            if not self.steps(pid, calls):
                break
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.assert_nothing_left()
            self.assertEqual(self.directories(), [], f"killed at stop {calls}")
        self.assertGreater(calls, 100)  # The loop did not end at once.
        self.assertEqual(self.directories(), [])

    def test_the_agent_at_each_system_call_until_its_pipe_is_there(self):
        for env in (self.TIMERS,
                    {**self.TIMERS, "TORCHELASTIC_TIMER_FILE": str(self.dir / "tmp/timers")}):
            calls = found = 0
            while found < 8:  # The number of calls after the pipe was created.
                calls += 1 if found else STRIDE
                front = self.trace("--standalone", "--no-python", "sleep", "1000",
                                   options=TRACEFORK, **env)
                shim = self.follow_fork(front)
                agent = self.follow_fork(shim)
                libc.ptrace(PTRACE_SETOPTIONS, agent, None, TRACESYSGOOD | EXITKILL)
                self.assertTrue(self.steps(agent, calls), "the agent has ended")
                found += bool(self.pipes())
                os.kill(agent, signal.SIGKILL)
                os.waitpid(agent, WALL)
                _, status = os.waitpid(front, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 1)
                self.assert_nothing_left()
                self.assertEqual(self.directories(), [], f"killed at stop {calls}")
            self.assertGreater(calls, found)  # Some calls came before that.

    def waiting_job(self, **env):
        """Starts a job, and returns its process when the worker runs."""
        (self.dir / "ready").unlink(missing_ok=True)
        process = self.start("--standalone", "--no-python",
                             self.script("wait.sh", "#!/bin/sh\necho x >> ready\nexec sleep 1000\n"),
                             env=env)
        self.ready(1)
        return process

    def killed_with_its_agent(self, **env):
        """Runs a job whose processes are all killed before any can remove files. Returns what the
        job has left."""
        process = self.waiting_job(**env)
        pids = [process.pid, shim_of(process.pid), agent_of(process.pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # The agent may die with the shim.
                    os.kill(pid, number)
        process.wait()
        self.assert_nothing_left()
        left = self.directories()
        self.assertEqual(len(left), 2 if env else 1, left)
        return left[0]

    def test_the_front_is_killed_while_the_agent_is_stopped(self):
        """The agent cannot remove its files, and the shim does not wait for it."""
        process = self.waiting_job(**self.TIMERS)
        os.kill(agent_of(process.pid), signal.SIGSTOP)
        process.kill()
        process.wait()
        wait_for(lambda: self.directories() == [], "no files")
        self.assert_nothing_left()

    def test_what_dead_owners_left_is_removed_by_the_next_run(self):
        self.killed_with_its_agent()
        self.run_muster("--standalone", "--no-python", "true", expect=0)
        self.assertEqual(self.directories(), [])

    def test_the_pipe_of_a_dead_owner_is_removed_by_the_next_run_with_timers(self):
        self.killed_with_its_agent(**self.TIMERS)
        self.assertEqual(len(self.pipes()), 1)
        self.run_muster("--standalone", "--no-python", "true", env=self.TIMERS, expect=0)
        self.assertEqual(self.directories(), [])

    def test_only_agent_and_shim_hold_the_locks(self):
        process = self.waiting_job(**self.TIMERS)
        owners = [agent_of(process.pid), shim_of(process.pid)] * 2

        def holders():
            found = []
            for pid in {*self.token.processes(), process.pid, *owners}:
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):  # The descriptor may have been closed meanwhile.
                        path = os.readlink(f"/proc/{pid}/fd/{fd}")
                        if os.path.isdir(path) and os.path.basename(path).startswith("muster_"):
                            found.append(pid)
            return sorted(found)
        # At its start, the agent also opens the folders for a moment to look for those of dead owners.
        wait_for(lambda: holders() == sorted(owners), "two locks of the agent, two of the shim and no others")
        process.terminate()
        process.wait(PATIENCE_S)
        self.assertEqual(self.directories(), [])

    def test_jobs_that_start_at_once(self):
        for _ in range(5):
            self.killed_with_its_agent(**self.TIMERS)
            jobs = [subprocess.Popen([MUSTER, "--standalone", "--no-python", "true"],
                                     env=self.environment(**self.TIMERS), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                    for _ in range(4)]
            for job in jobs:
                _, err = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 0, err)
                self.assertNotIn("cannot use", err)
            self.assertEqual(self.directories(), [])

    def test_only_empty_folders_of_dead_owners_are_removed(self):
        kept = self.killed_with_its_agent()
        os.mkdir(os.path.join(self.memory, "muster_somebodyelses_of_any_kind"))
        with open(os.path.join(self.memory, kept, "error.json"), "w") as file:
            file.write("evidence")
        living = self.waiting_job()
        before = sorted(self.directories())
        self.assertEqual(len(before), 3, before)
        subprocess.run([MUSTER, "--standalone", "--no-python", "true"], check=True, timeout=60,
                       env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.assertEqual(sorted(self.directories()), before)
        living.terminate()
        living.wait(PATIENCE_S)
        wait_for(lambda: len(self.directories()) == 2, "the end of the living job's directory")


if __name__ == "__main__":
    sys.exit(main())
