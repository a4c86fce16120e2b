#!/usr/bin/env python3
"""Tests a muster node at torch's own store when its compare-and-sets fail because other nodes are
faster or because the state has been deleted.

torchrun tries again without a pause in both cases. If the state has been deleted, it does so until
its join timeout, because the store answers with the expected value, which looks like a state
(bench/peer measures the cost)."""
import base64
import pickle
import socket
import struct
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

import harness

harness.needs_torch()

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

KEY = "torch.rendezvous.t"
NO_STATE = b"Y2FuaW1hZGFt"  # The text that torch stores for "no state".
STORED_KEY = struct.pack("<Q", len(KEY) + 1) + b"/" + KEY.encode()
COMPARE_SET = b"\x02" + STORED_KEY
GET = b"\x03" + STORED_KEY


class Store:
    """torch's own store, as a torchrun node would host it."""

    def __init__(self):
        self.torch = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        self.port = self.torch.port

    def state(self):
        """The stored state. None if the key does not exist or has the text for "no state"."""
        if not self.torch.check([KEY]):
            return None
        text = self.torch.get(KEY)
        return None if text == NO_STATE else pickle.loads(base64.b64decode(text))

    def participants(self):
        state = self.state()
        return {node.addr for node in state.participants} if state else set()

    def replace(self, state):
        """Overwrites the state, whatever it is, also if a node writes at the same time."""
        text = base64.b64encode(pickle.dumps(state)).decode()
        seen = self.torch.get(KEY).decode() if self.torch.check([KEY]) else ""
        while (found := self.torch.compare_set(KEY, seen, text).decode()) != text:
            seen = found

    def wipe(self):
        """Deletes all keys, as if the store had been restarted at the same address."""
        for round_key in ["MASTER_ADDR", "MASTER_PORT"] + [
                f"torchelastic/{what}/{rank}" for what in ("role_info", "assigned_ranks") for rank in (0, 1)]:
            self.torch.delete_key(f"{KEY}.0/{round_key}")
        assert self.torch.delete_key(KEY)


class Tap:
    """A proxy between a node and the store. It records when the node sends `request`, which is a
    compare-and-set of the state unless the test says otherwise."""

    def __init__(self, store, before=lambda tries: None, request=COMPARE_SET):
        self.store_port = store.port
        self.request = request
        # Called with the number of requests so far, including this one, before it reaches the store.
        self.before = before
        self.tries = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            node, _ = self.socket.accept()
            store = socket.create_connection(("127.0.0.1", self.store_port))
            for way in ((node, store, self._new_watcher()), (store, node, lambda data: None)):
                threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _new_watcher(self):
        """Returns a function that sees each try once, also if its bytes arrive in pieces."""
        rest = b""

        def watch(data):
            nonlocal rest
            rest += data
            while (at := rest.find(self.request)) >= 0:
                rest = rest[at + len(self.request):]
                self.tries.append(time.monotonic())
                self.before(len(self.tries))
            rest = rest[-len(self.request) + 1:]
        return watch

    @staticmethod
    def _pass_on(source, target, watch):
        try:
            while data := source.recv(65536):
                watch(data)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


KEEP_ALIVE_S = 1


def muster(nodes, port, addr, **conf):
    return nodes.muster("c10d", "127.0.0.1", port, "t", 2, 2, local_addr=addr, last_call_timeout=1,
                        keep_alive_interval=KEEP_ALIVE_S, keep_alive_max_attempt=60, **conf)


def others_are_faster(nodes):
    """The node gives way to the other nodes, with increasing pauses. The pauses have a minimum
    length on any machine."""
    losses = 8
    store = Store()

    def rival(tries):
        if not 2 <= tries <= 1 + losses:  # The first try only ensures that a state exists.
            return
        state = _RendezvousState()
        state.last_heartbeats[_NodeDesc("rival", tries, 0)] = datetime.now(timezone.utc)
        store.replace(state)
    tap = Tap(store, rival)
    ours = muster(nodes, tap.port, "127.0.0.3")
    harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
    lost = tap.tries[1:2 + losses]
    assert len(lost) == 1 + losses, tap.tries
    for i, (one, next_one) in enumerate(zip(lost, lost[1:])):
        most_s = min(0.02 * 2 ** min(i, 6), 1)  # A pause is at least half of this.
        assert next_one - one > 0.45 * most_s, (i, next_one - one)
    other = muster(nodes, store.port, "127.0.0.4")
    harness.agree([ours.round(), other.round()], [1, 1])


def a_setting_makes_the_pauses(nodes):
    """cas_backoff_max_seconds replaces the increasing pauses, here by very short ones."""
    losses = 14
    store = Store()

    def rival(tries):
        if 2 <= tries <= 1 + losses:
            state = _RendezvousState()
            state.last_heartbeats[_NodeDesc("rival", tries, 0)] = datetime.now(timezone.utc)
            store.replace(state)
    tap = Tap(store, rival)
    ours = muster(nodes, tap.port, "127.0.0.3", cas_backoff_max_seconds=0.001)
    harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
    took = tap.tries[1 + losses] - tap.tries[1]
    increasing = sum(min(0.02 * 2 ** min(i, 6), 1) / 2 for i in range(losses))
    assert took < 0.9 * increasing, (took, increasing)
    other = muster(nodes, store.port, "127.0.0.4")
    harness.agree([ours.round(), other.round()], [1, 1])


