"""Starts real torchrun nodes and session drivers for the tests in this folder.

Every wait has a limit and ends when its condition holds. If the condition does not hold in time,
the error says what was there instead."""
import base64
import json
import os
import pathlib
import pickle
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_port
from warm_torchrun import WarmTorchrun

BOUND_S = 90  # The limit of one wait: torchrun alone takes seconds to start.

WORKER = """
import json, os, pathlib, socket, sys, time
here = pathlib.Path(sys.argv[1])
names = ["RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
         "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "LOCAL_RANK"]
facts = {name: os.environ[name] for name in names}
with socket.create_connection((facts["MASTER_ADDR"], int(facts["MASTER_PORT"])), timeout=30):
    facts["store_listens"] = True
new = here / f"new.{os.getpid()}"
new.write_text(json.dumps(facts))
new.rename(here / f"worker.{time.time_ns()}.{os.getpid()}")
while here.exists():  # Its agent may have been killed.
    for command in here.glob("exit.*"):
        if command.name.endswith(".all"):
            sys.exit(0)
        try:
            command.unlink()
        except FileNotFoundError:
            continue
        sys.exit(int(command.name.split(".")[1]))
    time.sleep(0.05)
"""


def wait_for(what, condition, seconds=BOUND_S, told=lambda: ""):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}\n{told()}")


def wait_until_listening(port):
    def listens():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return True
        except OSError:
            return False
    wait_for(f"port {port} listens", listens)


def store_client(port):
    """A client of the torch store that listens on this port. Needs torch."""
    from torch.distributed import TCPStore
    return TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=BOUND_S))


def change_state(store, key, change):
    """Applies `change` to the rendezvous state in this key. Nodes write the same key: tries again
    until no node has written between the read and the compare-and-set."""
    while True:
        seen = store.get(key)
        state = pickle.loads(base64.b64decode(seen))
        change(state)
        text = base64.b64encode(pickle.dumps(state))
        if store.compare_set(key, seen, text) == text:
            return


class Nodes:
    """All nodes of one test. Nodes that still run at its end are killed."""

    def __init__(self, driver):
        self.driver = driver
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-sessions-"))
        (self.dir / "worker.py").write_text(WORKER)
        self.nodes = []

    def __enter__(self):
        return self

    def __exit__(self, error, value, trace):
        for node in self.nodes:
            if error:
                print(f"--- {node.name}\n{node.log()}", file=sys.stderr)
            node.end()
        shutil.rmtree(self.dir, ignore_errors=True)

    def muster(self, *arguments, **conf):
        node = MusterNode(self, f"muster{len(self.nodes)}", arguments, conf)
        self.nodes.append(node)
        return node

    def torchrun(self, *arguments, nproc=1, environment=None):
        node = TorchrunNode(self, f"torchrun{len(self.nodes)}", arguments, nproc, environment or {})
        self.nodes.append(node)
        return node


class Node:
    def __init__(self, nodes, name):
        self.name = name
        self.dir = nodes.dir / name
        self.dir.mkdir()
        self.log_path = self.dir / "log"

    def log(self):
        return self.log_path.read_text(errors="replace")[-6000:]

    def exit_code(self, seconds=BOUND_S):
        wait_for(f"{self.name} ends", lambda: self.process.poll() is not None, seconds, self.log)
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the node, and returns when none of its threads runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")

        def stopped():
            return all(task.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T"
                       for task in tasks.iterdir())
        wait_for(f"{self.name} is stopped", stopped)


