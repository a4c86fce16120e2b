#!/usr/bin/env python3
"""Every attack against a live musterd: it lives, serves others at once, holds little memory, and logs little.

    musterd_attack_test.py [-v] [OnMusterd.test_NAME ...]      (MUSTERD_BIN names the program)
"""
import inspect
import pathlib
import re
import sys
import tempfile
import time
import unittest

import attacks
from hostile import (CHECK, COMPARE_SET, GET, LIST_KEYS, NO_STATE, SET, STATE_KEY, Attacker, Client, Memory, Musterd,
                     Witness, hello, join, keys_request, patience_s, request, text, u64)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from support import main

# What musterd may hold for an attack: ten times the attacker's bytes, and this for buffers, the connections themselves
# and unread replies.
CONSTANT_BYTES = 64 << 20
LINE = re.compile(rb"^\[\d{4}-\d\d-\d\d [^\]]*\] \[\w+\] \[\w+\] [a-z_]+ ")
# One line per cause; the largest attacks have a handful of causes.
MOST_CLOSING_LINES = 8


class AttackTest(unittest.TestCase):
    def start(self, *options):
        folder = tempfile.TemporaryDirectory(prefix="muster-attack-")
        self.addCleanup(folder.cleanup)
        self.musterd = Musterd(folder.name, *options)
        self.addCleanup(self.musterd.stop)
        return self.musterd

    def play(self, attack, constant_bytes=CONSTANT_BYTES, native_run="witness"):
        """The attack, while others come and go."""
        musterd = self.musterd
        witness = Witness(musterd.port, native_run)
        memory = Memory(musterd.process.pid)
        attacker = Attacker(musterd.port)
        try:
            attack(attacker)
            visits = witness.visits
            end = time.monotonic() + 30
            while witness.visits < visits + 2 and not witness.errors and time.monotonic() < end:
                time.sleep(0.01)  # With all of the attacker's connections still open.
        finally:
            witness.stop()
            memory.stop()
            attacker.close()
        self.check_alive()
        self.assertFalse(witness.errors, "others were not served")
        self.assertLess(witness.longest_s, patience_s(), "others had to wait")
        self.assertLess(memory.most, 10 * attacker.sent[0] + constant_bytes, f"{attacker.sent[0]} bytes were sent")
        self.check_log()

    def check_alive(self):
        self.assertIsNone(self.musterd.process.poll(), self.musterd.log()[-2000:])
        fresh = Client(self.musterd.port)
        self.assertTrue(fresh.ping())
        fresh.close()

    def check_log(self):
        lines = self.musterd.log().split(b"\n")[:-1]
        for line in lines:
            self.assertRegex(line, LINE)
            shown = line.decode()  # Whatever was sent, the log is UTF-8.
            self.assertFalse([c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160 or ord(c) in (0x2028, 0x2029)],
                             shown)
        closings = [line for line in lines if b"store_connection_" in line or b"store_key_" in line]
        self.assertLessEqual(len(closings), MOST_CLOSING_LINES, b"\n".join(closings).decode())
        return closings


class OnMusterd(AttackTest):
    """One method for each function of attacks.py: added below."""


def add_test(name, attack):
    def test(self):
        self.start()
        self.play(attack)
    test.__doc__ = attack.__doc__
    setattr(OnMusterd, "test_" + name, test)


for each_name, each in inspect.getmembers(attacks, inspect.isfunction):
    if each.__module__ == attacks.__name__ and list(inspect.signature(each).parameters) == ["a"]:
        add_test(each_name, each)


