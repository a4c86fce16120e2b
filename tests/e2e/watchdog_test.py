#!/usr/bin/env python3
"""Tests timers that workers set with torch's own client, and workers that are stuck in the kernel."""
import os
import pathlib
import stat
import sys
import unittest

from support import PATIENCE_S, SOURCE, MusterTest, agent_of, main, python_has_torch, shim_of, wait_for

PYTHON = SOURCE / ".venv/bin/python"

# Uses torch's client as its documentation shows.
TORCH_WORKER = """import os, sys, time
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=600, scope="quick"): pass
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] in sys.argv[1:]:
    with timer.expires(after=0.2, scope="slow step"): time.sleep(1000)
with timer.expires(after=600, scope="the end"): os.write(1, b"done\\n")
"""

# Sends the same lines without the two seconds that importing torch takes.
WORKER = """import json, os, sys, time
def ask(in_s, signal, pid=os.getpid(), scope="step"):
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as pipe:
        pipe.write(json.dumps({"version": 1, "pid": pid, "scope_id": scope,
                               "expiration_time": time.time() + in_s if in_s >= 0 else -1,
                               "signal": signal}) + "\\n")
"""

# clone(CLONE_VM | CLONE_VFORK): the parent waits in the kernel, in state D, until the child ends.
STUCK = """import ctypes, os, time
if os.environ["RANK"] != "1": time.sleep(1000)
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(65536)
top = (ctypes.addressof(stack) + 65536) & ~15
libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), ctypes.c_void_p(top), 0x100 | 0x4000 | 17, None)
"""


