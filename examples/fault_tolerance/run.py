#!/usr/bin/env python3
"""Runs a job of three nodes that loses one, goes on with two, and gets a new one. Draws its steps.

    python examples/fault_tolerance/run.py build/fault_tolerance

The nodes are agents on this machine. FOLDER must be empty. The job writes the snapshot, steps.csv,
the output of each agent (NODE.log), and steps.svg into it.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

from steps import Step, draw, read_steps, stretches

HERE = pathlib.Path(__file__).parent
LIMIT_S = 200.0  # The limit of each wait. It is long because the machine may be busy.


class Failed(Exception):
    """The job did not do what was expected. The text says what is missing."""


def free_port() -> int:
    """Returns a port that no process uses. The kernel gives it to no outgoing connection in the meantime."""
    first_of_kernel = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    while True:
        port = random.randrange(10000, max(first_of_kernel, 20000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Job:
    """The nodes of the job, and the events for the picture."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.folder = arguments.folder
        self.port = free_port()
        self.nodes: dict[str, subprocess.Popen] = {}
        self.events: list[tuple[float, str]] = []

    def start(self, name: str) -> None:
        program = self.arguments.program
        python = [] if program.suffix == ".py" else ["--no-python"]
        # All nodes share this machine: they communicate over its loopback interface, and each uses
        # one core, where torch would use all of them.
        shared = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{name}.log", "wb") as log:
            self.nodes[name] = subprocess.Popen(
                [self.arguments.muster, "--nnodes=2:3", "--nproc-per-node=1", "--max-restarts=3",
                 "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=lossy",
                 "--local-addr=127.0.0.1", *python, program, self.folder,
                 f"--steps={self.arguments.steps}", f"--save-every={self.arguments.save_every}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**shared, **os.environ})

    def steps(self) -> list[Step]:
        return read_steps(self.folder / "steps.csv")

    def wait_for(self, what: str, condition) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            for name, process in self.nodes.items():
                if process.poll() not in (None, 0):
                    raise Failed(f"node {name} ended with {process.returncode} while this was waited "
                                 f"for: {what}. See {self.folder / name}.log")
            if time.monotonic() > end:
                raise Failed(f"{LIMIT_S:.0f} s are over without this: {what}")
            time.sleep(0.01)

    def wait_for_steps(self, count: int, processes: int) -> None:
        """Waits until `count` steps were done by so many processes."""
        self.wait_for(f"{count} steps of {processes} processes", lambda: sum(
            step.processes == processes for step in self.steps()) >= count)

    def hold_after(self, step: int) -> None:
        """Lets the job do its steps up to this one. Otherwise, on a busy machine, it could be over too early."""
        partial = self.folder / ".hold.partial"
        partial.write_text(f"{step}\n", encoding="utf-8")
        partial.replace(self.folder / "hold")

    def starts(self, processes: int) -> int:
        """Returns how often so many processes have begun or gone on: then rank 0 prints a line."""
        return sum(log.read_text(encoding="utf-8", errors="replace").count(f"{processes} processes ")
                   for log in self.folder.glob("*.log"))

    def listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def print_event(self, text: str, label: str) -> None:
        """Prints the text, and marks this time in the picture with the label."""
        print(text, flush=True)
        self.events.append((time.time(), label))

    def run(self) -> None:
        # With the default settings, the last step of a phase is between two snapshots.
        steps = self.arguments.steps
        phase = steps * 3 // 11
        self.hold_after(steps * 4 // 11)
        self.start("a")  # Node a hosts the rendezvous because it starts first.
        self.wait_for("node a to listen", self.listens)
        self.start("b")
        self.start("c")
        self.wait_for_steps(phase, processes=3)
        self.print_event(f"step {self.steps()[-1].number} of 3 processes: kill -9 of node c",
                         "kill -9 of node c")
        self.nodes.pop("c").send_signal(signal.SIGKILL)
        self.hold_after(steps * 8 // 11)
        self.wait_for_steps(phase, processes=2)
        self.print_event(f"step {self.steps()[-1].number} of 2 processes: node d is started",
                         "node d is started")
        starts = self.starts(processes=3)
        self.start("d")
        self.hold_after(steps - 1)
        self.wait_for("three processes to go on", lambda: self.starts(processes=3) > starts)
        (self.folder / "hold").unlink()
        self.wait_for("the end of all nodes", lambda: all(
            process.poll() == 0 for process in self.nodes.values()))

    def stop(self) -> None:
        """Ends the nodes that still run after a failure."""
        for process in self.nodes.values():
            process.terminate()
        for process in self.nodes.values():
            process.wait()

    def report(self) -> None:
        parts = stretches(self.steps())
        for before, after in zip(parts, parts[1:], strict=False):
            again = before[-1].number - after[0].number + 1
            print(f"{after[0].processes} processes went on with step {after[0].number}: "
                  f"{after[0].time - before[-1].time:.1f} s without a step, {again} done again")
        last = parts[-1][-1]
        print(f"step {last.number} of {last.processes} processes: loss {last.loss:.6f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--program", type=pathlib.Path, default=HERE / "train.py", metavar="FILE",
                        help="what the nodes run: train.py, or the C++ program")
    parser.add_argument("--muster", default=shutil.which("muster"), help="default: PATH's")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    arguments = parser.parse_args()
    if arguments.muster is None:
        raise Failed("there is no muster in PATH: name it with --muster")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if any(arguments.folder.iterdir()):
        raise Failed(f"{arguments.folder} is not empty: the job would go on from what is there")
    job = Job(arguments)
    try:
        job.run()
    finally:
        job.stop()
    job.report()
    picture = arguments.folder / "steps.svg"
    picture.write_text(draw(job.steps(), job.events, "A job of three nodes loses one, goes on with "
                                                     "two, and takes a new one"), encoding="utf-8")
    print(f"drawn: {picture}")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"run.py: {error}")
