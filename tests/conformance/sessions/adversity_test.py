#!/usr/bin/env python3
"""Tests what a session reports if there is no store, if the store does not answer, or if it goes
away. Needs no torch."""
import socket
import sys
import threading
import time

import harness
from harness import free_port


class Listener:
    """Accepts connections and calls `serve` with each of them."""

    def __init__(self, serve=lambda connection: None):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.serve = serve
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            self.serve(connection)


def c10d(nodes, port, host="127.0.0.1", **conf):
    return nodes.muster("c10d", host, port, "t", 2, 2, **conf)


def bounded_error(nodes, port, seconds, host="127.0.0.1"):
    start = time.monotonic()
    reason = c10d(nodes, port, host=host, read_timeout=seconds).event("failed", 40)["reason"]
    assert time.monotonic() - start >= seconds - 0.2  # The session has tried until then.
    assert f"{host}:{port}" in reason, reason
    assert f"within {seconds} s (--rdzv-conf read_timeout)" in reason, reason
    return reason


def nobody_there(nodes):
    assert "Connection refused" in bounded_error(nodes, free_port(), 4)


def a_name_that_nobody_knows(nodes):
    reason = bounded_error(nodes, 29400, 4, host="no-such-host.invalid")
    assert "the last try: no-such-host.invalid: " in reason, reason


def a_store_that_says_nothing(nodes):
    silent = Listener()
    assert "did not answer in time" in bounded_error(nodes, silent.port, 4)
    assert silent.connections


def a_store_that_closes(nodes):
    closing = Listener(lambda connection: connection.close())
    reason = bounded_error(nodes, closing.port, 4)
    assert any(word in reason for word in ("closed", "reset", "Broken pipe")), reason
    assert len(closing.connections) < 40  # The session pauses between its tries.


def something_else_at_the_port(nodes):
    web = Listener(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert "not a store's, but HTTP: is this the port of --http?" in bounded_error(nodes, web.port, 4)
    other = Listener(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"))
    reason = bounded_error(nodes, other.port, 4)
    assert "not a store's" in reason and "HTTP" not in reason, reason


def greet_and_close(connection):
    greeting = b""
    while len(greeting) < 10:  # VALIDATE and a magic number, PING and a nonce.
        got = connection.recv(10 - len(greeting))
        if not got:
            return
        greeting += got
    connection.sendall(greeting[-4:])
    connection.close()


def a_store_that_greets_and_closes(nodes):
    greeting = Listener(greet_and_close)
    reason = bounded_error(nodes, greeting.port, 4)
    assert any(word in reason for word in ("closed", "reset", "Broken pipe")), reason
    assert 1 < len(greeting.connections) < 15, len(greeting.connections)


def the_port_of_the_static_store_is_taken(nodes):
    taken = Listener()
    node = nodes.muster("static", "127.0.0.1", taken.port, "none", 2, 2, node_rank=0)
    reason = node.event("failed", 20)["reason"]
    assert str(taken.port) in reason and "--master-port" in reason, reason
    assert "in use" in reason, reason


def static_without_a_host(nodes):
    port = free_port()
    node = nodes.muster("static", "127.0.0.1", port, "none", 2, 2, node_rank=1, timeout=5)
    reason = node.event("failed", 30)["reason"]
    assert f"node rank 0 does not answer at 127.0.0.1:{port} within 5 s (--rdzv-conf timeout)" in reason
    assert "waiting for node rank 0 at" in node.log()


def leaving_while_nobody_answers(nodes):
    node = c10d(nodes, free_port(), read_timeout=600)
    node.tell("leave")
    node.process.stdin.close()
    assert node.exit_code(20) == 0


if __name__ == "__main__":
    harness.run_tests([nobody_there, a_name_that_nobody_knows, a_store_that_says_nothing,
                       a_store_that_closes, a_store_that_greets_and_closes, something_else_at_the_port,
                       the_port_of_the_static_store_is_taken, static_without_a_host,
                       leaving_while_nobody_answers], sys.argv[1:])
