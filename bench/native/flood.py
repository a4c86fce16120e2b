"""The clients of one run flood musterd: they send requests as fast as musterd reads.

    flood.py PORT     prints "flooding", and sends until its stdin ends
"""
import json
import os
import select
import socket
import struct
import sys

CLIENTS = 8
VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)


def text(data):
    return struct.pack("<Q", len(data)) + data


def native(**message):
    return b"m" + text(json.dumps(message).encode())


def join(number):
    run = {"min_nodes": 64, "max_nodes": 64, "max_restarts": 0, "scale_policy": "now",
           "join_timeout_ns": 600_000_000_000, "last_call_timeout_ns": 30_000_000_000}
    return native(type="join", name={"addr": f"flood{number}", "pid": number, "local_id": 0},
                  local_world_size=1, role="default", run=run, protocol_version=1,
                  muster_version="0", last_round=-1, spare=False, hosts_rendezvous=False)


def floods(number):
    """Returns the first bytes of a client, and the bytes that it then sends again and again."""
    hello = VALIDATE + native(type="hello", protocol_version=1, muster_version="0",
                              run_id="flood", resumes=True)
    if number % 2 == 0:
        return hello + join(number), native(type="keep_alive") * 2000
    key = b"/torch.rendezvous.flood.0/%d" % number
    return VALIDATE, (b"\1" + text(key) + text(b"v" * 10_000) + b"\3" + text(key)) * 20


def main():
    clients = []
    for number in range(CLIENTS):
        client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        first, again = floods(number)
        client.sendall(first)
        client.setblocking(False)
        clients.append([client, again, b""])
    print("flooding", flush=True)
    while clients:
        sockets = [one[0] for one in clients]
        readable, writable, _ = select.select([sys.stdin, *sockets], sockets, [])
        if sys.stdin in readable and not os.read(0, 4096):
            return
        for one in list(clients):
            client, again, left = one
            try:
                if client in readable and not client.recv(1 << 20):
                    raise ConnectionResetError
                if client in writable:
                    left = left or again
                    one[2] = left[client.send(left):]
            except BlockingIOError:
                pass
            except OSError:  # The server has closed it.
                clients.remove(one)
    sys.exit("flood.py: the server has closed every connection")


main()
