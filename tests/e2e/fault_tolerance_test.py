#!/usr/bin/env python3
"""Runs examples/fault_tolerance with the commands of its README, in Python and in C++: of three
nodes one is lost, and one is added.

Needs torch in .venv; skipped (77) without it.
"""
import os
import pathlib
import re
import subprocess
import sys
from xml.etree import ElementTree

from documents import Clone, missing, readme_blocks
from support import MUSTER, SOURCE, MusterTest, main

sys.path.insert(0, str(SOURCE / "tests/support"))
from warm_python import WarmPython  # noqa: E402

EXAMPLE = SOURCE / "examples/fault_tolerance"
README, = (block for block in readme_blocks((EXAMPLE / "README.md").read_text()) if "run.py" in block.commands[0])
VENV = SOURCE / ".venv"
PROGRAMS = pathlib.Path(os.environ.get("MUSTER_BUILD", SOURCE / "build/release")) / "examples"
SKIPPED = 77
BOUND_S = 400
STEPS, SAVE_EVERY = 400, 20  # The same values as in run.py.
SVG = "{http://www.w3.org/2000/svg}"

sys.path.insert(0, str(EXAMPLE))
from steps import read_steps, stretches  # noqa: E402


class FaultTolerance(MusterTest):
    copies = {}  # Variables with which Python programs are copies of a process that has loaded torch.

    def run_program(self, *command):
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=BOUND_S, check=False,
            cwd=self.dir, env=self.environment(
                OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", VIRTUAL_ENV=str(VENV), **self.copies,
                PATH=f"{VENV}/bin:{os.environ['PATH']}"))
        logs = "\n".join(f"{path}:\n{path.read_text()}" for path in self.dir.rglob("*.log"))
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}\n{logs}")
        return done.stdout.splitlines()

    def check(self, program, command):
        """Runs a command of the README that starts `program`."""
        clone = Clone(self, program.stem)
        code = clone.start(command, "log", **self.copies).wait(BOUND_S)
        folder = clone.folder / re.search(r"build/fault_tolerance\w*", command)[0]
        logs = "\n".join(f"{path}:\n{path.read_text()}" for path in folder.glob("*.log"))
        self.assertEqual(code, 0, f"{clone.text('log')}\n{logs}")
        self.assertIsNone(missing(README.printed, clone.streams("log")), clone.text("log"))
        found = read_steps(folder / "steps.csv")
        self.check_stretches(stretches(found))
        self.check_losses(program, found)
        self.check_lines(self.read("log").splitlines(), stretches(found), folder.relative_to(clone.folder))
        self.check_picture((folder / "steps.svg").read_text())
        self.assert_nothing_left()

    def check_stretches(self, parts):
        self.assertEqual([part[0].processes for part in parts], [3, 2, 3])
        self.assertEqual(parts[0][0].number, 1)
        self.assertEqual(parts[-1][-1].number, STEPS)
        for before, after in zip(parts, parts[1:], strict=False):
            # Training continues from a recent snapshot: it loses fewer steps than there are between
            # two snapshots, or as many if rank 0 was killed after the step and before its snapshot.
            self.assertEqual((after[0].number - 1) % SAVE_EVERY, 0)
            self.assertLessEqual(after[0].number, before[-1].number + 1)
            self.assertLessEqual(before[-1].number - (after[0].number - 1), SAVE_EVERY)

    def check_losses(self, program, found):
        """Compares the losses with those of a job of a single process without failures."""
        self.run_program(os.path.abspath(MUSTER), "--standalone", "--nproc-per-node=1",
                         *([] if program.suffix == ".py" else ["--no-python"]), program, "whole",
                         "--steps", STEPS, "--pause", 0)
        expected = {step.number: step.loss for step in read_steps(self.dir / "whole/steps.csv")}
        self.assertEqual(sorted(expected), list(range(1, STEPS + 1)))
        self.assertLess(expected[STEPS], expected[1] / 20, "it has learnt nothing")
        for step in found:
            # Sums in another order differ in the last bits, and the difference grows with each
            # step.
            self.assertAlmostEqual(step.loss, expected[step.number], delta=1e-3, msg=str(step))

    def check_lines(self, lines, parts, folder):
        self.assertRegex(lines[0], r"^step \d+ of 3 processes: kill -9 of node c$")
        self.assertRegex(lines[1], r"^step \d+ of 2 processes: node d is started$")
        for line, part in zip(lines[2:4], parts[1:], strict=True):
            self.assertTrue(line.startswith(f"{part[0].processes} processes went on with step "
                                            f"{part[0].number}: "), line)
        self.assertRegex(lines[4], rf"^step {STEPS} of 3 processes: loss [\d.]+$")
        self.assertEqual(lines[5:], [f"drawn: {folder}/steps.svg"])

    def check_picture(self, text):
        root = ElementTree.fromstring(text)
        self.assertEqual(len(root.findall(f"{SVG}polyline")), 3)
        self.assertEqual(len(root.findall(f"{SVG}rect")), 1 + 2)  # The background and the two gaps.
        words = [node.text for node in root.findall(f"{SVG}text")]
        self.assertIn("kill -9 of node c", words)
        self.assertIn("node d is started", words)
        self.assertEqual(len([word for word in words if re.search("s without a step", word)]), 2)

    def test_in_python(self):
        # The nine trainers of this test would need 30 seconds of a CPU to load torch. test_in_cpp has real workers.
        warm = self.enterContext(WarmPython(VENV / "bin/python", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
        self.copies = warm.variables()
        self.check(EXAMPLE / "train.py", README.commands[0])

    def test_in_cpp(self):
        program = PROGRAMS / "fault_tolerance"
        if not program.exists():
            self.skipTest("the C++ examples are not built (MUSTER_SDK)")
        self.check(program, README.commands[1])

    def test_a_folder_that_is_not_empty_is_refused(self):
        (self.dir / "lossy").mkdir()
        (self.dir / "lossy/steps.csv").write_text("")
        done = subprocess.run([sys.executable, EXAMPLE / "run.py", "lossy", "--muster", MUSTER],
                              capture_output=True, text=True, cwd=self.dir, check=False)
        self.assertEqual((done.returncode, done.stderr), (
            1, "run.py: lossy is not empty: the job would go on from what is there\n"))


if __name__ == "__main__":
    if not (VENV / "bin/torchrun").exists():
        print("skipped: no .venv with torch", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
