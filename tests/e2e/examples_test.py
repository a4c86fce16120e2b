#!/usr/bin/env python3
"""Runs the main job and the examples that show one thing each, under muster and under torchrun: the
outcome must be the same.

Needs torch and torchrun in .venv; skipped (77) without them.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from support import MUSTER, SOURCE, MusterTest, main, python_has_torch, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from warm_python import WarmPython

VENV = SOURCE / ".venv/bin"
EXAMPLES = SOURCE / "examples"
SKIPPED = 77
BOUND_S = 240  # Each run imports torch in every process, and the machine may be busy.
RANKS = 2

# By default, torchrun's restarted jobs find the previous attempt's keys in the store and may
# connect to dead processes. With this setting each attempt has its own store.
TORCHRUN_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# What torchrun says of two races of its own: it chooses its workers' port and closes it again, so that another process may
# take it before rank 0 does; and it reads an error file that a worker is still writing.
TORCHRUNS_RACES = ("EADDRINUSE", "Failed to parse reply file")
LAUNCHERS = {"torchrun": str(VENV / "torchrun"), "muster": MUSTER}
COMPUTES = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def setUpModule():
    Examples.warm = WarmPython(VENV / "python", **COMPUTES)
    unittest.addModuleCleanup(Examples.warm.close)


class Examples(MusterTest):
    # The launchers whose Python programs are copies of one process that has loaded torch. Tests
    # that compare losses use copies for muster, too: scripts/test's main job and
    # digits_quickstart_test.py run real processes.
    COPIES = {"torchrun"}

    def begin(self, launcher, *arguments, copies=True):
        self.runs = getattr(self, "runs", 0) + 1
        self.names = f"out{self.runs}", f"err{self.runs}"
        more = dict(TORCHRUN_OWN_STORE) if launcher == "torchrun" else {}
        if copies and launcher in self.COPIES:
            more |= self.warm.variables()
        # As `activate` sets them.
        path = f"{VENV}{os.pathsep}{os.environ['PATH']}"
        environment = self.environment(VIRTUAL_ENV=str(VENV.parent), PATH=path, **COMPUTES, **more)
        with open(self.dir / self.names[0], "wb") as out, \
                open(self.dir / self.names[1], "wb") as err:
            process = subprocess.Popen(
                [LAUNCHERS[launcher], "--standalone", f"--nproc-per-node={RANKS}",
                 *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, cwd=self.dir)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def launch(self, launcher, *arguments, expect=0):
        """Runs to the end. Returns the lines of stdout and the text of stderr."""
        before = set(self.dir.iterdir())
        for _ in range(3):
            code = self.begin(launcher, *arguments).wait(BOUND_S)
            out, err = map(self.read, self.names)
            if launcher != "torchrun" or not any(sign in err for sign in TORCHRUNS_RACES):
                break
            for path in set(self.dir.iterdir()) - before:  # A restart may have trained to the end.
                if path.is_file():
                    path.unlink()
        self.assertEqual(code, expect, f"{launcher}\n{out}\n{err}")
        return out.splitlines(), err


class SnapshotResume(Examples):
    COPIES = set(LAUNCHERS)
    SCRIPT = EXAMPLES / "snapshot_resume/train.py"
    EPOCHS, CRASH_AT = 6, 4

    def test_a_resumed_job_has_the_losses_of_an_uninterrupted_one(self):
        curves = {}
        for launcher in LAUNCHERS:
            whole = self.dir / f"{launcher}-whole.pt"
            lines, _ = self.launch(launcher, self.SCRIPT, "--snapshot", whole)
            self.assertEqual(lines[0], f"starting at epoch 1 of {self.EPOCHS}")
            curves[launcher, "whole"] = lines[-1]
            losses = [float(text) for text in lines[-1].removeprefix("loss curve: ").split()]
            self.assertEqual(len(losses), self.EPOCHS)
            self.assertLess(losses[-1], losses[0] - 0.05, "it has learnt nothing")

            torn = self.dir / f"{launcher}-torn.pt"
            lines, err = self.launch(launcher, "--max-restarts=1", self.SCRIPT,
                                     "--snapshot", torn, "--crash-at-epoch", self.CRASH_AT)
            self.assertIn(f"dying in the middle of epoch {self.CRASH_AT}", err)
            self.assertEqual([line for line in lines if " at epoch " in line],
                             [f"starting at epoch 1 of {self.EPOCHS}",
                              f"resuming at epoch {self.CRASH_AT} of {self.EPOCHS}"])
            # Each epoch appears once: none was lost and none was trained twice.
            self.assertEqual([int(found[1]) for line in lines
                              if (found := re.match(r"epoch (\d+): loss ", line))],
                             list(range(1, self.EPOCHS + 1)))
            curves[launcher, "torn"] = lines[-1]
            self.assertEqual(sorted(path.name for path in self.dir.glob("*.pt*")
                                    if launcher in path.name), [torn.name, whole.name])
            self.assertEqual(list(self.dir.glob(".*.partial")), [])
        self.assertEqual(len(set(curves.values())), 1, curves)

    def test_without_a_restart_left_the_crash_ends_the_job(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                snapshot = self.dir / f"{launcher}.pt"
                lines, err = self.launch(launcher, self.SCRIPT, "--snapshot", snapshot,
                                         "--crash-at-epoch", 2, expect=1)
                self.assertEqual(lines[0], f"starting at epoch 1 of {self.EPOCHS}")
                self.assertTrue(lines[1].startswith("epoch 1: loss "), lines)
                self.assertEqual(len(lines), 2, lines)
                self.assertTrue(snapshot.exists())
                self.assertIn("ChildFailedError", err)


class Digits(Examples):
    """The main job."""
    COPIES = set(LAUNCHERS)
    SCRIPT = EXAMPLES / "digits/train.py"
    EPOCHS = 2

    def test_both_launchers_train_the_same_network(self):
        found = {}
        for launcher in LAUNCHERS:
            lines, _ = self.launch(launcher, self.SCRIPT, "--epochs", self.EPOCHS, "--save",
                                   self.dir / f"{launcher}.pt")
            self.assertTrue((self.dir / f"{launcher}.pt").exists())
            # Compares every loss, epoch and accuracy, but not the duration and the file name.
            found[launcher] = [line for line in lines
                               if not line.startswith(("trained in ", "saved "))]
            self.assertEqual(len(lines) - len(found[launcher]), 2, lines)
        self.assertEqual(found["muster"], found["torchrun"])
        lines = found["muster"]
        self.assertTrue(lines[0].startswith(f"world of {RANKS} processes, "), lines[0])
        epochs = [re.fullmatch(r"epoch (\d+)/(\d+) done: mean loss [\d.]+, accuracy ([\d.]+) % .*",
                               line) for line in lines if " done: " in line]
        self.assertEqual([(int(epoch[1]), int(epoch[2])) for epoch in epochs],
                         [(number, self.EPOCHS) for number in range(1, self.EPOCHS + 1)])
        self.assertGreater(float(epochs[-1][3]), 60, "it has learnt nothing")
        self.assertTrue(lines[-1].startswith(f"test accuracy: {epochs[-1][3]} %"), lines[-1])


class DataLoaders(Examples):
    SCRIPT = EXAMPLES / "data_loader/load.py"

    def test_both_launchers_give_every_rank_the_same_batches(self):
        found = {name: sorted(self.launch(name, self.SCRIPT)[0]) for name in LAUNCHERS}
        self.assertEqual(found["muster"], found["torchrun"])
        self.assertEqual(len(found["muster"]), 2 * RANKS)
        for line in found["muster"]:
            self.assertIn("8 batches from 2 processes", line)
        sums = [int(re.search(r"sum (\d+)", line)[1]) for line in found["muster"]]
        self.assertEqual(sum(sums), 2 * sum(i * i for i in range(64)))
        self.assert_nothing_left()

    def loading(self, launcher):
        """Starts a job that loads data for ever, and returns when every rank has seen its data."""
        process = self.begin(launcher, self.SCRIPT, "--forever", copies=False)
        out = self.names[0]
        wait_for(lambda: len(self.read(out).splitlines()) >= 2 * RANKS or process.poll(),
                 "the first epochs", BOUND_S)
        self.assertIsNone(process.poll(), self.read(self.names[1]))
        self.assertGreaterEqual(len(self.token.processes()), 3 * RANKS)
        return process

    def test_nothing_is_left_after_sigterm(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                process = self.loading(launcher)
                process.terminate()
                self.assertEqual(process.wait(BOUND_S), 1)
                self.assert_nothing_left()

    def test_nothing_is_left_after_kill_9_of_muster(self):
        process = self.loading("muster")
        process.kill()
        self.assertEqual(process.wait(BOUND_S), -signal.SIGKILL)
        self.assert_nothing_left()


class RecordErrors(Examples):
    SCRIPT = EXAMPLES / "record_errors/count.py"

    @staticmethod
    def root_cause(err):
        """The root cause in the failure summary, without the parts that differ from run to run."""
        block = err[err.index("Root Cause (first observed failure):"):]
        block = re.sub(r"(time|host|error_file)( *): .*", r"\1\2: -", block)
        block = re.sub(r"\(pid: \d+\)", "(pid: -)", block)
        block = re.sub(r'File ".*/torch/', 'File "torch/', block)
        # On a busy machine rank 0 may end long before rank 1. Then muster says so in place of the empty line at the end.
        block = re.sub(r"(?m)^(  )rank 0 had ended with 0 before.*", r"\1", block)
        return [line.rstrip() for line in block.splitlines() if line.rstrip("=")]

    def test_both_summaries_show_the_traceback(self):
        found = {}
        for launcher in LAUNCHERS:
            lines, err = self.launch(launcher, self.SCRIPT, "--bad-line", 5, expect=1)
            # Rank 0 may be stopped before it prints.
            self.assertIn(lines, ([], ["rank 0: sum 56"]))
            self.assertIn("count.py FAILED", err)
            found[launcher] = self.root_cause(err)
        self.assertEqual(found["muster"], found["torchrun"])
        text = "\n".join(found["muster"])
        self.assertIn("rank      : 1 (local_rank: 1)", text)
        self.assertIn(f'File "{self.SCRIPT}", line', text)
        self.assertIn("in parse", text)
        self.assertIn("line 5: 'x7' is not a number", text)

    def test_without_a_bad_line_both_succeed(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                lines, _ = self.launch(launcher, self.SCRIPT)
                self.assertEqual(sorted(lines), ["rank 0: sum 56", "rank 1: sum 84"])


def has_torch():
    return (VENV / "torchrun").exists() and python_has_torch(VENV / "python")


if __name__ == "__main__":
    if not has_torch():
        print("skipped: no .venv with torch and torchrun", file=sys.stderr)
        sys.exit(SKIPPED)
    os.chdir("/")  # No example may depend on the current directory.
    main()
