#!/usr/bin/env python3
"""Every attack against a live musterd: musterd survives, serves others at once, holds little memory, and logs little.

    musterd_attack_test.py [-v] [OnMusterd.test_NAME ...]      (MUSTERD_BIN names the program)
"""
import inspect
import pathlib
import re
import select
import socket
import struct
import sys
import tempfile
import time
import unittest

import attacks
import pickles
from hostile import (CHECK, COMPARE_SET, DELETE_KEY, GET, HELLO, LIST_KEYS, NO_STATE, SET, STATE_KEY, WAIT, Attacker, Client,
                     Memory, Victim, Wait, Witness, hello, join, keys_request, main, native, patience_s, request, text,
                     u64)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from support import PATIENCE_S

# The memory that musterd may hold for an attack: ten times the attacker's bytes, and this constant for buffers, the
# connections themselves and unread replies.
CONSTANT_BYTES = 64 << 20
LINE = re.compile(rb"^[DIWE]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ musterd\] [a-z_]+ ")
# One line per cause; the largest attacks have a handful of causes.
MOST_CLOSING_LINES = 8


class AttackTest(unittest.TestCase):
    def start(self, *options):
        folder = tempfile.TemporaryDirectory(prefix="muster-attack-")
        self.addCleanup(folder.cleanup)
        self.musterd = Victim(folder.name, *options)
        self.addCleanup(self.musterd.end)
        return self.musterd

    def play(self, attack, constant_bytes=CONSTANT_BYTES, native_run="witness"):
        """Runs the attack while other clients connect and leave."""
        musterd = self.musterd
        witness = Witness(musterd.port, [musterd.pid], native_run)
        memory = Memory(musterd.pid)
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
        constant_bytes += getattr(attack, "unread_bytes", 0)
        self.assertLess(memory.most, 10 * attacker.sent[0] + constant_bytes, f"{attacker.sent[0]} bytes were sent")
        self.check_log()

    def check_alive(self):
        self.assertIsNone(self.musterd.poll(), self.musterd.log_bytes()[-2000:])
        fresh = Client(self.musterd.port)
        self.assertTrue(fresh.ping())
        fresh.close()

    def check_log(self):
        lines = [line for line in self.musterd.log_bytes().split(b"\n")[:-1]
                 if not re.match(b"musterd: (listening on|HTTP at) ", line)]
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
    """Each limit can be reached, and the log names it."""

    def closed_with(self, client, reason):
        client.drain(5)
        self.closed_unread_with(reason)

    def closed_unread_with(self, reason):
        """For a limit of unread replies: the client must not begin to read before the server has counted them."""
        end = time.monotonic() + PATIENCE_S
        while reason not in self.musterd.log_bytes():
            self.assertLess(time.monotonic(), end, self.musterd.log_bytes())
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
        greedy = self.greedy()
        self.closed_unread_with(b"it has the most of all unread replies: limit queued_total_bytes")
        greedy.close()
        self.assertTrue(client.ping(), "who reads its replies stays")

    def greedy(self):
        greedy = Client(self.musterd.port)
        for i in range(400):
            if not greedy.send(request(GET, "k") + request(SET, "k", b"%d" % (i % 10) * 60_000), 5.0):
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
        self.assertIn(reason, self.musterd.log_bytes())
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

    # Within one run; another run goes on.

    def other_run_is_served(self, key=STATE_KEY + b"other.0/k"):
        other = Client(self.musterd.port)
        other.send(request(SET, key, b"1") + request(GET, key))
        self.assertEqual(other.receive_text(), b"1")
        other.close()
        node = Client(self.musterd.port)
        node.send(hello("other"))
        self.assertEqual(node.receive_message()["type"], "welcome")
        node.close()

    def test_connections_of_one_run(self):
        self.start("--max-run-connections", "3")
        nodes = [Client(self.musterd.port) for _ in range(3)]
        for node in nodes[:2]:
            node.send(hello("crowd"))
            self.assertEqual(node.receive_message()["type"], "welcome")
        nodes[2].send(request(SET, STATE_KEY + b"crowd.0/k", b"1") + b"\x0dPING")
        self.assertEqual(nodes[2].receive(4), b"PING")
        surplus = Client(self.musterd.port)
        surplus.send(hello("crowd"))
        self.assertIn("limit run_connections=3", surplus.receive_message()["text"])
        self.closed_with(surplus, b"limit run_connections=3")
        surplus = Client(self.musterd.port)
        surplus.send(request(GET, STATE_KEY + b"crowd.0/k"))
        self.assertEqual(surplus.receive_end(), b"")
        self.other_run_is_served()
        nodes.pop().close()
        self.eventually(self.is_welcome_to, "crowd")

    def is_welcome_to(self, run):
        node = Client(self.musterd.port)
        node.send(hello(run))
        welcome = node.receive_message()["type"] == "welcome"
        node.close()
        return welcome

    def eventually(self, condition, *arguments):
        end = time.monotonic() + 60
        while not condition(*arguments):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_keys_of_one_run(self):
        self.start("--max-run-keys", "10")
        client = Client(self.musterd.port)
        for i in range(10):
            client.send(request(SET, STATE_KEY + b"crowd.0/%d" % i, b""))
        self.assertTrue(client.ping())
        client.send(request(SET, STATE_KEY + b"crowd.0/3", b"again") + request(SET, b"of no run", b""))
        self.assertTrue(client.ping(), "a key that is there is no further one")
        client.send(request(SET, STATE_KEY + b"crowd.0/10", b""))
        self.closed_with(client, b"limit run_keys=10")
        self.other_run_is_served()
        again = Client(self.musterd.port)  # What a run has deleted counts no more.
        again.send(request(DELETE_KEY, STATE_KEY + b"crowd.0/3") + request(SET, STATE_KEY + b"crowd.0/10", b""))
        self.assertEqual(struct.unpack("<Q", again.receive(8)), (1,))
        self.assertTrue(again.ping())

    def test_names_that_are_waited_for_count_until_their_client_is_gone(self):
        self.start("--max-run-keys", "10")
        waiting = Client(self.musterd.port)
        waiting.send(keys_request(WAIT, [STATE_KEY + b"crowd.0/w%d" % i for i in range(10)]))
        self.eventually(lambda: self.is_refused(STATE_KEY + b"crowd.0/k"))
        waiting.close()
        self.eventually(lambda: not self.is_refused(STATE_KEY + b"crowd.0/k"))

    def is_refused(self, key):
        client = Client(self.musterd.port)
        client.send(request(SET, key, b"") + b"\x0dPING" + request(DELETE_KEY, key))
        try:
            refused = client.receive(4) != b"PING"
        except (EOFError, OSError):
            refused = True
        client.close()
        return refused

    def test_bytes_of_one_run(self):
        self.start("--max-run-bytes", str(1 << 20))
        client = Client(self.musterd.port)
        for i in range(12):
            client.send(request(SET, STATE_KEY + b"crowd.0/%d" % i, b"v" * 100_000))
        self.closed_with(client, b"limit run_bytes=1048576")
        self.other_run_is_served()

    def test_queued_bytes_of_one_run_close_its_connection_with_most_of_them(self):
        self.start("--max-run-queued-bytes", str(1 << 20), "--max-queued-bytes", str(64 << 20))
        key = STATE_KEY + b"crowd.0/k"
        modest = Client(self.musterd.port)
        modest.send(request(SET, key, b"v" * 100_000) + b"\x0dPING")
        self.assertEqual(modest.receive(4), b"PING")
        greedy = Client(self.musterd.port)
        for _ in range(1_000):
            if not greedy.send(request(GET, key), 5.0):
                break
        self.closed_unread_with(b"it has the most of its run's unread replies: limit run_queued_bytes")
        greedy.close()
        self.assertTrue(modest.ping(), "who reads its replies stays")
        self.other_run_is_served()

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


