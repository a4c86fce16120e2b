"""Small jobs of C++ and Python ranks, started with the variables that a launcher sets."""

import contextlib
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch._dynamo  # noqa: F401  DDP needs it. Each Python rank is a copy of this process.
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import twin  # noqa: F401  Needed by each Python rank.
from ports import free_port
from warm_torchrun import WarmTorchrun, is_torchrun

TWIN = pathlib.Path(__file__).parent / "twin.py"
LIMIT_S = 300  # A limit for busy machines, not an expectation.


class JobFailed(Exception):
    """A rank exited with a status other than 0, or did not exit. The text contains its stderr."""


class HostedStore:
    """The store that a launcher has for its workers: it outlives them."""

    def __init__(self):
        timeout = datetime.timedelta(seconds=LIMIT_S)
        self.store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout
        )

    def variables(self):
        return {"MASTER_PORT": str(self.store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}

    def keys(self):
        return sorted(key.decode() if isinstance(key, bytes) else key
                      for key in self.store.list_keys())


def rank_variables(rank, size, more):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TORCHELASTIC_", "SLURM_", "OMPI_", "GLOO_"))}
    mine = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo"}
    return kept | {name: str(value) for name, value in (mine | more).items()}


def start(command, variables, output, errors):
    """Starts the command. A Python rank is a copy of this process, which has loaded torch."""
    kind = WarmTorchrun if is_torchrun(command, sys.executable) else subprocess.Popen
    return kind(command, env=variables, stdout=output, stderr=errors)


def text_of(file):
    file.seek(0)
    return file.read()


def run_processes(commands, more):
    """Starts one process for each command, as rank 0, 1, …; returns their outputs."""
    size = len(commands)
    with contextlib.ExitStack() as files:
        streams = [[files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in commands]
        running = [start(command, rank_variables(rank, size, more), *streams[rank])
                   for rank, command in enumerate(commands)]
        end = time.monotonic() + LIMIT_S
        try:
            for process in running:
                process.wait(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise JobFailed(f"{commands}: not done after {LIMIT_S} s") from error
        finally:
            for process in running:
                process.kill()
                process.wait()
        for rank, process in enumerate(running):
            if process.returncode != 0:
                raise JobFailed(f"rank {rank}, {commands[rank]}: status {process.returncode}\n"
                                + text_of(streams[rank][1]))
        return [text_of(output) for output, _ in streams]


def run_tables(cpp, kinds, test, variant="-", more=None):
    """`kinds` has a "c" for each C++ rank and a "p" for each Python rank. Returns each rank's
    table.
    """
    hosted = HostedStore()  # The store lives as long as this variable.
    more = hosted.variables() | (more or {})
    with tempfile.TemporaryDirectory() as folder:
        programs = {"c": [cpp], "p": [sys.executable, str(TWIN)]}
        run_processes([[*programs[kind], test, variant, folder] for kind in kinds], more)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(len(kinds))]


class Compare(unittest.TestCase):
    def same(self, found, expected):
        """Checks that all ranks' tables have the expected names and tensors, equal bit for bit."""
        self.assertEqual(len(found), len(expected))
        for rank, (one, other) in enumerate(zip(found, expected, strict=True)):
            self.assertEqual(sorted(one), sorted(other), f"rank {rank}")
            for name, tensor in other.items():
                self.assertEqual(one[name].dtype, tensor.dtype, f"rank {rank}: {name}")
                self.assertTrue(torch.equal(one[name], tensor),
                                f"rank {rank}: {name}: {one[name]} instead of {tensor}")
