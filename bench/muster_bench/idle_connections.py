"""Many connections to a store that do nothing, as the workers of a large job mostly do."""
import contextlib
import selectors
import socket
import struct
import time

from .model import MeasureError, TooSlow

# A client's first words in PyTorch's c10d store protocol: VALIDATE with its magic, then PING with
# a nonce, which the server returns.
VALIDATE = struct.pack("<BI", 0, 0x3C85F7CE)
PING = 13


@contextlib.contextmanager
def open_connections(port, count, limit_s):
    """`count` connections, each of which the server has answered."""
    deadline_s = time.monotonic() + limit_s
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        answered = 0
        for number in range(count):
            try:
                connection = stack.enter_context(
                    socket.create_connection(("127.0.0.1", port), timeout=limit_s))
            except OSError as error:
                raise MeasureError(f"connection {number + 1} of {count}: {error}") from error
            connection.sendall(VALIDATE + struct.pack("<BI", PING, number))
            selector.register(connection, selectors.EVENT_READ, number)
            # Not too many at once: the listening queue is finite, and is not what is measured.
            while number + 1 - answered >= 1000 or (number + 1 == count and answered < count):
                answered += take_answers(selector, answered, count, deadline_s, limit_s)
        yield


def take_answers(selector, answered, count, deadline_s, limit_s):
    left_s = deadline_s - time.monotonic()
    ready = selector.select(max(left_s, 0))
    if not ready:
        raise TooSlow(f"{answered} of {count} connections answered within {limit_s:g} s")
    for key, _ in ready:
        if key.fileobj.recv(4) != struct.pack("<I", key.data):
            raise MeasureError(f"connection {key.data + 1} of {count}: closed or a wrong answer")
        selector.unregister(key.fileobj)
    return len(ready)
