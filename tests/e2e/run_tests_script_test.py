#!/usr/bin/env python3
"""scripts/run_tests.py on a small project: what it says of tests that pass, fail, and fail only once."""
import os
import pathlib
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
        """{name: (shell command, label)}. Returns the exit code and the output."""
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
