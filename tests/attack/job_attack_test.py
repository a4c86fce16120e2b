#!/usr/bin/env python3
"""The attacks against a live job of two muster nodes: its rendezvous and its workers' store go on.

    job_attack_test.py [-v] [OnJob.test_NAME ...]      (MUSTER_BIN names the program)
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import attacks
from hostile import KEEP_LITTLE, Attacker, Memory, Witness, patience_s

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from support import MUSTER, PATIENCE_S, agent_of, main, wait_for

CONSTANT_BYTES = 64 << 20

# An honest worker: in each step every rank adds to a key of the step and waits until all have. It
# notes the longest step since it was last asked, and ends when the file "finish" is there.
WORKER = """
import os, socket, struct, sys, time
folder, rank, world = os.environ["TEST_DIR"], os.environ["RANK"], int(os.environ["WORLD_SIZE"])
def text(data):
    return struct.pack("<Q", len(data)) + data
def receive(size):
    data = b""
    while len(data) < size:
        part = store.recv(size - len(data))
        if not part:
            sys.exit("the store has closed the connection")
        data += part
    return data
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 60)
store.settimeout(60)
store.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE))
def note(name, line):
    with open(f"{folder}/{name}.{rank}.new", "w") as file:
        file.write(line)
    os.rename(f"{folder}/{name}.{rank}.new", f"{folder}/{name}.{rank}")
note("master", os.environ["MASTER_PORT"])
step = 0
told = False
while True:
    begin = time.monotonic()
    key = b"step%d" % step
    store.sendall(b"\\x12" + text(key) + struct.pack("<q", world))  # BARRIER
    receive(1)
    took = time.monotonic() - begin
    if rank == "0":
        store.sendall(b"\\x08" + text(b"step%d" % (step - 1)))  # DELETE_KEY
        receive(8)
        with open(folder + "/steps", "a") as file:
            file.write("%.4f\\n" % took)
    step += 1
    if rank == "0" and not told and os.path.exists(folder + "/finish"):
        told = True
        store.sendall(b"\\x01" + text(b"finish-after") + text(b"%d" % (step + 2)))  # SET
    store.sendall(b"\\x03" + text(b"finish-after"))  # GET
    size, = struct.unpack("<Q", receive(8))
    if size and step > int(receive(size)):
        sys.exit(0)
    time.sleep(0.005)
"""


class OnJob(unittest.TestCase):
    """One job for all attacks; one method for each function of attacks.py, added below."""

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-attack-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, True)
        (cls.dir / "worker.py").write_text(WORKER)
        cls.port = free_port()
        cls.nodes = {tag: cls.node(tag) for tag in "ab"}
        wait_for(lambda: len(cls.steps()) > 5, "the job's first steps")
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
                env={**environment, **KEEP_LITTLE, "TEST_DIR": str(cls.dir)})
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        return process

    @classmethod
    def steps(cls):
        path = cls.dir / "steps"
        return [float(line) for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []

    def output(self):
        return "\n".join((self.dir / f"err.{tag}").read_text(errors="replace")[-2000:] for tag in self.nodes)

    def play(self, attack, port):
        steps_before = len(self.steps())
        memories = [Memory(agent) for agent in self.agents]
        witness = Witness(port)
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
        for memory in memories:
            self.assertLess(memory.most, 10 * attacker.sent[0] + CONSTANT_BYTES, f"{attacker.sent[0]} bytes were sent")

    def test_zz_the_job_ends_well_after_all_of_it(self):  # The last one by its name.
        (self.dir / "finish").touch()
        for tag, node in self.nodes.items():
            self.assertEqual(node.wait(PATIENCE_S), 0, self.output())


def add_test(name, attack, where):
    def test(self):
        self.play(attack, self.port if where == "rendezvous" else self.master_port)
    test.__doc__ = attack.__doc__
    setattr(OnJob, f"test_{where}_{name}", test)


# What costs most, or was found to stall or to end a job; musterd_attack_test.py has them all.
ON_RENDEZVOUS = ("hello_of_many_fields", "multi_get_of_one_key", "list_keys_unread", "get_beside_append",
                 "long_address_of_many_nodes", "forged_lines", "random_bytes", "node_that_reads_nothing")
ON_STORE = ("list_keys_unread", "get_beside_append", "multi_get_of_one_key_most_times",
            "queues_that_come_and_go_under_a_wait", "requests_without_end")
for each_name in ON_RENDEZVOUS:
    add_test(each_name, getattr(attacks, each_name), "rendezvous")
for each_name in ON_STORE:
    add_test(each_name, getattr(attacks, each_name), "store")


if __name__ == "__main__":
    main()
