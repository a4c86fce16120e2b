#!/usr/bin/env python3
"""Tests the addresses at which rank 0's store listens: with a token, only loopback and the address
that the other nodes use."""
import ipaddress
import pathlib
import re
import socket
import sys

from mixed import MusterdTest
from nodes import REACH
from ports import free_port
from support import MusterTest, main
from token_test import TokenJob

LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp.

# Rank 0's worker hosts the store, as torch does with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
OWN_STORE = """
import os, socket, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.create_server(address)
end = time.monotonic() + 60
while True:
    try:
        socket.create_connection(address, 30).close()
        break
    except ConnectionRefusedError:
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
"""


def own_address():
    """An IPv4 address by which other machines reach this one; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing: the kernel only chooses the interface.
        except OSError:
            return None
        return probe.getsockname()[0]


def listening(port):
    """The addresses at which processes listen on this port."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            address, _, hexadecimal = local.partition(":")
            if state != LISTENING or int(hexadecimal, 16) != port:
                continue
            words = [bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8)]
            found.add(str(ipaddress.ip_address(b"".join(words))))
    return found


class Store(TokenJob):
    def setUp(self):
        self.own = own_address()
        if self.own is None or ipaddress.ip_address(self.own).is_loopback:
            self.skipTest("this machine has no address but loopback")
        super().setUp()

    def start_musterd(self):
        self.access = [f"--bind={self.own}"]
        try:
            super().start_musterd()
        finally:
            self.access = []

    def endpoint(self):
        return f"{self.own}:{self.port}"

    def store(self):
        """The address and port of the store that the workers of the newest round got."""
        entry = self.round_of(2)[0]
        return entry["MASTER_ADDR"], int(entry["MASTER_PORT"])


class WithToken(Store):
    def test_with_a_token_it_listens_where_it_is_announced_and_on_loopback(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=1")
        address, port = self.store()
        self.assertEqual(address, self.own)
        self.assertEqual(listening(port), {self.own, "127.0.0.1"})
        self.tell("exit.a", "3")
        entry = self.round_of(2, after=2)[0]
        self.assertEqual(listening(int(entry["MASTER_PORT"])), {self.own, "127.0.0.1"})
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_with_an_address_of_the_users_choice_it_listens_everywhere(self):
        for tag in "ab":
            self.node(tag, 2, "--local-addr=127.0.0.1")
        _, port = self.store()
        self.assertEqual(len(listening(port) & {"::", "0.0.0.0"}), 1)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_store_that_the_workers_host_is_not_warned_of(self):
        self.worker.write_text(self.worker.read_text().replace(REACH, OWN_STORE))
        for tag in "ab":
            self.node(tag, 2, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assertNotIn("does not know this node's token", self.all_output())


# Exits with 1 if a program that asks for the port, or for any free one, gets the port of rank 0.
ASK_FOR_PORT = """
import os, socket
port = int(os.environ["MASTER_PORT"])
sockets = []
def bind(asked):
    sockets.append(socket.socket())
    sockets[-1].bind(("", asked))
    return sockets[-1].getsockname()[1]
try:
    bind(port)
except OSError:
    pass
else:
    raise SystemExit(f"another program can take port {port}")
assert port not in [bind(0) for _ in range(500)]
socket.create_server(("", port)).close()
os.write(1, f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']} of {port}\\n".encode())
raise SystemExit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
"""


class HeldPort(MusterTest):
    def test_the_port_of_a_store_that_rank_0_hosts_is_held(self):
        worker = self.script("worker.py", ASK_FOR_PORT)
        for rendezvous in (["--standalone"], ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]):
            with self.subTest(rendezvous[0]):
                _, out, _ = self.run_muster(*rendezvous, "--max-restarts=1", worker, expect=0,
                                       env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
                self.assertEqual(len(re.findall("attempt . of", out)), 2)


class WithoutToken(Store):
    def start_musterd(self):
        self.musterd_options = [f"--bind={self.own}"]
        MusterdTest.start_musterd(self)

    def arguments(self, tag, nnodes, extra):
        return MusterdTest.arguments(self, tag, nnodes, extra)

    def test_it_listens_everywhere_as_torchruns(self):
        """Scripts may use any address of rank 0."""
        for tag in "ab":
            self.node(tag, 2)
        _, port = self.store()
        self.assertEqual(len(listening(port) & {"::", "0.0.0.0"}), 1)
        self.tell("finish")
        self.ends(a=0, b=0)


if __name__ == "__main__":
    sys.exit(main())