class FedClient:
    """Records the longest time for which its client has sent nothing."""

    def __init__(self, client, began_s):
        """`began_s`: a time before the client sent its first bytes."""
        self.client = client
        self.began_s = began_s  # When the last send began.
        self.longest_gap_s = 0.0

    def feed(self, data):
        """False: the server has closed the connection."""
        began_s = time.monotonic()
        is_open = self.client.send(data)
        self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - self.began_s)
        self.began_s = began_s
        return is_open


class SlowLoris(AttackTest):
    """Clients whose bytes come one by one, for as long as the server lets them."""

    def clients(self, count, first, port=None):
        clients = [Client(port or self.musterd.port, first) for _ in range(count)]
        for client in clients:
            self.addCleanup(client.close)
        return clients

    def drip(self, clients, byte, until):
        """Sends one more byte to each client, again and again, until `until()` holds. Returns the closed clients."""
        closed = set()
        while not until(closed):
            closed.update(client for client in clients if client not in closed and not client.send(byte))
            time.sleep(0.05)
        return closed

    def test_the_greeting_has_its_time_however_slowly_it_comes(self):
        self.start("--validate-seconds=1")
        begin = time.monotonic()
        clients = self.clients(50, b"\0")
        for client in clients:  # One more byte, which must not give them more time.
            time.sleep(0.01)
            client.send(b"\xce")
        for client in clients:
            self.assertEqual(client.receive_end(), b"")
        self.assertLess(time.monotonic() - begin, 1 + 5 * patience_s())
        self.assertIn(b"limit validate_seconds", self.musterd.log_bytes())
        self.check_alive()
        self.check_log()

    def test_a_request_that_stops_is_closed_and_one_that_goes_on_costs_what_it_sends(self):
        self.start("--stalled-seconds=1")
        memory = Memory(self.musterd.pid)
        begun = bytes([SET]) + text("k") + u64(8 << 20)
        end = time.monotonic() + PATIENCE_S
        fed_late = True
        while fed_late:
            self.assertLess(time.monotonic(), end, "this test was never fast enough to feed its clients")
            stops = self.clients(100, HELLO + begun)
            began_s = time.monotonic()
            fed = [FedClient(client, began_s) for client in self.clients(100, HELLO + begun)]
            fed_late = self.feed(fed, stops)
            for client in [*stops, *(each.client for each in fed)]:
                client.close()
        memory.stop()
        self.assertLess(memory.most, CONSTANT_BYTES)
        self.assertIn(b"limit stalled_seconds", self.musterd.log_bytes())
        self.check_alive()
        self.check_log()

    def feed(self, fed, stops):
        """Sends a byte to each client of `fed`, again and again, for 3 s and until musterd has closed all `stops`.
        Fails if musterd closes a client of `fed` that had a byte each second. True: musterd has closed a client that
        had no byte for a second, because this test was off the CPU."""
        begin = time.monotonic()
        while stops or time.monotonic() < begin + 3:
            self.assertLess(time.monotonic(), begin + PATIENCE_S, "requests that stop are not closed")
            for each in fed:
                if not each.feed(b"v"):
                    self.assertGreaterEqual(each.longest_gap_s, 1, "a request that goes on was closed")
                    return True
            readable = select.select([client.socket for client in stops], [], [], 0.05)[0]
            for client in [client for client in stops if client.socket in readable]:
                self.assertEqual(client.receive_end(), b"")
                client.close()
                stops.remove(client)
        return False

    def test_a_hello_that_never_ends_is_closed(self):
        self.start("--stalled-seconds=1")
        stops = self.clients(100, HELLO + hello("slow")[:-1])
        for client in stops:
            self.assertEqual(client.receive_end(), b"")
        self.check_alive()
        self.check_log()

    def test_an_http_header_has_its_time_however_slowly_it_comes(self):
        port = free_port()
        self.start("--http", f"127.0.0.1:{port}")
        clients = self.clients(100, b"GET /api/v1/runs HTTP/1.1\r\nX: ", port)
        end = time.monotonic() + 120
        longest_s = 0.0

        def all_closed(closed):
            nonlocal longest_s
            wait = Wait(self.musterd.pid)
            with socket.create_connection(("127.0.0.1", port), 30) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.assertIn(b" 200 ", line.recv(100))
            longest_s = max(longest_s, wait.seconds())
            return len(closed) == len(clients) or time.monotonic() > end
        closed = self.drip(clients, b"x", all_closed)
        self.assertEqual(len(closed), len(clients), "a header that does not end is waited for")
        self.assertLess(longest_s, patience_s(), "others had to wait")
        self.check_alive()
        self.check_log()


