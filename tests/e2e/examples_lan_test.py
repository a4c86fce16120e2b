#!/usr/bin/env python3
"""Runs the digits CNN on several hosts, in Python and in C++: it must reach the accuracy of one
host.

Needs root, for network namespaces, and torch in .venv; without them it is skipped (77) and prints
the reason.
"""
import os
import pathlib
import re
import subprocess
import sys

import lan
from support import MUSTER, SOURCE, MusterTest, main

VENV = SOURCE / ".venv"
PROGRAMS = pathlib.Path(os.environ.get("MUSTER_BUILD", SOURCE / "build/release")) / "examples"
SKIPPED = 77
BOUND_S = 300
PORT = 29400  # The hosts have their own network, so no other process uses this port.


class DigitsOnSeveralHosts(MusterTest):
    def begin(self, name, words, command):
        """Starts one muster. Its stdout goes to the file `name`."""
        program = command[0]
        with open(self.dir / name, "wb") as out, open(self.dir / f"err.{name}", "wb") as err:
            process = subprocess.Popen(
                [*words, *([] if program.suffix == ".py" else ["--no-python"]), *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.dir,
                env=self.environment(OMP_NUM_THREADS="1", VIRTUAL_ENV=str(VENV),
                                     PATH=f"{VENV}/bin:{os.environ['PATH']}"))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ends(self, **processes):
        """Checks that all processes exit with 0. Returns the lines of each."""
        codes = [process.wait(BOUND_S) for process in processes.values()]
        text = "\n".join(f"{name}:\n{self.read(name)}{self.read(f'err.{name}')}" for name in processes)
        self.assertEqual(codes, [0] * len(codes), text)
        return [self.read(name).splitlines() for name in processes]

    def check(self, program):
        muster = os.path.abspath(MUSTER)
        alone, = self.ends(alone=self.begin(
            "alone", [muster, "--standalone", "--nproc-per-node=2"], [program]))
        net = lan.Lan(self.dir, ["node0", "node1"])
        self.addCleanup(net.close)
        hosts = {name: self.begin(name, [
            *net.on(name), muster, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=node0:{PORT}", "--rdzv-id=digits"], [program, "--save", "digits.pt"])
            for name in net.addresses}
        found, nothing = self.ends(**hosts)
        # Only rank 0 prints, and it is on the host of the rendezvous.
        self.assertEqual(nothing, [])
        self.assertTrue((self.dir / "digits.pt").exists())
        found = [line for line in found if not line.startswith("saved")]
        # The same two processes compute, on one host or on two, so the lines are equal except for
        # the seconds. (A sum of two numbers does not depend on their order.)
        times = re.compile(r"trained in .* s")
        self.assertEqual([times.sub("", line) for line in found],
                         [times.sub("", line) for line in alone])
        self.assertTrue(found[0].startswith("world of 2 processes, gloo on cpu"), found[0])
        self.assertGreater(float(re.match(r"test accuracy: ([\d.]+)", found[-1])[1]), 97.0)
        self.assert_nothing_left()

    def test_in_python(self):
        self.check(SOURCE / "examples/digits/train.py")

    def test_in_cpp(self):
        if not (PROGRAMS / "digits").exists():
            self.skipTest("the C++ examples are not built (MUSTER_SDK)")
        self.check(PROGRAMS / "digits")


def why_not():
    if not (VENV / "bin/torchrun").exists():
        return "no .venv with torch"
    return lan.why_not()


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