class Limits(AttackTest):
    """Each limit is reached, and names itself in the log."""

    def closed_with(self, client, reason):
        client.drain(5)
        end = time.monotonic() + 10
        while reason not in self.musterd.log():
            self.assertLess(time.monotonic(), end, self.musterd.log())
            time.sleep(0.01)
        self.check_alive()

    def test_queued_bytes_of_all_clients(self):
        limit = 8 << 20
        self.start("--max-queued-total-bytes", str(limit))

        def attack(a):
            a.client().send(b"".join(request(SET, "%05d" % i + "n" * 4_000, "") for i in range(1_000)))
            a.clients[0].ping()
            for reader in a.clients_of(10):
                reader.send(bytes([LIST_KEYS]))
            for reader in a.clients[1:]:
                reader.drain(0.2)
        self.play(attack, constant_bytes=limit + (16 << 20))

    def test_queued_bytes_of_all_clients_close_the_client_with_most_of_them(self):
        self.start("--max-queued-total-bytes", str(1 << 20), "--max-queued-bytes", str(256 << 20))
        client = Client(self.musterd.port)
        client.send(request(SET, "k", b"v" * 60_000))
        # Each reply refers to a value that only it still holds.
        self.closed_with(self.greedy(), b"it has the most of all unread replies: limit queued_total_bytes")
        self.assertTrue(client.ping(), "who reads its replies stays")

    def greedy(self):
        greedy = Client(self.musterd.port)
        for i in range(400):
            if not greedy.send(request(GET, "k") + request(SET, "k", b"%d" % (i % 10) * 60_000), 0.2):
                break
        return greedy

    def test_a_reply_that_does_not_fit_is_not_built(self):
        self.start("--max-queued-total-bytes", "100000")
        client = Client(self.musterd.port)
        client.send(b"".join(request(SET, "%05d" % i + "n" * 1_000, "") for i in range(200)) + bytes([LIST_KEYS]))
        self.closed_with(client, b"does not fit beside the unread replies of all clients: limit "
                                 b"queued_total_bytes=100000")

    def test_connections_of_one_address(self):
        self.start("--max-connections-per-address", "5")
        first = [Client(self.musterd.port) for _ in range(5)]
        self.assertTrue(all(client.ping() for client in first))
        surplus = Client(self.musterd.port, first=b"")
        self.closed_with_room(surplus, first, b"limit connections_per_address")

    def closed_with_room(self, surplus, first, reason):
        self.assertEqual(surplus.socket.recv(1), b"")
        self.assertIn(reason, self.musterd.log())
        first.pop().close()
        end = time.monotonic() + 10
        while True:  # The server sees the end of one before another may come.
            again = Client(self.musterd.port)
            try:
                self.assertTrue(again.ping())
                return
            except (EOFError, OSError):
                self.assertLess(time.monotonic(), end)

    def test_bytes_of_half_requests(self):
        self.start("--max-total-bytes", str(4 << 20))
        clients = [Client(self.musterd.port) for _ in range(6)]
        for client in clients:
            client.send(bytes([SET]) + text("k") + u64(8 << 20) + b"v" * 1_000_000, 0.2)
        self.closed_with(clients[-1], b"limit total_bytes")

    def test_runs_of_one_connection(self):
        self.start()
        client = Client(self.musterd.port)
        for i in range(65):
            client.send(request(COMPARE_SET, STATE_KEY + b"%d" % i, b"", NO_STATE))
        self.closed_with(client, b"too many runs: limit runs_per_connection=64")
        again = Client(self.musterd.port)
        for _ in range(3):
            again.send(request(GET, STATE_KEY + b"7"))
            self.assertEqual(again.receive_text(), NO_STATE)

    def test_hello_of_more_than_16_kib(self):
        self.start()
        client = Client(self.musterd.port)
        client.send(hello("r" * (16 << 10)))
        self.closed_with(client, b"native message is too long")

    def test_values_and_levels_of_a_message(self):
        self.start()
        deep = [[[[[[[[]]]]]]]]
        for more, reason in (({"x": [0] * 300}, "more than 256 values"), ({"x": deep}, "more than 8 levels")):
            client = Client(self.musterd.port)
            client.send(hello(**more))
            self.assertIn(reason, client.receive_message()["text"])
            client.close()

    def test_texts_of_a_join(self):
        self.start()
        for more, field in (({"addr": "a" * 257}, "name.addr"), ({"role": "r" * 257}, "role"),
                            ({"instance": "i" * 65}, "instance"), ({"muster_version": "v" * 257}, "muster_version")):
            client = Client(self.musterd.port)
            client.send(hello() + join(**more))
            client.receive_message()
            self.assertIn(f"field {field}: longer than", client.receive_message()["text"])
            client.close()


class Fairness(AttackTest):
    def test_one_line_for_a_thousand_bad_clients_that_says_how_many_were_left_out(self):
        self.start()
        for _ in range(1_000):
            Client(self.musterd.port, first=b"GET / HTTP/1.1\r\n\r\n").close()
        self.check_alive()
        lines = [line for line in self.check_log() if b"not VALIDATE" in line]
        self.assertEqual(len(lines), 1, lines)

    def test_who_pipelines_heavy_requests_is_served_in_slices(self):
        self.start()

        def attack(a):
            names = ["w%d" % i for i in range(20_000)]
            heavy = keys_request(CHECK, names) * 20
            for client in a.clients_of(8):
                client.send(heavy, 0.5)
        self.play(attack, constant_bytes=CONSTANT_BYTES)


if __name__ == "__main__":
    main()