class MusterNode(Node):
    """A session driver: the session of a muster agent without the agent."""

    def __init__(self, nodes, name, arguments, conf):
        super().__init__(nodes, name)
        pairs = [f"{key}={value}" for key, value in conf.items()]
        self.events = queue.Queue()
        self.seen = []
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen([nodes.driver, *map(str, arguments), *pairs], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))

    def event(self, name, seconds=BOUND_S):
        """The next event other than host_store. It must have this name."""
        end = time.monotonic() + seconds
        while True:
            try:
                event = self.events.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"{self.name}: no {name} within {seconds} s after {self.seen}\n{self.log()}")
            self.seen.append(event)
            if event["event"] == name:
                return event
            if event["event"] != "host_store":
                raise AssertionError(f"{self.name}: {event} instead of {name}\n{self.log()}")

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def round(self, seconds=BOUND_S):
        """The round with the values that a worker of a torchrun node would see."""
        event = self.event("round", seconds)
        return {"RANK": event["base_rank"], "WORLD_SIZE": event["world_size"],
                "GROUP_RANK": event["group_rank"], "GROUP_WORLD_SIZE": event["group_world_size"],
                "MASTER": (event["master_addr"], event["master_port"]), "event": event}

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class TorchrunNode(Node):
    """The real torchrun with workers that write their environment to files."""

    def __init__(self, nodes, name, arguments, nproc, environment):
        super().__init__(nodes, name)
        self.nproc = nproc
        self.seen = set()
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={nproc}",
                   *arguments, str(nodes.dir / "worker.py"), str(self.dir)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        with self.log_path.open("w") as log:
            self.process = WarmTorchrun(command, stdout=log, stderr=log, env=environment,
                                        start_new_session=True)

    def _new(self):
        files = [f for f in self.dir.glob("worker.*") if f.name not in self.seen]
        if len(files) >= self.nproc:
            return sorted(files)[:self.nproc]
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended with {self.process.returncode}\n{self.log()}")
        return None

    def round(self, seconds=BOUND_S):
        files = wait_for(f"{self.name}: workers start", self._new, seconds, self.log)
        self.seen.update(f.name for f in files)
        facts = min((json.loads(f.read_text()) for f in files), key=lambda w: int(w["LOCAL_RANK"]))
        return {**{n: int(facts[n]) for n in ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")},
                "MASTER": (facts["MASTER_ADDR"], int(facts["MASTER_PORT"])), "event": facts}

    def fail_a_worker(self):
        (self.dir / f"exit.3.{time.time_ns()}").touch()

    def finish(self):
        (self.dir / "exit.0.all").touch()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        # Workers have their own sessions, so killing torchrun may leave them. This file ends them.
        (self.dir / "exit.0.all").touch()


def agree(rounds, workers):
    """Checks that all nodes agree on one round. `rounds` has one entry for each node, and `workers`
    their numbers of workers in the same order."""
    assert len({r["MASTER"] for r in rounds}) == 1, rounds
    assert {r["WORLD_SIZE"] for r in rounds} == {sum(workers)}, rounds
    assert {r["GROUP_WORLD_SIZE"] for r in rounds} == {len(rounds)}, rounds
    assert sorted(r["GROUP_RANK"] for r in rounds) == list(range(len(rounds))), rounds
    by_group = sorted(zip(rounds, workers), key=lambda pair: pair[0]["GROUP_RANK"])
    base = 0
    for facts, count in by_group:
        assert facts["RANK"] == base, rounds
        base += count


def round_of_world(node, world_size):
    """The node's next round of this size. On a busy machine one of the two nodes may have formed a
    round alone before that."""
    while True:
        facts = node.round()
        if facts["WORLD_SIZE"] == world_size:
            return facts
        if isinstance(node, MusterNode):
            node.event("restart")
            node.tell("join")


def run_tests(tests, arguments):
    """`arguments`: the driver, then names of tests (none: all tests). MUSTER_SHARD=2/3 runs every
    third test, from the second one on."""
    driver, *names = arguments
    number, count = map(int, os.environ.get("MUSTER_SHARD", "1/1").split("/"))
    for test in tests[number - 1::count]:
        if names and test.__name__ not in names:
            continue
        start = time.monotonic()
        print(f"{test.__name__} ...", flush=True)
        with Nodes(driver) as nodes:
            test(nodes)
        print(f"{test.__name__}: ok, {time.monotonic() - start:.1f} s", flush=True)


def needs_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: torch is not installed")
        sys.exit(77)
