#!/usr/bin/env python3
"""Attacks on musterd's HTTP: strangers that hold all connections shut out neither probes nor operators.

    http_attack_test.py [-v] [CLASS.test_NAME ...]      (MUSTERD_BIN names the program)
"""
import hashlib
import hmac
import http.client
import pathlib
import socket
import sys

from hostile import main
from token_peers import TOKEN, TokenTest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from support import PATIENCE_S
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from certificates import Authority

MOST, MOST_OF_ADDRESS = 256, 128
KEY = hmac.new(TOKEN.encode(), b"muster http, protocol 1\nread", hashlib.sha256).hexdigest()
PROBE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Connections(TokenTest):
    def setUp(self):
        super().setUp()
        self.strangers = []

    def start_http(self, *options):
        self.start("--http=127.0.0.1:0", *options)
        self.http_port = self.musterd.says("HTTP at").http_port

    def line(self, address):
        line = socket.create_connection(("127.0.0.1", self.http_port), PATIENCE_S, (address, 0))
        self.addCleanup(line.close)
        return line

    def hold(self, count, address, says=PROBE):
        """A stranger's connections, which stay open."""
        for _ in range(count):
            line = self.line(address)
            line.sendall(says)
            if says == PROBE:
                self.assertIn(b"200 OK", line.recv(4096))
            self.strangers.append(line)

    def ask(self, address, target="/healthz", key=None, line=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, PATIENCE_S)
        connection.sock = line or self.line(address)
        connection.request("GET", target, headers={"Authorization": f"Bearer {key}"} if key else {})
        reply = connection.getresponse()
        reply.read()
        return reply.status

    def test_strangers_that_keep_all_connections_open_shut_out_nobody(self):
        self.start_http()
        operator = self.line("127.0.0.5")
        self.assertEqual(self.ask("", "/metrics", KEY, operator), 200)
        self.hold(MOST_OF_ADDRESS, "127.0.0.20")
        self.hold(MOST_OF_ADDRESS, "127.0.0.21")
        self.hold(MOST_OF_ADDRESS, "127.0.0.22", b"GET /healthz HTTP/1.1\r\nHost: ")  # Half a request.
        for _ in range(3):
            self.assertEqual(self.ask("127.0.0.4"), 200)
            self.assertEqual(self.ask("127.0.0.5", "/metrics", KEY), 200)
            self.assertEqual(self.ask("127.0.0.22"), 200)  # A probe at a stranger's own address.
        # The operator's connection has waited longest, but it has shown the key.
        self.assertEqual(self.ask("", "/metrics", KEY, operator), 200)

    def test_with_tls_too_before_the_first_byte(self):
        Authority(self.dir).issue("server")
        self.start_http(f"--tls-cert={self.dir}/server.pem", f"--tls-key={self.dir}/server.key")
        for address in ("127.0.0.20", "127.0.0.21", "127.0.0.22"):
            self.hold(MOST_OF_ADDRESS, address, b"")
        self.assertEqual(self.ask("127.0.0.4"), 200)


if __name__ == "__main__":
    main()
