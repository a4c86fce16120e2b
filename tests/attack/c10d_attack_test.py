#!/usr/bin/env python3
"""Attacks through the door of PyTorch's own protocol. With a token a stranger gets nothing, and no run another's keys.

    c10d_attack_test.py [-v] [CLASS.test_NAME ...]      (MUSTERD_BIN names the program)
"""
import contextlib
import select
import socket
import threading
import time

from hostile import (ADD, COMPARE_SET, DELETE_KEY, GET, HELLO, LIST_KEYS, MULTI_GET, MULTI_SET, NO_STATE, SET, STATE_KEY,
                     WAIT, Client, Memory, Victim, hello, keys_request, main, request, text, u64)
from token_peers import Node, TokenTest
from support import PATIENCE_S, wait_for


class Deaf(Node):
    def __init__(self, port, address):
        self.sent = [0]
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_304)
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))
        self.send(HELLO)

    def is_closed_unread(self):
        """Whether the server closes the connection although the client reads nothing."""
        watch = select.poll()
        watch.register(self.socket, 0)
        return bool(watch.poll(PATIENCE_S * 1_000))


class C10dDoor(TokenTest):
    STRANGER, MEMBER = "127.0.0.9", "127.0.0.6"

    def shut_out(self, address, data, reason="this address may not use the c10d door"):
        client = self.node(address)
        client.send(data)
        self.assertTrue(client.is_closed(), data[:80])
        self.assertIn(reason, self.check_log())

    def let_in(self, address):
        client = self.node(address)
        client.send(request(SET, "k", "v") + request(GET, "k"))
        self.assertEqual(client.receive_text(), b"v")
        return client

    def test_a_stranger_gets_nothing_whatever_it_asks(self):
        self.start()
        member = self.member()
        state = STATE_KEY + b"job"
        for data in (request(SET, "k", "v"), request(GET, state), request(COMPARE_SET, state, b"", NO_STATE),
                     request(ADD, "n") + u64(1), bytes([LIST_KEYS]), keys_request(WAIT, [state]),
                     bytes([SET]) + text("k") + u64(8 << 20), bytes([MULTI_SET]) + u64(100_000)):
            self.shut_out(self.STRANGER, data)
        line = next(line for line in self.check_log().splitlines() if "c10d door" in line)
        self.assertIn(f"peer={self.STRANGER}:", line)
        self.assertIn("--c10d-allow=members", line)
        self.assertEqual(self.check_log().count("may not use the c10d door"), 1)
        other = self.member(pid=2)
        self.assertEqual(member.receive_message()["type"], "prepare_store")
        other.close()

    def test_a_stranger_that_only_greets_is_gone_after_a_while(self):
        self.start("--validate-seconds=1")
        client = self.node_that(lambda node: self.assertTrue(node.ping()), 1, self.STRANGER)
        self.assertTrue(client.is_closed())

    def test_strangers_that_ping_and_read_nothing_hold_4_kib_each(self):
        self.start("--c10d-allow=127.0.0.1", "--max-queued-total-bytes=16777216")
        value = b"v" * (8 << 20)
        slow = self.let_in("127.0.0.1")  # Its large reply may wait to be read.
        slow.send(request(SET, "big", value) + b"\x0dPING")
        self.assertEqual(slow.receive(4), b"PING")
        slow.send(request(GET, "big"))
        memory = Memory(self.musterd.pid)
        self.addCleanup(memory.stop)
        pings = b"\x0dPING" * 200_000
        for _ in range(20):
            stranger = self.deaf(self.STRANGER)
            stranger.send(pings * 8, 0.5)
            self.assertTrue(stranger.is_closed_unread())
        self.assertLess(memory.most, 8 << 20)
        self.assertEqual(slow.receive_text(), value)
        log = self.check_log()
        self.assertIn("reads no replies before it is let in: limit 4096 bytes", log)
        self.assertNotIn("has the most of all unread replies", log)

    def test_a_client_that_may_come_is_paused_and_not_closed_when_it_reads_late(self):
        self.start("--c10d-allow=127.0.0.1", "--max-queued-bytes=65536")
        client = self.deaf("127.0.0.1")
        pings = 2_000_000
        sender = threading.Thread(target=client.send, args=(b"\x0dPING" * pings, 60))
        sender.start()
        time.sleep(0.5)
        reader = client.socket.dup()
        reader.settimeout(60)
        got = 0
        while got < 4 * pings:
            part = reader.recv(1 << 20)
            self.assertTrue(part, self.check_log())
            got += len(part)
        sender.join()
        reader.close()

    def deaf(self, address):
        """A client for which the kernel keeps few bytes that it has not read."""
        client = Deaf(self.musterd.port, address=address)
        self.addCleanup(client.close)
        return client

    def test_the_address_of_a_member_may_come_as_long_as_it_is_one(self):
        self.start()
        self.shut_out(self.MEMBER, request(GET, "k"))
        member = self.member(address=self.MEMBER)
        stays = self.let_in(self.MEMBER)
        self.shut_out(self.STRANGER, request(GET, "k"))
        member.close()

        def is_out():
            client = Node(self.musterd.port, address=self.MEMBER)
            try:
                client.send(request(SET, "k", "v") + request(GET, "k"))
                client.receive_text()
                return False
            except (EOFError, OSError):
                return True
            finally:
                client.close()
        wait_for(is_out, "the member's address to be a stranger's again")
        stays.send(request(GET, "k"))  # What is there stays there.
        self.assertEqual(stays.receive_text(), b"v")

    def test_a_node_that_was_refused_makes_its_address_no_members(self):
        self.start()
        node = self.node(self.STRANGER)
        self.refused(node, node.enter(token="x" * 40), "token differs from the rendezvous' token")
        waits = self.node(self.STRANGER)
        waits.send(hello(nonce="0" * 64))
        self.assertEqual(waits.receive_message()["type"], "challenge")
        self.shut_out(self.STRANGER, request(GET, "k"))

    def test_listed_networks_may_come(self):
        self.start("--c10d-allow=127.0.0.8/31,fd00::/8")
        self.let_in("127.0.0.8")
        self.let_in("127.0.0.9")
        self.shut_out("127.0.0.10", request(GET, "k"))
        self.member(address="127.0.0.11")
        self.shut_out("127.0.0.11", request(GET, "k"))  # Members are not listed here.

    def test_off_is_for_muster_nodes_only(self):
        self.start("--c10d-allow=off")
        self.member()
        self.shut_out("127.0.0.1", request(GET, "k"))

    def test_without_a_token_everybody_may_come_and_a_line_says_so(self):
        self.musterd = Victim(self.dir)
        self.addCleanup(self.musterd.end)
        self.let_in(self.STRANGER)
        self.assertIn("access token=no tls=no c10d_allow=any advice=", self.check_log())

    def test_one_address_cannot_use_up_a_small_number_of_runs(self):
        self.musterd = Victim(self.dir, "--max-runs=6")
        self.addCleanup(self.musterd.end)
        def begins(number, address):
            client = self.node(address)
            client.send(request(COMPARE_SET, STATE_KEY + b"run-%d" % number, b"", NO_STATE))
            return client
        held = [begins(i, self.STRANGER) for i in range(5)]
        for client in held:
            self.assertEqual(client.receive_text(), NO_STATE)
        self.assertTrue(begins(5, self.STRANGER).is_closed())
        self.assertEqual(begins(6, self.MEMBER).receive_text(), NO_STATE)

    def test_a_store_alone_refuses_before_it_reads(self):
        self.musterd = Victim(self.dir, "--only-store", "--c10d-allow=127.0.0.8")
        self.addCleanup(self.musterd.end)
        self.let_in("127.0.0.8")
        client = self.node(self.STRANGER, first=b"")
        self.assertTrue(client.is_closed())
        self.assertIn("this address may not connect", self.check_log())

    def test_a_flood_of_strangers_is_a_few_lines(self):
        self.start()
        member = self.member()
        for i in range(1_000):
            Client(self.musterd.port, HELLO + request(GET, "k"), address=f"127.0.0.{i % 3 + 20}").close()
        self.member(pid=2)
        self.assertEqual(member.receive_message()["type"], "prepare_store")
        self.assertLess(self.check_log().count("c10d door"), 10)


