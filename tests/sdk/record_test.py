"""Tests muster::record(): each kind of failure leaves an error file that a launcher can read. Needs
no torch.

record_test.py PROBE SLOW_LIBRARY
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROBE, SLOW_LIBRARY = sys.argv.pop(1), sys.argv.pop(1)


class Record(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "error.json"

    def run_probe(self, how, with_file=True):
        environment = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(self.file) if with_file else ""}
        return subprocess.run(
            [PROBE, how], env=environment, capture_output=True, timeout=60, text=True,
            errors="replace",
        )

    def entry(self):
        """The fields that torch's own reader uses: message.message, extraInfo.py_callstack,
        .timestamp."""
        message = json.loads(self.file.read_text(encoding="utf-8"))["message"]
        self.assertAlmostEqual(int(message["extraInfo"]["timestamp"]), time.time(), delta=60)
        self.assertEqual(list(self.file.parent.iterdir()), [self.file], "something is left over")
        return message["message"], message["extraInfo"]["py_callstack"]

    def test_a_program_without_an_exception_leaves_no_file(self):
        for how, status in (("succeed", 0), ("status", 7), ("caught", 0)):
            done = self.run_probe(how)
            self.assertEqual((done.returncode, done.stdout), (status, "before\n"))
            self.assertFalse(self.file.exists())

    def test_exception(self):
        done = self.run_probe("throw")
        self.assertEqual(done.returncode, 1)
        self.assertIn('std::runtime_error: a "quoted" text', done.stderr)
        message, stack = self.entry()
        self.assertEqual(message, 'std::runtime_error: a "quoted" text\nof two lines é')
        self.assertTrue(stack.startswith(message))
        self.assertIn("muster::testing::step_that_fails", stack)
        self.assertIn("muster::testing::fail", stack)

    def test_exception_where_core_files_are_wanted(self):
        limits = resource.getrlimit(resource.RLIMIT_CORE)
        if limits[1] == 0:
            self.skipTest("the hard limit of core files is 0")
        resource.setrlimit(resource.RLIMIT_CORE, (1, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_CORE, limits)
        self.assertEqual(self.run_probe("throw").returncode, -signal.SIGABRT)
        self.assertIn("std::runtime_error", self.entry()[0])

    def test_a_crash_while_the_loader_is_locked_ends_all_the_same(self):
        done = self.run_probe(f"stuck:{SLOW_LIBRARY}")
        self.assertEqual(done.returncode, -signal.SIGSEGV)

    def test_exception_in_a_thread(self):
        self.assertEqual(self.run_probe("thread").returncode, 1)
        message, stack = self.entry()
        self.assertEqual(message, "std::runtime_error: in a thread")
        self.assertIn("muster::testing::step_that_fails", stack)

    def test_bytes_that_are_not_utf8(self):
        self.assertEqual(self.run_probe("throw_bytes").returncode, 1)
        self.assertEqual(self.entry()[0], "std::runtime_error: not UTF-8: ??")

    def test_exception_that_is_no_exception(self):
        self.assertEqual(self.run_probe("throw_int").returncode, 1)
        self.assertEqual(self.entry()[0], "int")

    def test_without_error_file(self):
        done = self.run_probe("throw", with_file=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("step_that_fails", done.stderr)
        self.assertEqual(list(self.file.parent.iterdir()), [])

    def test_folder_that_is_gone(self):
        self.file = self.file.parent / "gone" / "error.json"
        done = self.run_probe("throw")
        self.assertEqual(done.returncode, 1)
        self.assertIn("runtime_error", done.stderr)

    def test_signals(self):
        for how, number in (
            ("abort", signal.SIGABRT), ("segv", signal.SIGSEGV), ("overflow", signal.SIGSEGV),
        ):
            with self.subTest(how):
                self.assertEqual(self.run_probe(how).returncode, -number)
                message, stack = self.entry()
                self.assertTrue(message.startswith(number.name), message)
                symbol = "overflow_stack" if how == "overflow" else "(main+"
                self.assertIn(symbol, stack)


if __name__ == "__main__":
    unittest.main()
