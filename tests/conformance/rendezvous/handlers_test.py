#!/usr/bin/env python3
"""Tests torch's own rendezvous handlers against musterd: nodes meet and restart, writers take
turns, and a run id can be used again.

handlers_test.py MUSTERD        exit code 77: skipped, torch is not installed here
"""
import base64
import functools
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from datetime import timedelta

try:
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousStateError
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from musterd import Musterd

MUSTERD = sys.argv.pop(1)
PATIENCE = 60  # A limit for answers that should come at once.


class CountingBackend(C10dRendezvousBackend):
    def __init__(self, store, run_id):
        self.tries = 0
        super().__init__(store, run_id)

    def set_state(self, state, token=None):
        self.tries += 1
        return super().set_state(state, token)


class Server(Musterd):
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster-handlers-")
        super().__init__(program=MUSTERD, log=f"{self.folder.name}/log")
        self.says("listening on")

    def store(self, timeout=PATIENCE):
        return TCPStore("127.0.0.1", self.port, is_master=False, timeout=timedelta(seconds=timeout))

    def stop(self):
        """Returns the log."""
        self.terminate()
        self.wait(PATIENCE)
        return self.log()


class Node:
    """The rendezvous of one torchrun agent: a connection, a backend and a handler."""

    def __init__(self, server, run_id, index, at_least, at_most, last_call=30):
        self.store = server.store()
        self.backend = CountingBackend(self.store, run_id)
        self.handler = DynamicRendezvousHandler.from_backend(
            run_id, self.store, self.backend, at_least, at_most, local_addr=f"127.0.1.{1 + index}",
            timeout=RendezvousTimeout(join=timedelta(seconds=PATIENCE), last_call=timedelta(seconds=last_call)))
        self.thread, self.info, self.error = None, None, None

    def join(self):
        def work():
            try:
                self.info = self.handler.next_rendezvous()
            except Exception as error:  # noqa: BLE001: the test looks at it
                self.error = error

        self.info = self.error = None
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def joined(self):
        self.thread.join(PATIENCE)
        if self.error is not None:
            raise self.error
        assert self.info is not None, "no rendezvous in time"
        return self.info

    @property
    def round(self):
        return self.handler._state_holder.state.round


def meet(nodes):
    """All nodes join at the same time. Returns the number of tries of each node."""
    before = [node.backend.tries for node in nodes]
    for node in nodes:
        node.join()
    infos = [node.joined() for node in nodes]
    assert sorted(info.rank for info in infos) == list(range(len(nodes))), infos
    assert {info.world_size for info in infos} == {len(nodes)}, infos
    assert len({node.round for node in nodes}) == 1
    masters = {(info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port) for info in infos}
    assert len(masters) == 1, masters
    return [node.backend.tries - count for node, count in zip(nodes, before)]


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


class NoRendezvous(unittest.TestCase):
    """torch's backend with values that are not a rendezvous state: musterd behaves as torch's
    server does."""

    def setUp(self):
        self.server = Server()
        self.backend = C10dRendezvousBackend(self.server.store(), "mine")

    def tearDown(self):
        self.assertRegex(self.server.stop(), "store_key_is_no_state peer=127.0.0.1:.* in the request at byte")

    def test_a_value_is_kept_and_compared(self):
        state, first, was_set = self.backend.set_state(b"x")
        self.assertEqual((state, was_set), (b"x", True))
        state, second, was_set = self.backend.set_state(b"y", first)
        self.assertEqual((state, was_set), (b"y", True))
        self.assertNotEqual(first, second)
        for stale in (first, None, "nonsense"):
            self.assertEqual(self.backend.set_state(b"z", stale), (b"y", second, False))
        self.assertEqual(self.backend.get_state(), (b"y", second))

    def test_values_that_begin_as_a_pickle_of_protocol_0_are_kept_and_compared(self):
        for i, value in enumerate((b"dummy_state", b"checkpoint", b"Baseline", b"invalid", b"Paris", b"{}", b"(lost", b"N", b"42")):
            backend = C10dRendezvousBackend(self.server.store(), f"words-{i}")
            self.assertIsNone(backend.get_state())
            state, token, was_set = backend.set_state(value)
            self.assertEqual((state, was_set), (value, True))
            self.assertEqual(backend.get_state(), (value, token))
            self.assertEqual(backend.set_state(b"next", "nonsense"), (value, token, False))
            state, _, was_set = backend.set_state(b"next " + value, token)
            self.assertEqual((state, was_set), (b"next " + value, True))

    def test_a_value_that_is_no_base64_is_seen_as_it_is(self):
        store = self.server.store()
        self.assertIsNone(self.backend.get_state())
        store.set("torch.rendezvous.mine", "not-base64!")
        with self.assertRaises(RendezvousStateError):
            self.backend.get_state()
        self.assertTrue(store.delete_key("torch.rendezvous.mine"))
        C10dRendezvousBackend(store, "yours").set_state(b"x")


