#!/usr/bin/env python3
"""torch's own rendezvous handlers against musterd: they meet, restart, take turns, and a run id can be used again.

    handlers_test.py MUSTERD        exit code 77: skipped, torch is not installed here
"""
import subprocess
import sys
import threading
import time
import unittest
from datetime import timedelta

try:
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.api import RendezvousClosedError
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

MUSTERD = sys.argv.pop(1)
PATIENCE = 60  # A bound for what should come at once.


class CountingBackend(C10dRendezvousBackend):
    def __init__(self, store, run_id):
        self.tries = 0
        super().__init__(store, run_id)

    def set_state(self, state, token=None):
        self.tries += 1
        return super().set_state(state, token)


class Musterd:
    def __init__(self, *options):
        self.process = subprocess.Popen([MUSTERD, "--bind", "127.0.0.1", "--port", "0", *options], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def store(self, timeout=PATIENCE):
        return TCPStore("127.0.0.1", self.port, is_master=False, timeout=timedelta(seconds=timeout))

    def stop(self):
        self.process.terminate()
        return self.process.communicate(timeout=PATIENCE)[1]


class Node:
    """One torchrun agent's rendezvous: a connection, a backend, a handler."""

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
    """All join at once; the ranks by node."""
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


class Handlers(unittest.TestCase):
    def setUp(self):
        self.server = Musterd()

    def tearDown(self):
        log = self.server.stop()
        self.assertEqual(self.server.process.returncode, 0, log)
        self.assertNotIn("reason=", log.replace("the client left", ""), log)

    def test_they_meet_and_meet_again(self):
        for count in (1, 2, 8, 32):
            with self.subTest(nodes=count):
                nodes = [Node(self.server, f"meet{count}", i, count, count) for i in range(count)]
                tries = [meet(nodes)]
                # A restart: as an agent whose worker has failed, all at once.
                tries.append(meet(nodes))
                self.assertEqual({node.round for node in nodes}, {1})
                # join, and a restart's leaving, waiting, joining; torch's own store takes about N/2 for each.
                print(f"{count} nodes: tries per node {[round(sum(t) / count, 1) for t in tries]}, "
                      f"most {[max(t) for t in tries]}", flush=True)
                self.assertLessEqual(sum(tries[0]) / count, 6)
                self.assertLessEqual(sum(tries[1]) / count, 10)
                for node in nodes:
                    node.handler.shutdown()


if __name__ == "__main__":
    unittest.main(verbosity=2)
