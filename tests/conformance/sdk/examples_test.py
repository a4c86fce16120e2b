"""Runs each example in Python and in C++: both must print the same lines, under each launcher that
is installed.

examples_test.py --build BUILD --source SOURCE. Exits with 77 and prints the reason where torch or
the SDK is missing.
"""

import argparse
import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_port
from warm_python import WarmPython

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
# torchrun 2.13 restarts workers with the store of the previous attempt, so a rank may read the
# address of a process that has exited (pytorch/pytorch issue 135712). With this setting each
# attempt has a new store.
STORE_OF_ITS_OWN = "1"

if not (PROGRAMS / "toy_model").exists() or not PYTHON.exists():
    print("skipped: the C++ examples are not built (MUSTER_SDK), or there is no .venv with torch")
    sys.exit(SKIPPED)

LAUNCHERS = {"torchrun": VENV / "torchrun", "muster": ARGUMENTS.build / "bin/muster"}
LAUNCHERS = {name: path for name, path in LAUNCHERS.items() if path.exists()}
print(f"launchers: {', '.join(LAUNCHERS)}", file=sys.stderr)
COMPUTES = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
# torchrun and all Python workers are copies of one process. Real Python workers run the same examples under muster in
# tests/e2e/readmes_test.py.
WARM = WarmPython(PYTHON, **COMPUTES)
unittest.addModuleCleanup(WARM.close)


def run(*command, **settings):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TORCHELASTIC_", "SLURM_", "OMPI_"))
            and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_PORT")}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=200,
        env=kept | COMPUTES | WARM.variables() | {
            "PATH": f"{VENV}:{os.environ['PATH']}",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": STORE_OF_ITS_OWN} | settings,
    )
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def again_without_a_port(play):
    """torchrun tells rank 0 a port that was free a moment before. If another program has taken it, the job is played again.
    muster holds the port."""
    @functools.wraps(play)
    def job(launcher, *arguments, **settings):
        for _ in range(9 if launcher == "torchrun" else 0):
            try:
                return play(launcher, *arguments, **settings)
            except AssertionError as error:
                if "EADDRINUSE" not in str(error) and "address already in use" not in str(error):
                    raise
        return play(launcher, *arguments, **settings)
    return job


@again_without_a_port
def launch(launcher, program, *arguments, restarts=0):
    return run(LAUNCHERS[launcher], "--standalone", f"--nproc-per-node={RANKS}",
               f"--max-restarts={restarts}", *words(program), *arguments)


def words(program):
    return [program] if program.suffix == ".py" else ["--no-python", program]


@again_without_a_port
def agents(launcher, processes, flags_of, *command):
    """Runs a job of two agents with `processes` workers each. Returns its sorted lines."""
    # muster sets NODE_RANK to the node's number if it is not set; torchrun never sets it.
    numbers = [{"NODE_RANK": str(node)} if launcher == "torchrun" else {} for node in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as nodes:
        running = [nodes.submit(run, LAUNCHERS[launcher], "--nnodes=2", f"--nproc-per-node={processes}",
                                *flags_of(node), *command, **numbers[node]) for node in range(2)]
    # A node whose own worker was only stopped does not know the cause. So the words of both are shown.
    failures = [str(node.exception()) for node in running if node.exception()]
    if failures:
        raise AssertionError("\n".join(failures))
    return sorted(line for node in running for line in node.result())


def by_number():
    """Flags with the number of each node and the address of the first one."""
    port = free_port()
    return lambda node: [f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}"]


def by_rendezvous():
    """Flags of a c10d rendezvous, which are the same on each node."""
    port = free_port()
    return lambda node: ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                         f"--rdzv-id=job{port}", "--local-addr=127.0.0.1"]


