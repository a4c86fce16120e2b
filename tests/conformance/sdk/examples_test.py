"""The examples, each in Python and in C++: the same lines, under whichever launcher is there.

examples_test.py --build BUILD --source SOURCE. Status 77, and why, where torch or the SDK is missing.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77

parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, required=True)
parser.add_argument("--source", type=pathlib.Path, required=True)
ARGUMENTS, rest = parser.parse_known_args()
sys.argv[1:] = rest
VENV = ARGUMENTS.source / ".venv/bin"
PYTHON = VENV / "python3"
EXAMPLES = ARGUMENTS.source / "examples"
PROGRAMS = ARGUMENTS.build / "examples"
RANKS = 2

if not (PROGRAMS / "toy_model").exists() or not PYTHON.exists():
    print("skipped: the C++ examples are not built (MUSTER_SDK), or there is no .venv with torch")
    sys.exit(SKIPPED)

LAUNCHERS = {"torchrun": VENV / "torchrun", "muster": ARGUMENTS.build / "bin/muster"}
LAUNCHERS = {name: path for name, path in LAUNCHERS.items() if path.exists()}
print(f"launchers: {', '.join(LAUNCHERS)}", file=sys.stderr)


def run(*command):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TORCHELASTIC_", "SLURM_", "OMPI_"))
            and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    paths = {"PATH": f"{VENV}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=200,
        env=kept | paths | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def launch(launcher, program, *arguments):
    own = [] if program.suffix == ".py" else ["--no-python"]
    return run(LAUNCHERS[launcher], "--standalone", f"--nproc-per-node={RANKS}", *own, program,
               *arguments)


class Examples(unittest.TestCase):
    def both(self, launcher, name, *arguments):
        found = [launch(launcher, program, *arguments)
                 for program in (EXAMPLES / name / f"{name}.py", PROGRAMS / name)]
        return found

    def test_hello_ranks(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                python, cpp = self.both(launcher, "hello_ranks", "--devices", "8")
                self.assertEqual(sorted(cpp), sorted(python))
                self.assertEqual(len(cpp), 2 * RANKS)
                self.assertIn("rank 1: devices [4, 5, 6, 7]", cpp)

    def test_hello_ranks_in_the_old_style(self):
        variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h",
                     "MASTER_PORT": "1"}
        settings = [f"{name}={value}" for name, value in variables.items()]
        lines = [run("env", "-u", "LOCAL_RANK", *settings, *program, "--local-rank=1", "--devices", "4")
                 for program in ([PYTHON, EXAMPLES / "hello_ranks/hello_ranks.py"],
                                 [PROGRAMS / "hello_ranks"])]
        self.assertEqual(lines[0], lines[1])
        self.assertIn("rank 1: devices [2, 3]", lines[1])

    def test_toy_model(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                python, cpp = self.both(launcher, "toy_model")
                self.assertEqual(cpp, python)
                self.assertEqual(len(cpp), RANKS)
                self.assertTrue(all("the step is right" in line for line in cpp), cpp)
        self.assertEqual(run(PYTHON, EXAMPLES / "toy_model/toy_model.py", "--spawn", RANKS), cpp)

    def test_collectives(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                python, cpp = self.both(launcher, "collectives")
                self.assertEqual(cpp, python)
                self.assertIn("rank 0: gather 1 11 21 31", cpp)

    def test_digits(self):
        """The same start, order and schedule: losses agree until rounding has grown."""
        with tempfile.TemporaryDirectory() as folder:
            launcher = next(iter(LAUNCHERS))
            file = pathlib.Path(folder) / "digits.pt"
            cpp = launch(launcher, PROGRAMS / "digits", "--save", file)
            python = launch(launcher, EXAMPLES / "digits/train.py")
            self.assertEqual(cpp[0], python[0])
            self.assertEqual(cpp[1], python[1], "the first losses differ")
            patterns = [re.sub(r"\d+\.\d+|\(\d+ of", "N", line) for line in cpp]
            expected = [re.sub(r"\d+\.\d+|\(\d+ of", "N", line) for line in python]
            self.assertEqual([line for line in patterns if not line.startswith("saved")], expected)
            accuracies = [float(re.search(r"test accuracy: ([\d.]+)", lines[-1])[1])
                          for lines in (cpp, python)]
            self.assertGreater(accuracies[0], 97.0)
            self.assertAlmostEqual(*accuracies, delta=1.5)
            self.assertEqual(run(PYTHON, "-c", CHECK_STATE, EXAMPLES / "digits", file), ["fits"])


CHECK_STATE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from train import DigitsNet
DigitsNet(8, 8).load_state_dict(torch.load(sys.argv[2], weights_only=True))
print("fits")
"""

if __name__ == "__main__":
    unittest.main()