class Planted(unittest.TestCase):
    """Pickles are written to a state's key before the first node joins. No torchrun node may ever
    load one."""

    PICKLE = base64.b64encode(b"cposix\ngetcwd\n(tR.").decode()
    KEY = "torch.rendezvous.planted"

    def setUp(self):
        self.server = Server()

    def test_no_request_leaves_one_there(self):
        for request in (
                lambda store: store.set(self.KEY, self.PICKLE),
                lambda store: store.multi_set(["a", self.KEY], ["1", self.PICKLE]),
                lambda store: store.append(self.KEY, self.PICKLE),
                lambda store: store.compare_set(self.KEY, "", self.PICKLE),
                # The pickle is written in parts, or with characters that b64decode() skips.
                lambda store: store.set(self.KEY, self.PICKLE[:1]),
                lambda store: store.set(self.KEY, "=-" + self.PICKLE)):
            attacker = self.server.store(5)
            with self.assertRaises(Exception):
                request(attacker)
                # A write has no reply, so the client notices the closed connection only at a later
                # request.
                for _ in range(3):
                    attacker.check(["x"])
        self.assertFalse(self.server.store().check([self.KEY]))
        nodes = [Node(self.server, "planted", i, 2, 2) for i in range(2)]
        meet(nodes)
        for node in nodes:
            node.handler.shutdown()
        self.assertIn("a value that Python could unpickle is written under /torch.rendezvous.planted", self.server.stop())

    def test_a_value_that_is_no_state_loses_against_the_nodes_state(self):
        nodes = [Node(self.server, "planted", i, 2, 2) for i in range(2)]
        meet(nodes)
        other = C10dRendezvousBackend(self.server.store(), "planted")
        for token in (None, b"ZHVtbXlfc3RhdGU="):
            state, _, was_set = other.set_state(b"dummy_state", token)
            self.assertFalse(was_set)
            self.assertEqual(type(pickle.loads(state)).__name__, "_RendezvousState")
        state, token = other.get_state()
        for value in (pickle.dumps({"round": 1}), b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0f", pickle.dumps(None)):
            with self.assertRaises(Exception):
                C10dRendezvousBackend(self.server.store(5), "planted").set_state(value, token)
        self.assertEqual(type(pickle.loads(other.get_state()[0])).__name__, "_RendezvousState")
        for node in nodes:
            node.handler.shutdown()

    def test_not_where_a_run_begins_either(self):
        node = Node(self.server, "planted", 0, 1, 1)
        attacker = self.server.store(5)
        with self.assertRaises(Exception):
            attacker.compare_set(self.KEY, "Y2FuaW1hZGFt", self.PICKLE)
        self.assertIsNone(node.backend.get_state())
        meet([node])
        node.handler.shutdown()
        self.server.stop()


def with_pickler(node, dumps):
    """Makes the node write with another pickler than CPython's with protocol 4."""
    sync = node.handler._state_holder.sync

    def patched():
        import torch.distributed.elastic.rendezvous.dynamic_rendezvous as module
        with LOCK:  # All nodes of this process share the module.
            module.pickle = types.SimpleNamespace(dumps=dumps, loads=pickle.loads)
            try:
                return sync()
            finally:
                module.pickle = pickle

    node.handler._state_holder.sync = patched


LOCK = threading.Lock()


class Handlers(unittest.TestCase):
    def setUp(self):
        self.server = Server()

    def tearDown(self):
        log = self.server.stop()
        self.assertEqual(self.server.returncode, 0, log)
        self.assertNotIn("reason=", log.replace("the client left", ""), log)

    def test_they_meet_and_meet_again(self):
        for count in (1, 2, 8, 32):
            with self.subTest(nodes=count):
                nodes = [Node(self.server, f"meet{count}", i, count, count) for i in range(count)]
                tries = [meet(nodes)]
                # A restart, as after a worker's failure: all nodes join again at the same time.
                tries.append(meet(nodes))
                self.assertEqual({node.round for node in nodes}, {1})
                # A join, and the leave, wait and join of a restart. With torch's own store each of
                # them takes about N/2 tries.
                print(f"{count} nodes: tries per node {[round(sum(t) / count, 1) for t in tries]}, "
                      f"most {[max(t) for t in tries]}", flush=True)
                self.assertLessEqual(sum(tries[0]) / count, 6)
                self.assertLessEqual(sum(tries[1]) / count, 10)
                for node in nodes:
                    node.handler.shutdown()

    def test_nodes_with_other_picklers_meet(self):
        """Nodes with Python's own pickler and with protocols 2, 3 and 5: the bytes that they write
        differ from those that they read."""
        picklers = [pickle.dumps, pickle._dumps, *(functools.partial(pickle.dumps, protocol=p) for p in (2, 3, 5))]
        nodes = [Node(self.server, "picklers", i, len(picklers), len(picklers)) for i in range(len(picklers))]
        for node, dumps in zip(nodes, picklers):
            with_pickler(node, dumps)
        for most in (6, 10):
            tries = meet(nodes)
            print(f"other picklers: tries per node {tries}", flush=True)
            self.assertLessEqual(sum(tries) / len(nodes), most)
        for node in nodes:
            node.handler.shutdown()

    def test_a_run_id_is_used_again(self):
        """F15 of torchrun: the run id stays closed for ever and keeps the keys of its old rounds."""
        nodes = [Node(self.server, "again", i, 2, 2) for i in range(2)]
        meet(nodes)
        other = self.server.store()
        other.set("torch.rendezvous.again.0/left", "over")
        for node in nodes:
            node.handler.shutdown()
        with self.assertRaises(RendezvousClosedError):  # The two nodes are still connected.
            late = Node(self.server, "again", 2, 1, 1)
            late.join()
            late.joined()
        del late, node
        nodes.clear()  # The nodes' connections close.
        until(lambda: not other.check(["torch.rendezvous.again.0/left"]) or self.begins("again"))
        nodes = [Node(self.server, "again", i, 2, 2) for i in range(2)]
        meet(nodes)
        self.assertEqual({node.round for node in nodes}, {0})
        self.assertFalse(other.check(["torch.rendezvous.again.0/left"]))

    def begins(self, run_id):
        """Does what every torchrun node does first. Returns False: the caller checks whether this
        started a new run."""
        C10dRendezvousBackend(self.server.store(), run_id)
        return False

    def test_the_state_cannot_vanish(self):
        """F11 of torchrun: a node repeats compare-and-sets without a pause if the key has been
        deleted."""
        node = Node(self.server, "gone", 0, 2, 2)
        node.join()
        until(lambda: node.backend.get_state() is not None)
        self.assertFalse(self.server.store().delete_key("torch.rendezvous.gone"))
        before = node.backend.tries
        other = Node(self.server, "gone", 1, 2, 2)
        other.join()
        self.assertEqual(sorted([node.joined().rank, other.joined().rank]), [0, 1])
        self.assertLessEqual(node.backend.tries - before, 4)

    def test_a_node_that_dies_is_replaced(self):
        """A node whose connection closes counts as dead at once, not after 15 s of silence. F1 of
        torchrun: the node that replaces it learns MASTER_ADDR, although a torchrun rank 0 publishes
        it in its first round only."""
        nodes = [Node(self.server, "dies", i, 2, 2) for i in range(2)]
        meet(nodes)
        ranks = [node.info.rank for node in nodes]
        gone = nodes[ranks.index(1)]
        stays = nodes[ranks.index(0)]
        gone.handler._stop_heartbeats()
        gone.handler = gone.backend = gone.store = gone.info = None
        backend = C10dRendezvousBackend(self.server.store(), "dies")
        until(lambda: len(self.state(backend).participants) == 1)
        nodes = [stays, Node(self.server, "dies", 2, 2, 2)]
        nodes[1].join()
        until(lambda: stays.handler.num_nodes_waiting() > 0)
        stays.join()
        infos = [node.joined() for node in nodes]
        self.assertEqual([info.rank for info in infos], [0, 1])
        self.assertEqual(len({(i.bootstrap_store_info.master_addr, i.bootstrap_store_info.master_port) for i in infos}), 1)

    @staticmethod
    def state(backend):
        # Unpickling is safe here: the test's own server writes the state.
        return pickle.loads(backend.get_state()[0])

    def test_a_client_in_the_queue_may_die(self):
        """The turns go on when a waiting client dies, and the clients behind it are answered."""
        count = 8
        nodes = [Node(self.server, "queue", i, count, count) for i in range(count)]
        killer = subprocess.Popen([sys.executable, "-c", STORM, str(self.server.port)], stdout=subprocess.PIPE)
        killer.stdout.readline()
        for node in nodes:
            node.join()
        killer.kill()
        killer.wait()
        self.assertEqual(sorted(node.joined().rank for node in nodes), list(range(count)))


# Loses compare-and-sets for ever, so that it waits in the queue or has a turn when it is killed.
STORM = """
import pickle, sys
from datetime import timedelta
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState
backend = C10dRendezvousBackend(TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False), "queue")
print("ready", flush=True)
state = _RendezvousState()
state.round, state.complete = 7, True
old = pickle.dumps(state)
node = _NodeDesc("storm", 1, 0)
state.wait_list.add(node)
import datetime
state.last_heartbeats[node] = datetime.datetime.now(datetime.timezone.utc)
new = pickle.dumps(state)
import base64
while True:
    backend.set_state(new, base64.b64encode(old))
"""


if __name__ == "__main__":
    unittest.main(verbosity=2)
