"""A live job of two muster nodes, which attacks must not disturb: what its tests share."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from hostile import KEEP_LITTLE, Attacker, Memory, Witness, patience_s

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from support import MUSTER, PATIENCE_S, agent_of, wait_for

CONSTANT_BYTES = 64 << 20
UNREAD_BYTES = (64 + 2) << 20  # docs/protocol.md: all clients' unread replies at an agent's store; the job has two workers.


class VictimJob(unittest.TestCase):
    """One job for all tests of a class. Its workers write "master.RANK" with MASTER_PORT at their start, how long each step
    took into "steps" (rank 0), and end when the file "finish" is there."""

    @classmethod
    def worker_text(cls):
        raise NotImplementedError

    @classmethod
    def environment(cls):
        return {}

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-attack-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, True)
        (cls.dir / "worker.py").write_text(cls.worker_text())
        cls.port = free_port()
        cls.nodes = {tag: cls.node(tag) for tag in "ab"}
        try:
            wait_for(lambda: len(cls.steps()) > 5, "the job's first steps")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cls.output()}") from None
        cls.master_port = int((cls.dir / "master.0").read_text())
        cls.agents = [agent_of(node.pid) for node in cls.nodes.values()]

    @classmethod
    def node(cls, tag):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_"))}
        with open(cls.dir / f"err.{tag}", "wb") as err:
            process = subprocess.Popen(
                [MUSTER, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=job",
                 f"--rdzv-endpoint=127.0.0.1:{cls.port}", str(cls.dir / "worker.py")],
                stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                env={**environment, **KEEP_LITTLE, "TEST_DIR": str(cls.dir), **cls.environment()})
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        return process

    @classmethod
    def steps(cls):
        path = cls.dir / "steps"
        return [float(line) for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []

    @classmethod
    def output(cls):
        return "\n".join((cls.dir / f"err.{tag}").read_text(errors="replace")[-2000:] for tag in cls.nodes)

    def play(self, attack, port):
        steps_before = len(self.steps())
        memories = [Memory(agent) for agent in self.agents]
        witness = Witness(port, self.agents)
        attacker = Attacker(port)
        try:
            attack(attacker)
            visits, steps = witness.visits, len(self.steps())
            wait_for(lambda: witness.errors or (witness.visits > visits + 1 and len(self.steps()) > steps + 1),
                     "others to be served", 30)
        finally:
            witness.stop()
            for memory in memories:
                memory.stop()
            attacker.close()
        for tag, node in self.nodes.items():
            self.assertIsNone(node.poll(), f"{tag} has ended\n{self.output()}")
        self.assertFalse(witness.errors, "others were not served")
        self.assertLess(witness.longest_s, patience_s(), "others had to wait")
        self.assertLess(max(self.steps()[steps_before:]), patience_s(), "the job had to wait")
        constant_bytes = CONSTANT_BYTES + min(getattr(attack, "unread_bytes", 0), UNREAD_BYTES)
        for memory in memories:
            self.assertLess(memory.most, 10 * attacker.sent[0] + constant_bytes, f"{attacker.sent[0]} bytes were sent")

    def ends_well(self):
        (self.dir / "finish").touch()
        for node in self.nodes.values():
            self.assertEqual(node.wait(PATIENCE_S), 0, self.output())


def add_tests(case, where, attacks):
    """Adds to `case`, a VictimJob, a method for each attack on its rendezvous, or on its workers' store."""
    for attack in attacks:
        def test(self, attack=attack):
            self.play(attack, self.port if where == "rendezvous" else self.master_port)
        test.__doc__ = attack.__doc__
        setattr(case, f"test_{where}_{attack.__name__}", test)
