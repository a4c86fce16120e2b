#!/usr/bin/env python3
"""A library has started a thread in muster that blocks no signals. The kernel gives it the signals that muster's own
thread has blocked; muster gets them all the same."""
import os
import pathlib
import signal

from hardship import HardshipTest, is_stopped, processes_of_muster, skip_all, state_of
from support import MUSTER, main, wait_for

LIBRARY = pathlib.Path(MUSTER).parents[1] / "tests/libforeign_thread.so"
ENVIRONMENT = {"LD_PRELOAD": str(LIBRARY)}
SAVER = """#!/bin/sh
trap 'echo saving >> saving; sleep 0.3; echo saved >> saved; exit 0' TERM HUP
echo $$ >> pids
echo $LOCAL_RANK >> ready
while :; do sleep 0.05; done
"""


class ForeignThread(HardshipTest):
    def savers(self):
        process = self.start("--no-python", "--nproc-per-node=2", self.script("saver.sh", SAVER), env=ENVIRONMENT)
        self.ready(2)
        return process

    def test_the_thread_is_there(self):
        """Without it the other tests would test nothing."""
        process = self.savers()
        for name, pid in processes_of_muster(process.pid).items():
            self.assertGreater(len(state_of(pid)), 1, name)
        process.terminate()
        self.assertEqual(process.wait(60), 1)

    def test_the_end_of_each_job_is_noticed(self):
        """Also the end of the shim, which the front learns from SIGCHLD."""
        for number in range(40):
            process = self.start("--no-python", "sh", "-c", f"exit {number % 2}", env=ENVIRONMENT)
            self.assertEqual(process.wait(60), number % 2)
        self.assert_nothing_left()

    def test_each_signal_that_stops_a_job_gives_the_workers_their_time(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                for name in ("ready", "saved"):
                    (self.dir / name).unlink(missing_ok=True)
                process = self.savers()
                process.send_signal(number)
                self.assertEqual(process.wait(60), 1)
                self.assertEqual(self.read("saved").split(), ["saved"] * 2)
        self.assert_nothing_left()

    def test_many_signals_at_once(self):
        process = self.savers()
        for _ in range(50):
            process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(self.read("saved").split(), ["saved"] * 2)

    def test_a_killed_shim_is_noticed(self):
        process = self.savers()
        os.kill(processes_of_muster(process.pid)["shim"], signal.SIGKILL)
        self.assertEqual(process.wait(60), 1)
        self.assert_nothing_left()

    def test_ctrl_z_stops_the_workers_and_fg_continues_them(self):
        process = self.start("--no-python", self.script("saver.sh", SAVER), env=ENVIRONMENT, process_group=0)
        self.ready(1)
        worker = int(self.read("pids").split()[0])
        for _ in range(3):
            process.send_signal(signal.SIGTSTP)
            wait_for(lambda: is_stopped(worker), "the worker to be stopped")
            wait_for(lambda: {s for _, s, _ in state_of(process.pid)} == {"T"}, "the front to be stopped")
            process.send_signal(signal.SIGCONT)
            wait_for(lambda: not is_stopped(worker), "the worker to go on")
        process.terminate()
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(self.read("saved").split(), ["saved"])


if __name__ == "__main__":
    if not LIBRARY.exists():
        skip_all("the library with the thread was not built")
    main()
