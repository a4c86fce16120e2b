#!/usr/bin/env python3
"""Tests the examples' READMEs: their commands run unchanged and print what the READMEs say.

Needs torch in .venv; skipped (77) without it.
"""
import os
import pathlib
import re
import sys
import unittest

from documents import BUILD, SKIPPED, VENV, Clone, missing, readme_blocks
from support import SOURCE, MusterTest, main, python_has_torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from warm_python import WarmPython

EXAMPLES = SOURCE / "examples"
# Only READMEs that match this are tested: for work on one of them.
CHOSEN = os.environ.get("MUSTER_README", "")
READMES = sorted(path for path in EXAMPLES.rglob("README.md") if path != EXAMPLES / "README.md")
BOUND_S = 600
# Commands for several nodes, many GPUs or data that is not here. The test only checks that muster
# accepts their flags.
NOT_HERE = re.compile(r"node0|~/|--nproc-per-node=8|\$NODE_RANK")
# Other files test these commands: examples_test.py, digits_data_test.py, fault_tolerance_test.py
# and preemption_example_test.py.
ELSEWHERE = re.compile(r"--forever|make_data\.py|^sleep |fault_tolerance/run\.py|examples/preemption")
FAILS = {"record_errors": 1}
ANY_ORDER = "The order of the ranks may be another one"


def name_of(path):
    return str(path.parent.relative_to(EXAMPLES))


def setUpModule():
    Readmes.warm = WarmPython(VENV / "bin/python", OMP_NUM_THREADS="1")
    unittest.addModuleCleanup(Readmes.warm.close)


class Readmes(MusterTest):
    def run_command(self, clone, command, name):
        log = f"{self.runs}.log"
        self.runs += 1
        # A traceback needs the paths of a real worker.
        variables = {} if name in FAILS else self.warm.variables()
        code = clone.start(command, log, **variables).wait(BOUND_S)
        self.assertEqual(code, FAILS.get(name, 0), f"{command}\n{clone.text(log)}")
        return log

    def check(self, path):
        name = name_of(path)
        text = path.read_text()
        clone = Clone(self, name.replace("/", "."))
        any_order = ANY_ORDER in " ".join(text.split())
        for block in readme_blocks(text):
            for command in block.words():
                if ELSEWHERE.search(command):
                    continue
                with self.subTest(name, command=command):
                    if "build/release/examples/" in command and not (BUILD / "examples/digits").exists():
                        self.skipTest("the C++ examples are not built (MUSTER_SDK)")
                    if NOT_HERE.search(command):
                        dry = re.sub(r"\b(muster(-launch)?) ", r"\1 --dry-run ", command, count=1)
                        said = clone.text(self.run_command(clone, dry, name))
                        self.assertTrue(said.startswith("Nothing is started"), said)
                        continue
                    log = self.run_command(clone, command, name)
                    left = missing(block.printed, clone.streams(log), any_order)
                    self.assertIsNone(left, f"{command}\n{clone.text(log)}")
                    self.compared += bool(block.printed)
        self.assert_nothing_left()

    def test_every_command_prints_the_output_in_the_readme(self):
        self.runs = self.compared = 0
        for path in READMES:
            if CHOSEN in str(path):
                self.check(path)
        self.assertGreaterEqual(self.compared, 1 if CHOSEN else 20)

    def test_every_example_has_one_and_it_is_in_the_list(self):
        folders = {path.parent for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".cc")
                   and "__pycache__" not in path.parts}
        self.assertEqual(folders - {path.parent for path in READMES}, set())
        overview = (EXAMPLES / "README.md").read_text()
        for path in READMES:
            if path.parent.name == "data":
                continue
            with self.subTest(name_of(path)):
                self.assertIn(f"({path.relative_to(EXAMPLES)})", overview)
                text = path.read_text()
                blocks = readme_blocks(text)
                self.assertTrue(any("muster" in command or "run.py" in command
                                    for block in blocks for command in block.commands))
                self.assertTrue(any(block.printed for block in blocks))
                self.assertTrue("examples](.." in text or ".venv/bin/activate" in text, "no set-up")

    def test_no_link_leads_nowhere(self):
        for path in [*READMES, EXAMPLES / "README.md", SOURCE / "docs/troubleshooting.md"]:
            for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
                with self.subTest(name_of(path) if path.is_relative_to(EXAMPLES) else path.name):
                    self.assertTrue((path.parent / target).exists(), target)


if __name__ == "__main__":
    if not (VENV / "bin/torchrun").exists() or not python_has_torch(VENV / "bin/python"):
        print("skipped: no .venv with torch", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
