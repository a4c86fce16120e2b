#!/usr/bin/env python3
"""N torchrun nodes join at one store, with torch's own, unchanged DynamicRendezvousHandler.

    torch_nodes.py --port N [--nodes 8] [--restarts 2] [--limit-seconds 120]

Each node is a process that is forked after torch is imported, so that the nodes share no
interpreter lock. All nodes join together, and then join again together, as after a worker's
failure. Prints one JSON object. Exit status 3: not done within the limit.
"""
import argparse
import datetime
import gc
import json
import logging
import os
import select
import signal
import sys
import time

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
from torch.distributed import TCPStore  # noqa: E402 (the log level comes first)
from torch.distributed.elastic.rendezvous import (  # noqa: E402
    c10d_rendezvous_backend, dynamic_rendezvous)

TOO_SLOW = 3
# The run id has the parent's pid, because one store may serve several torch_nodes.py in turn.
RUN_ID = f"bench-{os.getpid()}"


class CountedBackend(c10d_rendezvous_backend.C10dRendezvousBackend):
    """Counts the handler's requests to the store. Each try to write is a compare-and-set."""

    def __init__(self, store, run_id):
        self.tries = self.reads = 0
        super().__init__(store, run_id)

    def get_state(self):
        self.reads += 1
        return super().get_state()

    def set_state(self, state, token=None):
        self.tries += 1
        return super().set_state(state, token)


def make_handler(options, index):
    patience = datetime.timedelta(seconds=options.limit_seconds + 60)
    store = TCPStore("127.0.0.1", options.port, is_master=False, timeout=patience)
    backend = CountedBackend(store, RUN_ID)
    # Each node has its own address, on which rank 0 can listen, as rank 0 of torchrun does.
    address = f"127.0.{1 + index // 250}.{1 + index % 250}"
    handler = dynamic_rendezvous.DynamicRendezvousHandler.from_backend(
        RUN_ID, store, backend, options.nodes, options.nodes, address)
    return handler, backend


def run_node(options, index, gate, notes):
    """Runs one node in its process. Writes one note when it is ready, and one for each round."""
    def note(**fields):
        # The write is atomic, because it is shorter than PIPE_BUF.
        os.write(notes, (json.dumps(fields) + "\n").encode())

    try:
        handler, backend = make_handler(options, index)
        note(index=index)
        while os.read(gate, 1):
            backend.tries = backend.reads = 0
            info = handler.next_rendezvous()
            note(index=index, at_ns=time.monotonic_ns(), rank=info.rank,
                 world_size=info.world_size, tries=backend.tries, reads=backend.reads)
    except Exception as error:  # noqa: BLE001 (the parent prints any error)
        note(index=index, error=f"{type(error).__name__}: {error}"[:300])


class Nodes:
    def __init__(self, options):
        self.options = options
        self.deadline_s = time.monotonic() + options.limit_seconds
        self.unread = b""
        self.notes, notes = os.pipe()
        gate, self.gate = os.pipe()
        gc.freeze()
        self.pids = []
        for index in range(options.nodes):
            pid = os.fork()
            if pid == 0:
                os.close(self.gate)
                os.close(self.notes)
                run_node(options, index, gate, notes)
                os._exit(0)
            self.pids.append(pid)
        os.close(gate)
        os.close(notes)

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)

    def read_notes(self):
        """Reads one note of each node. Returns None if they do not come within the limit."""
        found = []
        while len(found) < self.options.nodes:
            left_s = max(self.deadline_s - time.monotonic(), 0)
            if not select.select([self.notes], [], [], left_s)[0]:
                return None
            self.unread += os.read(self.notes, 1 << 16)
            *lines, self.unread = self.unread.split(b"\n")
            found += [json.loads(line) for line in lines]
            for one in found:
                if "error" in one:
                    sys.exit(f"torch_nodes: node {one['index']}: {one['error']}")
        return found

    def round(self):
        """Lets all nodes join at once. Measures the time until the last node has its rank."""
        begin_ns = time.monotonic_ns()
        os.write(self.gate, b"g" * self.options.nodes)
        notes = self.read_notes()
        if notes is None:
            return None
        if sorted(one["rank"] for one in notes) != list(range(self.options.nodes)):
            sys.exit("torch_nodes: the ranks are not 0 to N - 1, each once")
        return {"seconds": (max(one["at_ns"] for one in notes) - begin_ns) / 1e9,
                "tries": sum(one["tries"] for one in notes),
                "reads": sum(one["reads"] for one in notes)}


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--port", type=int, required=True)
    parse.add_argument("--pid", help="the server's: as rendezvous_load, but not needed here")
    parse.add_argument("--nodes", type=int, default=8)
    parse.add_argument("--restarts", type=int, default=2)
    parse.add_argument("--limit-seconds", type=float, default=120)
    options = parse.parse_args()
    logging.disable(logging.CRITICAL)
    nodes = Nodes(options)
    try:
        rounds = [nodes.round() for _ in range(1 + options.restarts)] if nodes.read_notes() else []
    finally:
        nodes.end()
    if not rounds or None in rounds:
        print(f"not done within {options.limit_seconds:g} s", file=sys.stderr)
        return TOO_SLOW
    print(json.dumps({"nodes": options.nodes, "join": rounds[0], "restarts": rounds[1:]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
