#!/usr/bin/env python3
"""Tests scripts/run_tests.py on a small project: its output for tests that pass, fail, or fail only
once."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 120
PRESETS = """{"version": 6,
  "configurePresets": [{"name": "made", "generator": "Ninja", "binaryDir": "${sourceDir}/build/made"}],
  "testPresets": [{"name": "made", "configurePreset": "made"}]}"""
FLAKY = 'echo "try of the flake"; test -e tried && exit 0; touch tried; exit 3'


class RunTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/run_tests.py", self.root / "scripts")
        (self.root / "CMakePresets.json").write_text(PRESETS)

    def run_tests(self, tests, *arguments):
        """`tests` is {name: (shell command, label)}. Returns the exit code and the output."""
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(made NONE)", "enable_testing()"]
        for name, (command, label) in tests.items():
            (self.root / f"{name}.sh").write_text(command)
            lines += [f'add_test(NAME "{name}" COMMAND sh "${{CMAKE_SOURCE_DIR}}/{name}.sh")',
                      f'set_tests_properties("{name}" PROPERTIES LABELS {label} SKIP_RETURN_CODE 77)']
        (self.root / "CMakeLists.txt").write_text("\n".join(lines))
        subprocess.run(["cmake", "--preset", "made"], cwd=self.root, check=True, timeout=LIMIT_S,
                       stdout=subprocess.DEVNULL)
        return self.script(*arguments)

    def script(self, *arguments):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("CTEST_", "DASHBOARD_"))}
        done = subprocess.run([self.root / "scripts/run_tests.py", "made", *arguments], check=False,
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S, env=environment)
        return done.returncode, done.stdout

    def test_all_pass(self):
        code, output = self.run_tests({"good": ("exit 0", "x"), "left out": ("exit 77", "x")})
        self.assertEqual(code, 0, output)
        self.assertNotIn("----", output)
        self.assertIn("left out", output)
        self.assertRegex(output.splitlines()[-2], "^100% tests passed, 0 tests failed out of 2")

    def test_the_summary_says_what_was_skipped_and_why(self):
        parts = ("test_a (__main__.All.test_a) ... ok\n" + "x" * 2000 +
                 "\ntest_b (__main__.All.test_b) ... skipped 'no network'\n"
                 "test_c (__main__.All.test_c)\nIt has a docstring. ... skipped 'no disk'\n")
        code, output = self.run_tests({"whole": ("echo 'no such tool'; exit 77", "x"),
                                       "parts": (f"cat <<'END'\n{parts}END", "x")})
        self.assertEqual(code, 0, output)
        summary = (self.root / "build/made/Testing/summary.txt").read_text()
        self.assertTrue(output.endswith(summary), output)
        self.assertIn("made: whole was skipped: no such tool\n", summary)
        self.assertIn("made: parts: test_b was skipped: no network\n", summary)
        self.assertIn("made: parts: test_c was skipped: no disk\n", summary)
        self.assertNotIn("test_a", summary)

    def test_a_test_that_may_not_be_skipped_fails_the_run(self):
        tests = {"good": ("exit 0", "x"), "some_fuzz": ("echo 'no clang'; exit 77", "x")}
        self.assertEqual(self.run_tests(tests, "--may-not-skip", "^other$")[0], 0)
        code, output = self.script("--may-not-skip", "_fuzz$")
        self.assertNotEqual(code, 0)
        self.assertIn("made: FAILED: some_fuzz may not be skipped", output)
        self.assertIn("made: some_fuzz was skipped: no clang", output)

    def test_a_failure_is_shown_with_both_results_and_its_output(self):
        bad = 'echo "what it said"; exit 1'
        code, output = self.run_tests({"good": ("exit 0", "x"), "bad: a sentence": (bad, "x")})
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"---- made: bad: a sentence: FAILED in [\d.]+ s; alone: FAILED in")
        self.assertEqual(output.count("    | what it said"), 2, output)
        self.assertRegex(output.splitlines()[-2], "^50% tests passed, 1 tests failed out of 2")
        again = self.script("--again")
        self.assertEqual(again[0], 0)
        self.assertIn("---- made: bad: a sentence: FAILED", again[1])

    def test_a_flake_fails_and_is_seen_to_pass_alone(self):
        code, output = self.run_tests({"flake": (FLAKY, "x"), "good": ("exit 0", "x")})
        self.assertNotEqual(code, 0)
        self.assertRegex(output, r"---- made: flake: FAILED in [\d.]+ s; alone: passed in [\d.]+ s")
        self.assertEqual(output.count("    | try of the flake"), 1, output)

    def test_arguments_choose_tests_and_none_is_an_error(self):
        tests = {"one": ("exit 0", "x"), "two": ("exit 1", "y")}
        self.assertEqual(self.run_tests(tests, "--label-regex", "^x$")[0], 0)
        self.assertNotEqual(self.script("--label-regex", "^z$")[0], 0)

    def test_scripts_test_lets_no_fuzz_target_be_skipped_with_all(self):
        script = (ROOT / "scripts/test").read_text()
        pattern = re.search(r"labels=\(--may-not-skip '(.*)'\)", script)[1]
        files = "".join(path.read_text() for path in (ROOT / "tests").rglob("CMakeLists.txt"))
        skippable = re.findall(r"set_tests_properties\((\w+) PROPERTIES LABELS fuzz [^)]*SKIP_RETURN_CODE", files)
        self.assertIn("decoders_fuzz", skippable)
        for name in skippable:
            self.assertRegex(name, pattern)


if __name__ == "__main__":
    unittest.main(verbosity=2)
