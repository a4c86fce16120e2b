#!/usr/bin/env python3
"""A muster node at torch's own store, where its compare-and-sets come to nothing: others are faster, or the state is gone.

torchrun asks again without a pause in both cases; in the second one until its join timeout, as the store answers with
what was expected, which looks like a state (bench/peer has what that costs)."""
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
NO_STATE = b"Y2FuaW1hZGFt"  # torch's own text.
COMPARE_SET = b"\x02" + struct.pack("<Q", len(KEY) + 1) + b"/" + KEY.encode()


class Store:
    """torch's, as a torchrun node would host it."""

    def __init__(self):
        self.torch = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        self.port = self.torch.port

    def state(self):
        """None: there is none, or it says so."""
        if not self.torch.check([KEY]):
            return None
        text = self.torch.get(KEY)
        return None if text == NO_STATE else pickle.loads(base64.b64decode(text))

    def participants(self):
        state = self.state()
        return {node.addr for node in state.participants} if state else set()

    def replace(self, state):
        """Whatever is there."""
        text = base64.b64encode(pickle.dumps(state)).decode()
        seen = self.torch.get(KEY).decode() if self.torch.check([KEY]) else ""
        assert self.torch.compare_set(KEY, seen, text).decode() == text

    def wipe(self):
        """As a store that was started again behind the same address."""
        for round_key in ["MASTER_ADDR", "MASTER_PORT"] + [
                f"torchelastic/{what}/{rank}" for what in ("role_info", "assigned_ranks") for rank in (0, 1)]:
            self.torch.delete_key(f"{KEY}.0/{round_key}")
        assert self.torch.delete_key(KEY)


class Tap:
    """Between a node and the store: when it has tried a compare-and-set of the state."""

    def __init__(self, store, before=lambda tries: None):
        self.store_port = store.port
        self.before = before  # Called with the number of tries, this one included.
        self.tries = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            node, _ = self.socket.accept()
            store = socket.create_connection(("127.0.0.1", self.store_port))
            for way in ((node, store, self._look()), (store, node, lambda data: None)):
                threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _look(self):
        """Sees each try once, however the bytes come."""
        rest = b""

        def look(data):
            nonlocal rest
            rest += data
            while (at := rest.find(COMPARE_SET)) >= 0:
                rest = rest[at + len(COMPARE_SET):]
                self.tries.append(time.monotonic())
                self.before(len(self.tries))
            rest = rest[-len(COMPARE_SET) + 1:]
        return look

    @staticmethod
    def _pass_on(source, target, look):
        try:
            while data := source.recv(65536):
                look(data)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def muster(nodes, port, addr, **conf):
    return nodes.muster("c10d", "127.0.0.1", port, "t", 2, 2, local_addr=addr, last_call_timeout=1,
                        keep_alive_interval=1, keep_alive_max_attempt=10, **conf)


def others_are_faster(nodes):
    """It lets them, for longer each time. The pauses have a least length, whatever the machine does."""
    losses = 8
    store = Store()

    def rival(tries):
        if not 2 <= tries <= 1 + losses:  # The first one makes sure that there is a state.
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
        most_s = min(0.02 * 2 ** min(i, 6), 1)  # Half of it at least.
        assert next_one - one > 0.45 * most_s, (i, next_one - one)
    other = muster(nodes, store.port, "127.0.0.4")
    harness.agree([ours.round(), other.round()], [1, 1])


# What a wiped state costs a node: the try that fails, "there is none", joining; a keep-alive may be under way.
FEW = 6


def the_state_vanishes_while_it_waits(nodes):
    store = Store()
    tap = Tap(store)
    ours = muster(nodes, tap.port, "127.0.0.3")
    for _ in range(3):
        harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
        before = len(tap.tries)
        store.wipe()
        harness.wait_for("it has joined again", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
        assert len(tap.tries) - before <= FEW, [t - tap.tries[before] for t in tap.tries[before:]]
    other = muster(nodes, store.port, "127.0.0.4")
    harness.agree([ours.round(), other.round()], [1, 1])
    ours.tell("finish")
    other.tell("finish")
    assert ours.event("end")["succeeded"] and other.event("end")["succeeded"]


def the_state_vanishes_while_workers_run(nodes):
    """As long as nobody needs a round, that disturbs nobody; then they meet in what there is."""
    store = Store()
    taps = [Tap(store), Tap(store)]
    both = [muster(nodes, tap.port, addr) for tap, addr in zip(taps, ("127.0.0.3", "127.0.0.4"))]
    harness.agree([node.round() for node in both], [1, 1])
    before = [len(tap.tries) for tap in taps]
    store.wipe()
    harness.wait_for("somebody says that there is no state", lambda: store.torch.check([KEY]))
    for node, tap, tries in zip(both, taps, before):
        assert node.events.empty(), node.events.get()
        assert len(tap.tries) - tries <= FEW, tap.tries[tries:]
    both[0].tell("fail rank 0 exited with 1")
    both[0].tell("join")
    assert "have not heard from this one" in both[1].event("restart")["why"]
    both[1].tell("join")
    harness.agree([node.round() for node in both], [1, 1])
    for tap, tries in zip(taps, before):
        assert len(tap.tries) - tries <= 3 * FEW, tap.tries[tries:]


def the_state_vanishes_between_a_real_torchrun_and_it(nodes):
    """Whoever is back first says that there is none; torchrun, too, then finds one to join."""
    store = Store()
    tap = Tap(store)
    ours = muster(nodes, tap.port, "127.0.0.3")
    harness.wait_for("it has joined", lambda: store.participants() == {"127.0.0.3"}, told=ours.log)
    store.wipe()
    torch = nodes.torchrun("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{store.port}", "--rdzv-id=t",
                           "--nnodes=2", "--local-addr=127.0.0.2",
                           "--rdzv-conf=last_call_timeout=1,is_host=0,keep_alive_interval=1,keep_alive_max_attempt=10")
    harness.agree([torch.round(), ours.round()], [1, 1])
    ours.tell("finish")
    torch.finish()
    assert ours.event("end")["succeeded"] is True
    assert torch.exit_code() == 0


def a_rank_0_that_says_nothing_keeps_nobody_waiting_for_us(nodes):
    """Rank 0 needs this node's role, and nothing else of it, to deal everybody's ranks: it is there, whatever follows."""
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
    harness.run_tests([others_are_faster, the_state_vanishes_while_it_waits, the_state_vanishes_while_workers_run,
                       the_state_vanishes_between_a_real_torchrun_and_it,
                       a_rank_0_that_says_nothing_keeps_nobody_waiting_for_us], sys.argv[1:])