class FileTimers(MusterTest):
    ON = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

    def pipes(self):
        return [path for path in (self.dir / "tmp").rglob("*") if path.is_fifo()]

    def plain(self, body):
        return ["--no-python", sys.executable, "-S", self.script("worker.py", WORKER + body)]

    @unittest.skipUnless(python_has_torch(PYTHON), "no torch in .venv")
    def test_with_torchs_client_a_worker_that_is_late_is_killed_and_restarted(self):
        script = self.script("train.py", TORCH_WORKER)
        _, out, err = self.run_muster("--standalone", "--nproc-per-node=2", "--max-restarts=1",
                                      script, "0", env={**self.ON, "PYTHON_EXEC": str(PYTHON)},
                                      expect=0)
        self.assertRegex(err, r'timer "slow step" of local rank 1 \(pid \d+\) ran out: SIGKILL')
        self.assertIn("restarting all workers", err)
        self.assertEqual(out.splitlines()[-2:], ["done", "done"])
        self.assertNotIn("of local rank 0", err)
        self.assertEqual(self.pipes(), [])
        self.assert_nothing_left()

    def test_without_a_restart_left_the_report_says_why(self):
        body = "if os.environ['RANK'] == '1': ask(0.1, 15, scope='load')\ntime.sleep(1000)\n"
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", *self.plain(body),
                                    env=self.ON, expect=1)
        cause = err[err.index("Root Cause"):]
        self.assertRegex(cause, r"Signal 15 \(SIGTERM\) received by PID \d+\n"
                                r'  its timer "load" ran out\n')
        self.assertEqual(self.pipes(), [])

    def test_a_name_that_is_given_and_wrong_lines(self):
        pipe = self.dir / "timers"
        body = """
path = os.environ["TORCHELASTIC_TIMER_FILE"]
with open(path, "w") as pipe: print("no timer", file=pipe)
ask(0, 9, pid=1)
ask(0, 9, pid=os.getppid())
ask(600, 9)
ask(-1, 0)
# The pipe is read in order: when this one has killed the child, the others have been read.
child = os.fork()
if child == 0: time.sleep(1000)
ask(0, 9, pid=child)
print(os.waitpid(child, 0)[1], path)
"""
        _, out, err = self.run_muster("--standalone", *self.plain(body), expect=0,
                                      env={**self.ON, "TORCHELASTIC_TIMER_FILE": str(pipe)})
        self.assertEqual(out, f"9 {pipe}\n")
        self.assertRegex(err, "a line in the timers' pipe is ignored, .*: no timer")
        self.assertRegex(err, r'timer "step" of process \d+ of local rank 0 \(pid \d+\) ran out')
        self.assertFalse(pipe.exists())

    def test_the_next_attempt_has_a_pipe_if_a_worker_removes_it(self):
        for lost in ("os.remove(path)", "shutil.rmtree(os.path.dirname(path))"):
            with self.subTest(lost):
                body = f'''
import shutil
path = os.environ["TORCHELASTIC_TIMER_FILE"]
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    {lost}
    sys.exit(3)
ask(0.1, 15, scope='load')
time.sleep(1000)
'''
                _, _, err = self.run_muster("--standalone", "--max-restarts=1", *self.plain(body),
                                            env=self.ON, expect=1)
                self.assertRegex(err, "/timers was removed while the job ran: it is made again")
                self.assertRegex(err, r'timer "load" of local rank 0 \(pid \d+\) ran out')
                self.assertEqual(self.pipes(), [])
                self.assertEqual(list((self.dir / "tmp").glob("muster_*")), [])

    def test_a_users_file_is_not_replaced_by_the_pipe(self):
        pipe = self.dir / "timers"
        pipe.write_text("precious")
        _, _, err = self.run_muster("--standalone", *self.plain(""), expect=1,
                                    env={**self.ON, "TORCHELASTIC_TIMER_FILE": str(pipe)})
        self.assertIn(f"cannot make the timers' pipe {pipe}: File exists", err)
        self.assertEqual(pipe.read_text(), "precious")
        self.assertEqual(list(pathlib.Path(self.memory).iterdir()), [])

    def test_the_pipe_is_removed_whichever_process_is_killed(self):
        for victim in ("muster", "shim", "agent"):
            with self.subTest(victim):
                (self.dir / "ready").unlink(missing_ok=True)
                body = "print('x', file=open('ready', 'a'))\ntime.sleep(1000)\n"
                process = self.start("--standalone", *self.plain(body), env=self.ON)
                self.ready(1)
                self.assertEqual(len(self.pipes()), 1)
                self.assertEqual(stat.S_IMODE(self.pipes()[0].stat().st_mode), 0o600)
                find = {"shim": shim_of, "agent": agent_of}.get(victim, lambda pid: pid)
                os.kill(find(process.pid), 9)
                process.wait(PATIENCE_S)
                self.assert_nothing_left()
                self.assertEqual(self.pipes(), [])

    def test_without_the_variable_there_is_no_pipe(self):
        body = "print(os.environ.get('TORCHELASTIC_TIMER_FILE'))\n"
        _, out, _ = self.run_muster("--standalone", *self.plain(body), expect=0)
        self.assertEqual(out, "None\n")


class StuckInTheKernel(MusterTest):
    def start_stuck(self, **env):
        return self.start("--standalone", "--nproc-per-node=2", "--no-python", sys.executable,
                          "-S", self.script("stuck.py", STUCK), env=env)

    def test_a_worker_in_state_d_is_named_and_the_job_fails(self):
        process = self.start_stuck(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT="0.5")
        # The exit code is 0 under torchrun.
        self.assertEqual(process.wait(PATIENCE_S), 1, self.read("err"))
        err = self.read("err")
        self.assertRegex(err, r"local rank 1 \(pid \d+\): it waited in the kernel \(state D\) for "
                              r"0\.\d s, where no signal reaches it: ending it")
        cause = err[err.index("Root Cause"):]
        self.assertRegex(cause, r"rank +: 1 .*\n.*\n.*\n.*received by PID \d+\n"
                                r"  it waited in the kernel \(state D\)")
        self.assert_nothing_left()

    def test_without_the_variable_workers_in_state_d_are_not_watched(self):
        process = self.start_stuck()
        wait_for(lambda: any(self.state(pid) == "D" for pid in self.token.processes()),
                 "a worker in state D")
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assert_nothing_left()

    @staticmethod
    def state(pid):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "?"


if __name__ == "__main__":
    sys.exit(main())
