#!/usr/bin/env python3
"""A hostile host against a node: the node's memory stays bounded.

    node_attack_test.py [-v] [HostileHost.test_NAME ...]      (MUSTER_BIN names the program)
"""
import threading

from hostile import main
from native_peer import Listener, frame, receive_native
from nodes import NodesTest
from support import PATIENCE_S

WELCOME = {"type": "welcome", "protocol_version": 1, "muster_version": "0.1.0", "peer_address": "127.0.0.1"}
FLOOD_BYTES = 64 << 20
MOST_TAKEN = 30 << 20  # The kernel holds some 10 MiB of one connection, and the node 8 MiB of answers.


class AskingHost(Listener):
    """Welcomes a node, and floods it with questions about a worker. It reads hardly any answer."""

    def __init__(self, question):
        self.questions = frame({"type": "alive"}) + frame(question) * 4096
        self.taken = 0
        self.ended = threading.Event()
        super().__init__()

    def serve(self, connection):
        if len(self.connections) > 1:
            return  # The node comes again when it has lost the host.
        while receive_native(connection)["type"] != "join":
            connection.sendall(frame(WELCOME))
        connection.settimeout(1)
        try:
            while self.taken < FLOOD_BYTES:
                connection.sendall(self.questions)
                self.taken += len(self.questions)
                connection.recv(1000)  # Something is acknowledged: the connection counts as alive.
        except OSError:
            pass  # The node reads no more: this has waited for a second.
        self.ended.set()


class HostileHost(NodesTest):
    def flood(self, question):
        host = AskingHost({"type": "ask", "number": 1, "local_rank": 0, **question})
        self.addCleanup(host.close)
        self.port = host.port
        self.node("a", 2, "--rdzv-conf=is_host=false")
        self.assertTrue(host.ended.wait(PATIENCE_S))
        self.assertLess(host.taken, MOST_TAKEN)

    def test_a_node_reads_no_more_questions_than_it_can_send_answers_to(self):
        self.flood({"what": "stacks"})

    def test_questions_for_logs(self):
        self.flood({"what": "log", "from_stderr": False, "offset": -100, "attempt": -1})


if __name__ == "__main__":
    main()
