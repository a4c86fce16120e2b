"""Several agents of one job on this machine, each with a tag, and workers that the test controls."""
import json
import os
import pathlib
import signal
import subprocess
import sys

from support import MUSTER, PATIENCE_S, SOURCE, MusterTest, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from warm_reduce import REDUCE, WarmReduce
from warm_torchrun import WarmTorchrun, is_torchrun, is_warm

TORCH_PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv/bin/python"))

# The worker records its start in the file "starts" and waits. "exit.TAG" contains an exit code: the
# first worker of that node to see the file ends with this code and removes the file. If the file
# "finish" exists, every worker ends with success.
WORKER = """
import json, os, sys, time
folder, tag = os.environ["TEST_DIR"], os.environ["NODE_TAG"]
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
         "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "ROLE_RANK", "ROLE_WORLD_SIZE")
entry = {name: os.environ[name] for name in names}
entry["node"] = tag
fd = os.open(folder + "/starts", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
os.write(fd, (json.dumps(entry) + "\\n").encode())
def end(code):
    new = f"{folder}/ended.{tag}.{os.getpid()}"
    with open(new, "w") as file:
        file.write(str(os.getpid()))
    os.rename(new, f"{folder}/ended.{tag}")
    sys.stdout.flush()
    os._exit(code)  # Skips Python's shutdown, which a thread of Gloo may abort (torch 2.13).
while True:
    try:
        os.rename(f"{folder}/exit.{tag}", f"{folder}/exited.{tag}.{os.getpid()}")
        end(int(open(f"{folder}/exited.{tag}.{os.getpid()}").read()))
    except FileNotFoundError:
        pass
    if os.path.exists(folder + "/finish") or os.path.exists(f"{folder}/finish.{tag}"):
        end(0)
    time.sleep(0.01)
"""

# Every worker of every round reaches the store, or fails.
REACH = """
import os, socket
socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 30).close()
"""


class NodesTest(MusterTest):
    # The command before the arguments, by tag: another launcher, or another namespace.
    launchers = {}
    backend = "c10d"

    def setUp(self):
        super().setUp()
        self.worker = self.script("worker.py", WORKER)
        self.port = free_port()
        self.nodes = {}

    def workers_reduce_first(self):
        """In each round, each worker sums a value of every rank with gloo before it records its
        start."""
        first = REDUCE
        if is_warm(TORCH_PYTHON):
            reduce = WarmReduce(self.dir / "reduce")
            self.addCleanup(reduce.close)
            first = reduce.worker_text()
        self.worker.write_text(first + self.worker.read_text())

    def endpoint(self):
        return f"127.0.0.1:{self.port}"

    def arguments(self, tag, nnodes, extra):
        return [f"--nnodes={nnodes}", f"--rdzv-backend={self.backend}", "--rdzv-id=job",
                f"--rdzv-endpoint={self.endpoint()}", *extra]

    def node(self, tag, nnodes, *extra, command=None, env=None):
        """Starts one more agent of the job."""
        launcher = self.launchers.get(tag, [MUSTER])
        out = open(self.dir / f"out.{tag}", "wb")
        err = open(self.dir / f"err.{tag}", "wb")
        self.addCleanup(out.close)
        self.addCleanup(err.close)
        words = [*launcher, *self.arguments(tag, nnodes, extra), *(command or [str(self.worker)])]
        surroundings = {"stdout": out, "stderr": err, "cwd": self.dir,
                        "env": self.environment(TEST_DIR=str(self.dir), NODE_TAG=tag, **(env or {}))}
        if is_torchrun(launcher, TORCH_PYTHON):
            process = WarmTorchrun(words, **surroundings)
        else:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **surroundings)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.nodes[tag] = process
        return process

    def starts(self):
        """The records of all workers so far, in order."""
        # The last line may be incomplete while it is written.
        lines = self.read("starts").rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines]

    def output(self, tag):
        return f"stderr of {tag}:\n{self.read('err.' + tag)}"

    def all_output(self):
        return "\n".join(self.output(tag) for tag in self.nodes)

    def round_of(self, world, after=0, nodes=None):
        """The workers of the first complete world of this size after `after` starts."""
        def complete():
            entries = [e for e in self.starts()[after:] if e["WORLD_SIZE"] == str(world)]
            ranks = {e["RANK"]: e for e in entries}
            if len(ranks) < world:
                return None
            if nodes is not None and {e["node"] for e in ranks.values()} != set(nodes):
                return None
            return [ranks[str(rank)] for rank in range(world)]
        try:
            found = wait_for(complete, f"a world of {world}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nstarts: {self.starts()}\n{self.all_output()}") from None
        self.check_round(found)
        return found

    def check_round(self, entries):
        """Checks what must hold in every round, with any launcher."""
        self.assertEqual(len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in entries}), 1, entries)
        by_node = {}
        for entry in entries:
            by_node.setdefault(entry["node"], []).append(entry)
        self.assertEqual(sorted(int(e[0]["GROUP_RANK"]) for e in by_node.values()),
                         list(range(len(by_node))), entries)
        for own in by_node.values():
            self.assertEqual([int(e["LOCAL_RANK"]) for e in own], list(range(len(own))))
            self.assertEqual({e["GROUP_WORLD_SIZE"] for e in own}, {str(len(by_node))})

    def tell(self, name, text=""):
        temporary = self.dir / f"{name}.new"
        temporary.write_text(text)
        temporary.rename(self.dir / name)

    def worker_ended(self, tag):
        """Waits until a worker of that node has ended and has been reaped."""
        def gone():
            pid = self.read(f"ended.{tag}")
            return pid and not os.path.exists(f"/proc/{pid}")
        wait_for(gone, f"the end of a worker of {tag}")

    def node_finished(self, tag):
        """Waits until the host knows that this muster node has finished: the node then prints that
        it waits for the others."""
        wait_for(lambda: "have finished; waiting for the other nodes" in self.read(f"err.{tag}"),
                 f"{tag} to wait for the others")

    def ends(self, **codes):
        """Checks that every node ends with its code."""
        for tag, expected in codes.items():
            try:
                code = self.nodes[tag].wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{tag} does not end\n{self.all_output()}") from None
            self.assertEqual(code, expected, f"{tag}\n{self.all_output()}")

    def a_job_that_restarts(self):
        """Plays a job of two nodes with one restart, to its end."""
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=1")
        self.round_of(2)
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def kill(self, tag):
        os.kill(self.nodes[tag].pid, signal.SIGKILL)
        self.nodes[tag].wait()
