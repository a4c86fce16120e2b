"""A small implementation of the native door (docs/protocol.md), for peers that differ from muster:
hosts and nodes of other versions, and a proxy between two real ones that changes messages."""
import contextlib
import json
import socket
import struct
import threading

from support import PATIENCE_S

VALIDATE, PING, NATIVE = b"\x00", b"\x0d", b"\x6d"
MAGIC = struct.pack("<I", 0x3C85F7CE)


def receive(connection, size):
    """Reads exactly `size` bytes. Raises EOFError if there are no more."""
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise EOFError
        got += part
    return got


def receive_message(connection):
    size, = struct.unpack("<Q", receive(connection, 8))
    return json.loads(receive(connection, size))


def receive_native(connection):
    """The next native message of a node. Serves what may come before it."""
    while True:
        query = receive(connection, 1)
        if query == VALIDATE:
            receive(connection, 4)
        elif query == PING:
            connection.sendall(receive(connection, 4))
        else:
            assert query == NATIVE, query
            return receive_message(connection)


def frame(message):
    text = json.dumps(message).encode()
    return struct.pack("<Q", len(text)) + text


class OtherNode:
    """A node's connection that has not sent anything yet."""

    def __init__(self, port, address="127.0.0.1"):
        """`address` is the node's own address."""
        self.connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0))
        self.greet()

    def greet(self):
        self.connection.sendall(VALIDATE + MAGIC + PING + b"abcd")
        assert receive(self.connection, 4) == b"abcd"

    def tell(self, message):
        self.connection.sendall(NATIVE + frame(message))
        return self

    def next(self):
        return receive_message(self.connection)

    def is_closed(self):
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.connection.close()


class Listener:
    """Serves each connection on its own thread until it is closed."""

    def __init__(self, port=0):
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError, EOFError):
            self.serve(connection)
        self._end(connection)

    @staticmethod
    def _end(connection):
        with contextlib.suppress(OSError):  # The other side may have closed first.
            connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._end(self.socket)
        self.socket.close()
        for connection in self.connections:
            self._end(connection)
            connection.close()


class Passage(Listener):
    """A proxy that passes all bytes on to the server at `port`, until its connections are cut."""

    def __init__(self, port):
        self.server_port = port
        super().__init__()

    def serve(self, connection):
        with socket.create_connection(("127.0.0.1", self.server_port), PATIENCE_S) as server:
            server.settimeout(None)
            back = threading.Thread(target=self._pass_back, args=(server, connection), daemon=True)
            back.start()
            self._pass_on(connection, server)
            back.join()

    def _pass_back(self, server, connection):
        self._pass_on(server, connection)

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        self._end(source)
        self._end(target)

    def cut(self):
        for connection in list(self.connections):
            self._end(connection)


class OtherHost(Listener):
    """Answers each hello with `answer`, and nothing else."""

    def __init__(self, answer, port=0):
        self.answer = answer
        self.hellos = []
        super().__init__(port)

    def serve(self, connection):
        while True:
            self.hellos.append(receive_native(connection))
            connection.sendall(frame(self.answer))


class Interpreter(Listener):
    """A proxy between nodes and the host at `port`. It passes on the results of `to_host` and
    `to_node` for each message."""

    def __init__(self, port, to_host, to_node):
        self.host_port = port
        self.to_host = to_host
        self.to_node = to_node
        super().__init__()

    def serve(self, connection):
        with socket.create_connection(("127.0.0.1", self.host_port), PATIENCE_S) as host:
            host.settimeout(None)
            down = threading.Thread(target=self._downwards, args=(host, connection), daemon=True)
            down.start()
            try:
                while True:
                    query = receive(connection, 1)
                    if query == NATIVE:
                        host.sendall(query + frame(self.to_host(receive_message(connection))))
                    else:
                        assert query in (VALIDATE, PING), query
                        host.sendall(query + receive(connection, 4))
            finally:
                self._end(host)
                down.join()

    def _downwards(self, host, connection):
        with contextlib.suppress(OSError, EOFError):
            connection.sendall(receive(host, 4))  # The nonce.
            while True:
                connection.sendall(frame(self.to_node(receive_message(host))))
        self._end(connection)