# Agents of torchrun 2.13 may fail to meet if two of one machine both try to host the rendezvous
# ("Broken pipe" in the store of the second one). So tests with torchrun only use node numbers.
MUSTERS = "muster", by_rendezvous
HELLO = ([EXAMPLES / "hello_ranks/hello_ranks.py"], ["--no-python", PROGRAMS / "hello_ranks"])


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

    def test_hello_ranks_of_launch(self):
        """Under torch.distributed.launch scripts also get --local-rank=N as an argument."""
        launches = {"torchrun": [PYTHON, "-m", "torch.distributed.launch"],
                    "muster": [ARGUMENTS.build / "bin/muster-launch"]}
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                lines = [sorted(run(*launches[launcher], "--nnode=1", "--node_rank=0",
                                    f"--nproc_per_node={RANKS}", f"--master_port={free_port()}",
                                    *style, *program, "--devices=8", f"--local_world_size={RANKS}"))
                         for style, program in zip(([], ["--use-env"]), HELLO, strict=True)]
                self.assertEqual(lines[0], lines[1])
                self.assertIn("rank 1: devices [4, 5, 6, 7]", lines[0])

    def test_hello_ranks_on_two_nodes(self):
        for launcher, flags in (*((launcher, by_number) for launcher in LAUNCHERS), MUSTERS):
            with self.subTest(launcher, flags=flags.__name__):
                lines = [agents(launcher, RANKS, flags(), *program, "--devices=2") for program in HELLO]
                self.assertEqual(*lines)
                self.assertEqual(len(lines[0]), 2 * 2 * RANKS)
                self.assertEqual([f"rank {rank}: devices [0]" in lines[0] for rank in (0, 2)],
                                 [True, True])
                text = "\n".join(lines[0])
                self.assertIn("'GROUP_RANK': '1', 'LOCAL_RANK': '1'", text)
                for line in lines[0]:
                    self.assertRegex(line, r"devices|'GROUP_RANK': '(.)'.*'NODE_RANK': '\1'")

    def test_two_nodes_print_the_same_as_one(self):
        launcher, flags = MUSTERS
        for name in ("toy_model", "collectives", "model_parallel"):
            expected = sorted(launch(launcher, PROGRAMS / name))
            for program in (EXAMPLES / name / f"{name}.py", PROGRAMS / name):
                with self.subTest(program=program.name):
                    self.assertEqual(agents(launcher, 1, flags(), *words(program)), expected)

    def test_checkpoint_on_two_nodes(self):
        launcher, flags = MUSTERS
        with tempfile.TemporaryDirectory() as folder:
            expected = sorted(launch(launcher, PROGRAMS / "checkpoint", f"{folder}/one", "--epochs", 3))
            for program in (EXAMPLES / "checkpoint/checkpoint.py", PROGRAMS / "checkpoint"):
                with self.subTest(program=program.name):
                    self.assertEqual(agents(launcher, 1, flags(), *words(program),
                                            f"{folder}/{program.name}", "--epochs", 3), expected)

    def test_toy_model(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                python, cpp = self.both(launcher, "toy_model")
                self.assertEqual(cpp, python)
                self.assertEqual(len(cpp), RANKS)
                self.assertTrue(all("the step is right" in line for line in cpp), cpp)
        self.assertEqual(run(PYTHON, EXAMPLES / "toy_model/toy_model.py", "--spawn", RANKS), cpp)

    def test_data_parallel_and_ddp_take_the_same_steps(self):
        programs = EXAMPLES / "digits/data_parallel.py", PROGRAMS / "digits_data_parallel"
        alone = [run(PYTHON, programs[0]), run(programs[1])]
        self.assertEqual([lines[0] for lines in alone],
                         ["DataParallel: 1 process of 1 threads, no GPUs; 64 images in each step"] * 2)
        for launcher, program, one in ((a, *b) for a in LAUNCHERS for b in zip(programs, alone)):
            with self.subTest(launcher, program=program.name):
                lines = launch(launcher, program)
                self.assertEqual(lines[0], f"DistributedDataParallel: {RANKS} processes of 1 threads, "
                                           "no GPUs; 64 images in each step")
                self.assertEqual(self.numbers_out(lines[1:]), self.numbers_out(alone[0][1:]))
                # Sums in another order differ in the last bits, and the difference grows with each
                # step.
                self.assertAlmostEqual(self.number(lines[1]), self.number(alone[0][1]), delta=1e-3)
                self.assertAlmostEqual(self.number(lines[1]), self.number(one[1]), delta=1e-3)
                self.assertGreater(self.number(lines[-2]), 95.0)

    @staticmethod
    def numbers_out(lines):
        return [re.sub(r"\d+\.\d+|\(\d+ of|\d+ images/s", "N", line) for line in lines]

    @staticmethod
    def number(line):
        return float(re.search(r"\d+\.\d+", line)[0])

    def test_collectives(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                python, cpp = self.both(launcher, "collectives")
                self.assertEqual(cpp, python)
                self.assertIn("rank 0: gather 1 11 21 31", cpp)

    def test_model_parallel(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                python, cpp = self.both(launcher, "model_parallel")
                self.assertEqual(cpp, python)
                self.assertEqual(cpp[-RANKS:], [f"rank {rank}: as one process with all data"
                                                for rank in range(RANKS)])

    def test_checkpoint(self):
        """A job that is killed in epoch 3 and restarted has exactly the losses of an uninterrupted
        run."""
        whole = self.checkpoints(next(iter(LAUNCHERS)), "whole", "--epochs", 5)
        start = [f"rank {rank}: the sum of all weights is " for rank in range(RANKS)]
        for lines in whole:
            self.assertEqual(lines, whole[0])
            self.assertEqual([line.rpartition(" ")[0] + " " for line in lines[:RANKS]], start)
            self.assertEqual(len({line.rpartition(" ")[2] for line in lines[:RANKS]}), 1)
            self.assertEqual(len(lines), RANKS + 5)
        loading, losses = whole[0][:RANKS], whole[0][RANKS:]
        expected = [*loading, *losses[:3], *loading, "going on after epoch 2", *losses[3:]]
        for launcher in LAUNCHERS:
            found = self.checkpoints(launcher, "killed", "--epochs", 5, "--die-in-epoch", 3)
            for lines in found:
                with self.subTest(launcher):
                    self.assertEqual(lines, expected)

    def test_checkpoint_goes_on_in_the_other_language(self):
        launcher = next(reversed(LAUNCHERS))
        programs = [EXAMPLES / "checkpoint/checkpoint.py", PROGRAMS / "checkpoint"]
        lines = {}
        for first, second in (programs, programs[::-1]):
            with tempfile.TemporaryDirectory() as folder:
                begin = launch(launcher, first, folder, "--epochs", 2)
                end = launch(launcher, second, folder, "--epochs", 4)
                self.assertEqual(end[RANKS], "going on after epoch 1")
                lines[first.name] = begin[RANKS:] + end[RANKS + 1:]
        self.assertEqual(*lines.values())
        self.assertEqual(len(next(iter(lines.values()))), 4)

    def checkpoints(self, launcher, name, *arguments):
        """Returns the lines of the Python program and those of the C++ program, each run in an
        empty folder."""
        with tempfile.TemporaryDirectory(prefix=name) as folder:
            return [launch(launcher, program, pathlib.Path(folder) / program.name, *arguments,
                           restarts=1)
                    for program in (EXAMPLES / "checkpoint/checkpoint.py", PROGRAMS / "checkpoint")]

    def test_digits(self):
        """With the same start, order and schedule, the losses agree until rounding differences have
        grown."""
        with tempfile.TemporaryDirectory() as folder:
            expected = launch("torchrun", EXAMPLES / "digits/train.py")
            for launcher in LAUNCHERS:
                with self.subTest(launcher):
                    file = pathlib.Path(folder) / f"{launcher}.pt"
                    self.check_digits(launch(launcher, PROGRAMS / "digits", "--save", file), expected)
                    self.assertEqual(run(PYTHON, "-c", CHECK_STATE, EXAMPLES / "digits", file), ["fits"])

    def check_digits(self, cpp, python):
        self.assertEqual(cpp[0], python[0])
        self.assertEqual(cpp[1], python[1], "the first losses differ")
        self.assertEqual(self.numbers_out(line for line in cpp if not line.startswith("saved")),
                         self.numbers_out(python))
        accuracies = [float(re.search(r"test accuracy: ([\d.]+)", lines[-1])[1])
                      for lines in (cpp, python)]
        self.assertGreater(accuracies[0], 97.0)
        self.assertAlmostEqual(*accuracies, delta=1.5)


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
