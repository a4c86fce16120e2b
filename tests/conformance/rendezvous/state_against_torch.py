#!/usr/bin/env python3
"""Tests the state codec against torch itself, on random states. Usage: state_against_torch.py
STATE_TOOL [seed]

Each state that torch pickles must be read to the same content. Each state that the codec writes
must be unpickled by torch to the same content, be pickled again by torch to exactly the same bytes,
and pass check_state.py (torch's backend, holder, operations).
"""
import base64
import json
import os
import pickle
import random
import subprocess
import sys
from datetime import datetime, timedelta, timezone

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)
import check_state
from _twin import state_twin

NOW = datetime(2026, 11, 1, 12, 0, 0, tzinfo=timezone.utc)


def random_node(rng, i):
    addr = rng.choice(["n", "", "node", f"node{i}.example.com", f"10.0.{i // 250}.{i % 250}", "fe80::1", "kn\u00f6ten", "\u00fc", "x" * 255, "y" * 300, "\U0001f680"])
    return dr._NodeDesc(addr, rng.choice([1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40]) + i, rng.choice([0, 0, 0, 1, 300]))


def random_state(rng, nodes):
    state = dr._RendezvousState()
    state.round = rng.choice([0, 1, 255, 256, 65536, 2**31, 2**40])
    state.complete = rng.random() < 0.5
    state.closed = rng.random() < 0.2
    if not state.complete and rng.random() < 0.5:
        state.deadline = NOW + timedelta(microseconds=rng.randrange(10**8))
    for i in range(nodes):
        node = random_node(rng, i)
        where = rng.random()
        if where < 0.7:
            state.participants[node] = i if state.complete else 0
        elif where < 0.85:
            state.wait_list.add(node)
        else:
            state.redundancy_list.add(node)
        # The heartbeats are in another order than the participants, and far enough in the past or
        # future to matter.
        state.last_heartbeats[node] = NOW + timedelta(microseconds=rng.randrange(-10**7, 10**12))
    return state


def without_iso(twin):
    if isinstance(twin, dict):
        return {k: without_iso(v) for k, v in twin.items() if k not in ("iso", "_actions_for_a_newcomer", "_ranks_as_torch_would_assign")}
    return [without_iso(v) for v in twin] if isinstance(twin, list) else twin


class Options:
    min, max, addr, pid, local_id = 1, 2**20, "check.invalid", 1, 0


def main():
    tool = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(line):
        tool.stdin.write(line + "\n")
        tool.stdin.flush()
        return tool.stdout.readline().rstrip("\n")

    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    checked = same = 0
    for nodes in [*range(0, 12), 40, 300, 999, 1000, 1001, 2000, 2500] + [rng.randrange(1, 60) for _ in range(100)]:
        state = random_state(rng, nodes)
        twin = without_iso(state_twin(state))
        for protocol in (2, 3, 4, 5):
            text = base64.b64encode(pickle.dumps(state, protocol=protocol)).decode()
            assert (got := ask(text)) and json.loads(got) == twin, f"read otherwise: {nodes} nodes, protocol {protocol}"
        ours = ask(json.dumps(twin))
        loaded = pickle.loads(base64.b64decode(ours))
        assert without_iso(state_twin(loaded)) == twin, f"torch reads otherwise what we wrote: {nodes} nodes"
        # Python iterates over a set in the order of hashes, which differ from run to run, so a set
        # with two or more elements has no fixed bytes.
        if len(state.wait_list) < 2 and len(state.redundancy_list) < 2:
            again = base64.b64encode(pickle.dumps(loaded)).decode()
            assert again == ours, f"torch writes other bytes: {nodes} nodes\n{ours}\n{again}"
            same += 1
        if nodes <= 300:
            got = check_state.check(ours, Options)
            assert without_iso(got) == twin
        checked += 1
    # Large states without a wait list, which need several frames and batches.
    for nodes in (999, 1000, 1001, 2000):
        state = random_state(rng, nodes)
        state.wait_list, state.redundancy_list = set(), set()
        ours = ask(json.dumps(without_iso(state_twin(state))))
        assert base64.b64encode(pickle.dumps(pickle.loads(base64.b64decode(ours)))).decode() == ours, nodes
        same += 1
    tool.stdin.close()
    assert tool.wait(timeout=30) == 0
    print(f"{checked} states agree with torch, {same} of them byte for byte")
    assert same > 15


if __name__ == "__main__":
    main()