class RunsApart(TokenTest):
    """Several runs at one musterd."""
    STATE_A, STATE_B = STATE_KEY + b"a", STATE_KEY + b"b"

    def shut_out(self, client, data):
        client.send(data)
        with contextlib.suppress(EOFError, OSError):
            self.fail(f"{data[:60]} is answered by {client.receive(1)}")

    def test_a_client_that_began_with_one_run_gets_nothing_of_another(self):
        self.start("--c10d-allow=members,loopback")
        keeper = self.node()
        keeper.send(request(COMPARE_SET, self.STATE_B, b"", NO_STATE) + request(SET, self.STATE_B + b".0/secret", "b"))
        self.assertEqual(keeper.receive_text(), NO_STATE)
        self.assertTrue(keeper.ping())
        for data in (request(GET, self.STATE_B), request(COMPARE_SET, self.STATE_B, b"", NO_STATE),
                     request(GET, self.STATE_B + b".0/secret"), request(SET, self.STATE_B + b".0/secret", "x"),
                     keys_request(MULTI_GET, [self.STATE_A, self.STATE_B]), keys_request(WAIT, [self.STATE_B]),
                     request(DELETE_KEY, self.STATE_B + b".0/secret"),
                     bytes([MULTI_SET]) + u64(1) + text(self.STATE_B + b".0/secret") + text("x")):
            client = self.node()
            client.send(request(COMPARE_SET, self.STATE_A, b"", NO_STATE) + request(SET, self.STATE_A + b".0/k", "a"))
            self.assertEqual(client.receive_text(), NO_STATE)
            client.send(request(GET, self.STATE_A + b".0/k"))
            self.assertEqual(client.receive_text(), b"a")
            self.shut_out(client, data)
        keeper.send(request(GET, self.STATE_B + b".0/secret"))
        self.assertEqual(keeper.receive_text(), b"b")
        self.check_log()

    def keys_listed(self, client):
        client.send(bytes([LIST_KEYS]))
        count = int.from_bytes(client.receive(8), "little")
        return [client.receive_text() for _ in range(count)]

    def test_a_client_lists_the_keys_of_its_run_and_no_others(self):
        self.start("--c10d-allow=members,loopback")
        longer = self.STATE_A + b".c"  # Another run, whose keys begin with the state key of the first.
        keys = {state: sorted(state + b".%d/k%d" % (n, n) for n in range(3)) for state in (self.STATE_A, self.STATE_B, longer)}
        for state, names in keys.items():
            client = self.node()
            client.send(b"".join(request(SET, name, "v") for name in names) + request(SET, b"/of/no/run", "v"))
            self.assertEqual(self.keys_listed(client), names)
            # A name that is only waited for, and a queue, are no keys.
            client.send(keys_request(WAIT, [state + b".7/never"]))
            self.assertEqual(self.keys_listed(client), names)
        self.shut_out(self.node(), bytes([LIST_KEYS]))
        self.assertIn("LIST_KEYS of a client that has used no key of a run", self.check_log())

    def test_the_key_of_a_state_is_listed_as_soon_as_it_is_written(self):
        for token in (["--rdzv-token-file", str(self.file), "--c10d-allow=members,loopback"], []):
            musterd = Victim(self.dir, *token)
            self.addCleanup(musterd.end)
            for name in (b"x", b"y"):
                # In one packet: the keys are listed before any other event.
                client = Node(musterd.port, HELLO + request(COMPARE_SET, STATE_KEY + name, b"", NO_STATE) + bytes([LIST_KEYS]))
                self.addCleanup(client.close)
                self.assertEqual(client.receive_text(), NO_STATE)
                count = int.from_bytes(client.receive(8), "little")
                self.assertIn(STATE_KEY + name, [client.receive_text() for _ in range(count)])

    def test_a_members_machine_lists_the_keys_of_its_only_run(self):
        self.start()
        self.member("a", address="127.0.0.6")
        self.member("b", address="127.0.0.7")
        for address, state in (("127.0.0.6", self.STATE_A), ("127.0.0.7", self.STATE_B)):
            client = self.node(address)
            client.send(request(SET, state + b".0/k", "v"))
            self.assertTrue(client.ping())
            # As torch's debug server, which names no key before. The nodes have begun the run, so its state is there.
            self.assertEqual(self.keys_listed(self.node(address)), [state, state + b".0/k"])
        self.member("b", address="127.0.0.6")
        self.shut_out(self.node("127.0.0.6"), bytes([LIST_KEYS]))

    def test_a_members_machine_comes_to_its_own_runs_only(self):
        self.start()
        self.member("a", address="127.0.0.6")
        self.member("b", address="127.0.0.7")
        own = self.node("127.0.0.6")
        own.send(request(GET, self.STATE_A) + request(SET, self.STATE_A + b".0/k", "a"))
        own.receive_text()
        self.assertTrue(own.ping())
        for data in (request(GET, self.STATE_B), request(SET, self.STATE_B + b".0/k", "x"),
                     request(COMPARE_SET, STATE_KEY + b"new", b"", NO_STATE)):
            self.shut_out(self.node("127.0.0.6"), data)
        self.assertIn("a key of another run than this client's", self.check_log())

    def test_no_node_begins_a_run_whose_state_is_a_key_of_another_run(self):
        self.start("--c10d-allow=members,loopback")
        key = self.STATE_A + b".0/MASTER_ADDR"
        node = self.node()
        self.refused(node, node.enter("a.0/MASTER_ADDR"), "looks like a key of a round")
        rank0 = self.node()
        rank0.send(request(SET, key, "10.0.0.1") + request(GET, key))
        self.assertEqual(rank0.receive_text(), b"10.0.0.1")
        self.check_log()

    def test_without_a_token_it_is_as_under_torch(self):
        self.musterd = Victim(self.dir)
        self.addCleanup(self.musterd.end)
        client = self.node()
        for state in (self.STATE_A, self.STATE_B):
            client.send(request(COMPARE_SET, state, b"", NO_STATE))
            self.assertEqual(client.receive_text(), NO_STATE)
        client.send(bytes([LIST_KEYS]))
        self.assertGreater(len(client.receive(8)), 0)


if __name__ == "__main__":
    main()