# The cost of a deleted state: the try that fails, writing the text for "no state", and joining. A
# keep-alive may be in flight.
FEW = 6


class Tries:
    """Counts the tries of a node from now on."""

    def __init__(self, tap):
        self.tap = tap
        self.before = len(tap.tries)
        self.begun = time.monotonic()

    def are_few(self, most=FEW):
        """At most this number, and the keep-alives of the time that has passed."""
        keep_alives = (time.monotonic() - self.begun) / KEEP_ALIVE_S
        tries = self.tap.tries[self.before:]
        assert len(tries) <= most + keep_alives, [t - self.begun for t in tries]


def the_state_vanishes_while_it_waits(nodes):
    store = Store()
    tap = Tap(store)
    ours = muster(nodes, tap.port, "127.0.0.3")
    for _ in range(3):
        harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
        tries = Tries(tap)
        store.wipe()
        harness.wait_for("it has joined again", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
        tries.are_few()
    other = muster(nodes, store.port, "127.0.0.4")
    harness.agree([ours.round(), other.round()], [1, 1])
    ours.tell("finish")
    other.tell("finish")
    assert ours.event("end")["succeeded"] and other.event("end")["succeeded"]


def the_state_vanishes_while_workers_run(nodes):
    """A deleted state disturbs no node as long as no node needs a round. Then the nodes meet in the
    state that is there."""
    store = Store()
    taps = [Tap(store), Tap(store)]
    both = [muster(nodes, tap.port, addr) for tap, addr in zip(taps, ("127.0.0.3", "127.0.0.4"))]
    harness.agree([node.round() for node in both], [1, 1])
    tries = [Tries(tap) for tap in taps]
    store.wipe()
    harness.wait_for("somebody says that there is no state", lambda: store.torch.check([KEY]))
    for node, of_node in zip(both, tries):
        assert node.events.empty(), node.events.get()
        of_node.are_few()
    both[0].tell("fail rank 0 exited with 1")
    both[0].tell("join")
    assert "have not heard from this one" in both[1].event("restart")["why"]
    both[1].tell("join")
    harness.agree([node.round() for node in both], [1, 1])
    for of_node in tries:
        of_node.are_few(3 * FEW)


def the_state_vanishes_while_it_is_read(nodes):
    """A node waits for the key, and then reads it. A key that is deleted between the two has an
    empty value for torch's store."""
    store = Store()
    to_wipe, wiped = threading.Event(), threading.Event()

    def wipe(reads):
        if to_wipe.is_set() and not wiped.is_set():
            store.wipe()
            wiped.set()
    tap = Tap(store, wipe, GET)
    both = [muster(nodes, port, addr) for port, addr in ((tap.port, "127.0.0.3"), (store.port, "127.0.0.4"))]
    harness.agree([node.round() for node in both], [1, 1])
    to_wipe.set()
    assert wiped.wait(30)
    harness.wait_for("the node says that there is no state", lambda: store.torch.check([KEY]))
    both[0].tell("fail rank 0 exited with 1")
    both[0].tell("join")
    assert "have not heard from this one" in both[1].event("restart")["why"]
    both[1].tell("join")
    harness.agree([node.round() for node in both], [1, 1])


def the_state_vanishes_between_a_real_torchrun_and_it(nodes):
    """The first node that is back writes the text for "no state". torchrun then also finds a state
    that it can join."""
    store = Store()
    tap = Tap(store)
    ours = muster(nodes, tap.port, "127.0.0.3")
    harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
    store.wipe()
    torch = nodes.torchrun("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{store.port}", "--rdzv-id=t",
                           "--nnodes=2", "--local-addr=127.0.0.2",
                           "--rdzv-conf=last_call_timeout=1,is_host=0,keep_alive_interval=1,keep_alive_max_attempt=60")
    harness.agree([torch.round(), ours.round()], [1, 1])
    ours.tell("finish")
    torch.finish()
    assert ours.event("end")["succeeded"] is True
    assert torch.exit_code() == 0


def a_rank_0_that_says_nothing_keeps_nobody_waiting_for_us(nodes):
    """Rank 0 needs nothing but this node's role to assign all ranks. The node publishes its role
    even if rank 0 never answers."""
    store = Store()
    ours = muster(nodes, store.port, "127.0.0.3")
    harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
    state = store.state()
    [us] = state.participants
    silent = _NodeDesc("127.0.0.2", 1, 0)
    state.participants = {silent: 0, us: 1}
    state.last_heartbeats[silent] = datetime.now(timezone.utc)
    state.complete = True
    store.replace(state)
    harness.wait_for("its role", lambda: store.torch.check([f"{KEY}.0/torchelastic/role_info/1"]), told=ours.log)
    harness.wait_for("what it waits for", lambda: "waiting for MASTER_ADDR from node rank 0" in ours.log(),
                     told=ours.log)


if __name__ == "__main__":
    harness.run_tests([others_are_faster, a_setting_makes_the_pauses, the_state_vanishes_while_it_waits, the_state_vanishes_while_workers_run,
                       the_state_vanishes_while_it_is_read, the_state_vanishes_between_a_real_torchrun_and_it,
                       a_rank_0_that_says_nothing_keeps_nobody_waiting_for_us], sys.argv[1:])