class Pickles(AttackTest):
    """Pickles that clients send. attacks.py sends them through the c10d door and the native door."""

    def test_they_would_be_executed(self):
        with tempfile.TemporaryDirectory(prefix="muster-attack-") as folder:
            pickles.check_that_python_executes(pathlib.Path(folder) / "executed")

    def test_http(self):
        port = free_port()
        self.start("--http", f"127.0.0.1:{port}")
        with tempfile.TemporaryDirectory(prefix="muster-attack-") as folder:
            marker = pathlib.Path(folder) / "executed"
            for text_of_pickle in {**pickles.rejected(), **pickles.executing(marker)}.values():
                for method, target in ((b"POST", b"/api/v1/runs/job/restart"), (b"GET", b"/api/v1/runs")):
                    with socket.create_connection(("127.0.0.1", port), 30) as line:
                        line.sendall(b"%s %s HTTP/1.1\r\nHost: localhost\r\nX-Muster-Action: 1\r\nContent-Length: %d\r\n\r\n"
                                     % (method, target, len(text_of_pickle)) + text_of_pickle[:4096])
                        self.assertIn(b"HTTP/1.1 ", line.recv(100))
            self.assertFalse(marker.exists())
        self.check_alive()
        self.check_log()


class Fairness(AttackTest):
    def test_one_line_for_a_thousand_bad_clients_that_says_how_many_were_left_out(self):
        self.start()
        for _ in range(1_000):
            Client(self.musterd.port, first=b"GET / HTTP/1.1\r\n\r\n").close()
        self.check_alive()
        lines = [line for line in self.check_log() if b"not VALIDATE" in line]
        self.assertEqual(len(lines), 1, lines)

    def test_a_run_that_floods_costs_no_other_run_a_keep_alive_or_a_node(self):
        self.start("--lease-seconds", "60")
        nodes = [Client(self.musterd.port) for _ in range(2)]
        for number, node in enumerate(nodes):
            node.send(hello("quiet", resumes=True) + join(pid=number + 1, nodes=2))
        for node in nodes:
            self.assertEqual(node.receive_message()["type"], "welcome")
        leader = nodes[self.prepares(nodes)]
        leader.send(native({"type": "store_ready", "round": 0, "addr": "127.0.0.1", "port": 1}))
        for node in nodes:
            self.until(node, "round")
        flood = [Client(self.musterd.port) for _ in range(8)]
        for number, client in enumerate(flood):
            client.send(hello("flood") + join(pid=number, nodes=64))
        joins = b"".join(join(addr="f%d" % i, pid=i, nodes=64) for i in range(500))
        for _ in range(20):
            for client in flood:
                client.send(joins + native({"type": "keep_alive"}) * 2_000, 0.05)
            for node in nodes:
                node.send(native({"type": "keep_alive"}))
                self.until(node, "alive")
        self.check_alive()
        log = self.musterd.log_bytes()
        self.assertNotRegex(log, rb"node_(lost|left|absent)[^\n]* run=quiet")
        self.assertNotRegex(log, rb"run=quiet[^\n]* node_lost")

    def prepares(self, nodes):
        """The number of the node that is told to prepare the store: rank 0."""
        readable = []
        end = time.monotonic() + 60
        while True:
            readable = select.select([node.socket for node in nodes], [], [], 60)[0]
            self.assertTrue(readable and time.monotonic() < end)
            for number, node in enumerate(nodes):
                if node.socket in readable and node.receive_message()["type"] == "prepare_store":
                    return number

    def until(self, node, kind):
        """Reads up to the next message of this kind. Only `waiting` and `prepare_store` may come before it."""
        while (message := node.receive_message(60))["type"] != kind:
            self.assertIn(message["type"], ("waiting", "prepare_store"), message)

    def test_a_client_that_pipelines_heavy_requests_is_served_in_slices(self):
        self.start()

        def attack(a):
            names = ["w%d" % i for i in range(20_000)]
            heavy = keys_request(CHECK, names) * 20
            for client in a.clients_of(8):
                client.send(heavy, 0.5)
        self.play(attack, constant_bytes=CONSTANT_BYTES)


if __name__ == "__main__":
    main()
