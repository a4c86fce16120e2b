"""Runs the SDK's programs and scripts with muster_worker under the real muster. Needs no torch.

muster_test.py MUSTER PROBE FOLDER_OF_THE_MODULE
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MODULE = pathlib.Path(sys.argv.pop(3))
PROBE = sys.argv.pop(2)
MUSTER = sys.argv.pop(1)
LIMIT_S = 60
WORKERS = 2

# A user's script: it saves and ends when the notice arrives, or it hangs. On SIGTERM it creates a
# file and then exits, as a framework's handler would.
SCRIPT = """
import os, signal, sys, time
import muster_worker

muster_worker.ends_itself()

folder, how = sys.argv[1:]
mark = f"{folder}/{os.environ['RANK']}-"

def on_term(number, frame):
    open(mark + "terminated", "w").close()
    os._exit(3)

if how == "hang":
    signal.signal(signal.SIGTERM, on_term)  # Otherwise SIGTERM ends the process.
step = 0
while True:
    muster_worker.progress(step)
    notice = muster_worker.notice()
    left = notice and notice.seconds_left()
    if step == 0:
        open(mark + "running", "w").close()
    if left is not None and how == "save":
        time.sleep(0.5)
        with open(mark + "saved", "w") as file:
            print(left, file=file)
        break
    if left is not None:
        open(mark + "told", "w").close()
    step += 1
    time.sleep(0.02)
"""


class UnderMuster(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *program, options=()):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("PET_", "MUSTER_", "TORCHELASTIC_"))
                and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        job = subprocess.Popen(
            [MUSTER, "--standalone", f"--nproc-per-node={WORKERS}", *options, "--no-python", *program],
            env={**kept, "PYTHONPATH": str(MODULE)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        job.kill()
        job.communicate()

    def start_script(self, how, *options):
        script = self.folder / "script.py"
        script.write_text(SCRIPT)
        return self.start(sys.executable, script, self.folder, how, options=options)

    def wait_for(self, what, job):
        end = time.monotonic() + LIMIT_S
        names = [f"{rank}-{what}" for rank in range(WORKERS)]
        while not all((self.folder / name).exists() for name in names):
            if job.poll() is not None or time.monotonic() > end:
                job.kill()
                self.fail(f"no {names}: {job.communicate()}")
            time.sleep(0.005)

    def marks(self):
        return sorted(path.name for path in self.folder.iterdir() if path.suffix != ".py")

    def of_each(self, *marks):
        return sorted(f"{rank}-{mark}" for mark in marks for rank in range(WORKERS))

    def test_a_worker_that_asks_for_notices_may_save_before_the_end(self):
        for language in ("C++", "Python"):
            with self.subTest(language):
                for path in self.folder.iterdir():
                    path.unlink()
                options = ["--shutdown-timeout=40"]
                if language == "C++":
                    job = self.start(PROBE, "train", self.folder, "save", options=options)
                else:
                    job = self.start_script("save", *options)
                self.wait_for("running", job)
                job.send_signal(signal.SIGTERM)
                _, errors = job.communicate(timeout=LIMIT_S)
                self.assertEqual(self.marks(), self.of_each("running", "saved"), errors)
                if language == "Python":
                    left_s = float((self.folder / "0-saved").read_text())
                    self.assertTrue(0 < left_s <= 36, left_s)

    def test_a_worker_that_hangs_after_the_notice_gets_the_signal_before_the_end(self):
        job = self.start_script("hang", "--shutdown-timeout=5")
        self.wait_for("running", job)
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=LIMIT_S)
        # The notice arrives first, as SIGTERM ends the process. Each process has half a second for "terminated" before
        # SIGKILL: one that was off the CPU does not create that file. So muster's lines prove that it has sent SIGTERM.
        marks = set(self.marks()) - set(self.of_each("terminated"))
        self.assertEqual(sorted(marks), self.of_each("running", "told"), errors)
        self.assertEqual(errors.count("closing signal SIGTERM"), WORKERS, errors)

    def test_a_second_signal_does_not_wait(self):
        job = self.start_script("hang", "--shutdown-timeout=1000")
        self.wait_for("running", job)
        job.send_signal(signal.SIGTERM)
        self.wait_for("told", job)
        time.sleep(1.1)  # A second signal within a second would count as the same event.
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=LIMIT_S)
        self.assertEqual(self.marks(), self.of_each("running", "told"))

    def test_a_worker_that_does_not_ask_gets_the_signal_at_once(self):
        job = self.start(PROBE, "train", self.folder, "slow", options=["--shutdown-timeout=1000"])
        self.wait_for("running", job)
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=LIMIT_S)
        self.assertEqual(self.marks(), self.of_each("running"))

    def test_progress_is_a_sign_of_life(self):
        options = ["--hang-timeout=5"]
        silent_folder = self.folder / "silent"
        silent_folder.mkdir()
        reporting = self.start(PROBE, "train", self.folder, "slow", options=options)
        self.wait_for("running", reporting)
        # This job does not report. It begins later and is taken for hung first: the other one has lived for longer.
        silent = self.start("env", "-u", "MUSTER_WORKER_CHANNEL", PROBE, "train", silent_folder, "slow",
                            options=options)
        _, errors = silent.communicate(timeout=LIMIT_S)
        self.assertNotEqual(silent.returncode, 0, "the same without reports is taken for hung")
        self.assertIn("hung", errors)
        (self.folder / "finish").touch()
        _, errors = reporting.communicate(timeout=LIMIT_S)
        self.assertEqual(reporting.returncode, 0, errors)

    def test_failures_of_cpp_are_in_the_summary(self):
        for how, text in (("throw", "std::runtime_error: no such data set"), ("segv", "SIGSEGV")):
            with self.subTest(how):
                job = self.start(PROBE, "train", self.folder, how)
                _, errors = job.communicate(timeout=LIMIT_S)
                self.assertEqual(job.returncode, 1)
                summary = errors[errors.rindex("Root Cause"):]
                self.assertIn(text, summary)
                self.assertIn("(main+", summary, "no stack")


if __name__ == "__main__":
    unittest.main()
