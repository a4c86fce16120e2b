#!/usr/bin/env python3
"""Attacks on TLS: garbage, half handshakes, slow ones and floods cost little, and a node's connection notices nothing.

    tls_attack_test.py [-v] [CLASS.test_NAME ...]      (MUSTERD_BIN names the program)
"""
import _ssl
import ctypes
import os
import pathlib
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
import unittest

from hostile import HELLO, SLOWNESS, Memory, Victim, chance_of, hello, join, main, patience_s

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from support import PATIENCE_S, wait_for
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from certificates import Authority

VALIDATE_S = 2
CONSTANT_BYTES = 64 << 20
PER_CONNECTION_BYTES = 256 << 10


def client_hello(context):
    """As Python's own client begins."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def processor_s(pid):
    """The time that the threads of a process have run."""
    return sum(int(path.read_text().split()[0]) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class KeyUpdates:
    """A client that sends key updates, which Python's ssl has no call for, so it calls libssl itself."""
    SSL_POINTER_AT = 24  # In CPython's PySSLSocket, behind the object's head and the pointer to the socket.

    def __init__(self, line, context, count):
        self.line = line
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                secure.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.sendall(outgoing.read())
                incoming.write(line.recv(1 << 16))
        line.sendall(outgoing.read())
        libssl = ctypes.CDLL(getattr(_ssl, "__file__", None))  # Its functions are those of the library that Python uses.
        pointer = ctypes.c_void_p.from_address(id(secure._sslobj) + self.SSL_POINTER_AT)
        for _ in range(count):
            if libssl.SSL_key_update(pointer, 1) != 1 or libssl.SSL_do_handshake(pointer) != 1:
                raise AssertionError("libssl makes no key update")
        self.bytes = outgoing.read()

    def send(self):
        """Sends as many updates as musterd takes."""
        self.line.settimeout(1)
        try:
            self.line.sendall(self.bytes)
        except OSError:
            pass


class TlsAttack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="muster-attack-")
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        Authority(cls.dir).issue("server")
        cls.context = ssl.create_default_context(cafile=str(cls.dir / "ca.pem"))
        cls.first = client_hello(cls.context)

    def setUp(self):
        self.lines = []
        self.start()

    def start(self, validate_s=VALIDATE_S):
        self.musterd = Victim(self.dir, f"--tls-cert={self.dir}/server.pem", f"--tls-key={self.dir}/server.key",
                               f"--validate-seconds={validate_s}", "--lease-seconds=600")
        self.addCleanup(self.musterd.end)
        self.node = self.member()
        self.memory = Memory(self.musterd.pid)
        self.addCleanup(self.memory.stop)

    def plain(self):
        line = socket.create_connection(("127.0.0.1", self.musterd.port), PATIENCE_S)
        self.addCleanup(line.close)
        return line

    def attack(self, *pieces, count=1):
        """Opens connections that send these bytes, and then nothing."""
        for _ in range(count):
            line = self.plain()
            self.lines.append(line)
            for piece in pieces:
                try:
                    line.sendall(piece)
                except OSError:
                    break  # It has been closed already.

    def secure(self):
        line = self.context.wrap_socket(self.plain(), server_hostname="localhost")
        self.addCleanup(line.close)
        return line

    def member(self):
        """A node that has joined, and waits."""
        node = self.secure()
        node.sendall(HELLO + hello() + join())
        self.assertIn(b'"welcome"', self.message(node))
        self.assertIn(b'"waiting"', self.message(node))
        return node

    @staticmethod
    def message(node):
        def exactly(size):
            got = b""
            while len(got) < size:
                part = node.recv(size - len(got))
                if not part:
                    raise EOFError(got)
                got += part
            return got
        return exactly(struct.unpack("<Q", exactly(8))[0])

    def all_are_closed(self):
        for line in self.lines:
            line.settimeout(PATIENCE_S)
            try:
                while line.recv(1 << 16):
                    pass
            except ConnectionError:
                pass  # A timeout is a failure.

    def nobody_has_noticed(self, lines=20):
        """Checks that the node is still connected, that another node can join, and that the log is short."""
        self.node.settimeout(0.05)
        with self.assertRaises(TimeoutError):
            self.node.recv(1)
        other = self.secure()
        other.sendall(HELLO + hello("other") + join())
        self.assertIn(b'"welcome"', self.message(other))
        self.assertIsNone(self.musterd.poll(), self.musterd.log_bytes()[-2000:])
        self.assertLess(self.memory.most, CONSTANT_BYTES + PER_CONNECTION_BYTES * len(self.lines))
        log = self.musterd.log_bytes().decode()
        self.assertLess(log.count("\n"), lines, log)
        return log

    def test_garbage_is_closed_at_once_and_logged_once(self):
        garbage = [b"\x16" + bytes([i]) * 300 for i in range(32)]
        garbage += [b"\x16\x03\x01\xff\xff" + b"a" * 70_000, b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
                    b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + b"a" * 16_380,
                    self.first[:5] + chance_of("tls").randbytes(len(self.first) - 5)]
        for piece in garbage:
            self.attack(piece)
        for line in self.lines:
            line.shutdown(socket.SHUT_WR)
        self.all_are_closed()
        log = self.nobody_has_noticed()
        self.assertRegex(log, r'tls_failed peer=127\.0\.0\.1 reason="[^"]+" left_out=\d+')

    def test_handshakes_that_are_never_finished_are_closed_in_time(self):
        for cut in (1, 5, 6, 60, len(self.first) - 1, len(self.first)):
            self.attack(self.first[:cut], count=40)
        self.member_is_let_in_beside_them()
        self.all_are_closed()
        self.nobody_has_noticed()

    def member_is_let_in_beside_them(self):
        """Checks that a node is let in while all these connections are open. It comes from another address, which has a
        limit of handshakes of its own."""
        line = socket.create_connection(("127.0.0.1", self.musterd.port), PATIENCE_S, ("127.0.0.2", 0))
        self.addCleanup(line.close)
        line.settimeout(PATIENCE_S)
        other = self.context.wrap_socket(line, server_hostname="localhost")
        self.addCleanup(other.close)
        begin = time.monotonic()
        other.sendall(HELLO + hello("beside"))
        self.assertIn(b'"welcome"', self.message(other))
        return time.monotonic() - begin

    def test_slow_handshakes_are_closed_in_time(self):
        self.attack(self.first[:1], count=50)
        stop = threading.Event()

        def drip():
            at = 1
            while not stop.wait(0.1) and at < len(self.first):
                for line in self.lines:
                    try:
                        line.send(self.first[at:at + 1])
                    except OSError:
                        pass
                at += 1
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            self.all_are_closed()
        finally:
            stop.set()
            thread.join()
        self.nobody_has_noticed()

    def test_handshakes_of_clients_that_then_say_nothing_are_closed_in_time(self):
        self.lines = [self.secure() for _ in range(20)]
        self.all_are_closed()
        self.nobody_has_noticed()

    def test_garbage_after_the_handshake(self):
        for garbage in (b"\x17\x03\x03\x00\x40" + b"a" * 64, b"\x17\x03\x03\xff\xff" + b"a" * 70_000, b"x" * 100):
            line = self.secure()
            os.write(line.fileno(), garbage)
            self.lines.append(line)
        for line in self.lines:
            line.settimeout(PATIENCE_S)
            try:
                while line.recv(1 << 16):
                    pass
            except (ssl.SSLError, ConnectionError):
                pass
        self.lines = []
        self.nobody_has_noticed()

    def test_a_client_that_reads_nothing_is_bounded(self):
        line = self.secure()
        line.sendall(HELLO)
        line.settimeout(1)
        ping = b"\x0dPING" * 20_000
        try:
            for _ in range(400):
                line.sendall(ping)
        except (TimeoutError, OSError):
            pass
        self.lines.append(line)
        self.nobody_has_noticed()

    def test_a_flood_of_key_updates_costs_others_no_time(self):
        """Each record of 27 bytes asks musterd for new keys and an answer: far more work than the attacker has."""
        self.musterd.end()
        self.start(validate_s=600)  # No flood is closed because it took long to prepare.
        floods = [KeyUpdates(self.plain(), self.context, 1_200) for _ in range(60)]
        before_s = processor_s(self.musterd.pid)
        for flood in floods:
            flood.send()
        others_s = self.member_is_let_in_beside_them()
        self.lines = [flood.line for flood in floods]
        self.all_are_closed()
        # All 72,000 updates cost a second of processor time.
        self.assertLess(processor_s(self.musterd.pid) - before_s, 0.3 * SLOWNESS)
        self.assertLess(others_s, patience_s())
        self.assertRegex(self.nobody_has_noticed(), r'tls_failed peer=127\.0\.0\.1 reason="it sends key updates')

    def test_a_flood_of_connections_that_come_and_go(self):
        for i in range(600):
            line = self.plain()
            line.sendall(self.first[:1 + i % len(self.first)])
            line.close()
        wait_for(lambda: len(os.listdir(f"/proc/{self.musterd.pid}/fd")) < 60,
                 "musterd to close what the flood has left")
        self.nobody_has_noticed()


if __name__ == "__main__":
    main()
