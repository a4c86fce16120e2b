"""What hostile clients send to a store server, and how its victims are watched. Standard library only."""
import contextlib
import json
import os
import pathlib
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import support
from musterd import Musterd
from support import one_second, without_processor_s

# The seed of all random numbers of the attacks. Each failure names it.
SEED = int(os.environ.get("MUSTER_ATTACK_SEED", "1"))
(VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, GETNUMKEYS, DELETE_KEY, APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT,
 PING, QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER) = range(19)
HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE)
# torch's text for "no state yet". The first client that writes it begins the run.
NO_STATE = b"Y2FuaW1hZGFt"
STATE_KEY = b"/torch.rendezvous."


def chance_of(name):
    """A generator of random numbers: the same for the same seed and name."""
    return random.Random(f"{SEED} {name}")


def main():
    """As in the end-to-end tests. With MUSTER_ATTACK_SEED in the environment the tests run in an order of its own."""
    if "MUSTER_ATTACK_SEED" in os.environ:
        support.ShardLoader.sortTestMethodsUsing = staticmethod(by_chance)
    try:
        support.main()
    except SystemExit as end:
        if end.code:
            print(f"MUSTER_ATTACK_SEED={SEED}", file=sys.stderr)
        raise


def by_chance(one, other):
    def place(name):  # Some have to be the last.
        return name.startswith("test_zz"), chance_of(name).random(), name
    return (place(one) > place(other)) - (place(one) < place(other))


def u64(number):
    return struct.pack("<Q", number)


def text(data):
    data = data.encode() if isinstance(data, str) else data
    return u64(len(data)) + data


def request(query, *texts):
    return bytes([query]) + b"".join(map(text, texts))


def keys_request(query, keys):
    return bytes([query]) + u64(len(keys)) + b"".join(map(text, keys))


def native(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"m" + text(data)


def hello(run="job", **more):
    return native({"type": "hello", "protocol_version": 1, "muster_version": "0", "run_id": run, **more})


def join(addr="node", pid=1, nodes=2, **more):
    return native({"type": "join", "name": {"addr": addr, "pid": pid, "local_id": 0}, "local_world_size": 1,
                   "role": "default",
                   "run": {"min_nodes": nodes, "max_nodes": nodes, "max_restarts": 0, "scale_policy": "now",
                           "join_timeout_ns": 600_000_000_000, "last_call_timeout_ns": 30_000_000_000},
                   "protocol_version": 1, "muster_version": "0", "last_round": -1, "spare": False,
                   "hosts_rendezvous": False, **more})


class Client:
    """One connection; it counts what it sends."""

    def __init__(self, port, first=HELLO, sent=None, address="127.0.0.1"):
        """`address`: the client's own."""
        self.sent = sent if sent is not None else [0]
        self.socket = socket.create_connection(("127.0.0.1", port), 10, (address, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if first:
            self.send(first)

    def send(self, data, patience_s=1.0):
        """Sends as much as the server takes. False: the server has closed the connection, or reads no more."""
        self.socket.settimeout(patience_s)
        view = memoryview(data)
        try:
            while view:
                count = self.socket.send(view)
                self.sent[0] += count
                view = view[count:]
        except OSError:  # A timeout, too.
            return False
        return True

    def receive(self, size, patience_s=10.0):
        self.socket.settimeout(patience_s)
        got = bytearray()
        while len(got) < size:
            part = self.socket.recv(min(size - len(got), 1 << 20))
            if not part:
                raise EOFError
            got += part
        return bytes(got)

    def receive_text(self, patience_s=10.0):
        return self.receive(struct.unpack("<Q", self.receive(8, patience_s))[0], patience_s)

    def receive_message(self, patience_s=10.0):
        return json.loads(self.receive_text(patience_s))

    def receive_end(self):
        """Waits until the server closes the connection. Returns the bytes that came before."""
        self.socket.settimeout(60)
        got = b""
        try:
            while part := self.socket.recv(1 << 20):
                got += part
        except ConnectionResetError:
            pass
        return got

    def ping(self):
        self.send(b"\x0dPING")
        return self.receive(4) == b"PING"

    def drain(self, patience_s=2.0):
        """Reads until the server closes the connection or is silent."""
        self.socket.settimeout(patience_s)
        try:
            while self.socket.recv(1 << 20):
                pass
        except OSError:
            pass

    def close(self):
        self.socket.close()


class Attacker:
    """Makes connections, and knows how many bytes all of them have sent."""

    def __init__(self, port):
        self.port = port
        self.sent = [0]
        self.clients = []
        self.keys_to_delete = []

    def client(self, first=HELLO):
        self.clients.append(Client(self.port, first, self.sent))
        return self.clients[-1]

    def clients_of(self, count, first=HELLO):
        return [self.client(first) for _ in range(count)]

    def close(self):
        """Also deletes keys_to_delete. With many large keys in the store, a later attack's LIST_KEYS would have large replies."""
        for client in self.clients:
            client.close()
        if not self.keys_to_delete:
            return
        with contextlib.suppress(OSError, EOFError):  # The server may have ended.
            client = Client(self.port)
            for key in self.keys_to_delete:
                client.send(request(DELETE_KEY, key))
                client.receive(8)
            client.close()


class Wait:
    """Measures how long servers make this thread wait. Delays by other programs of the machine are subtracted: the time
    in which a thread of this process or of a server was ready to run and had no processor. All threads of this process
    count, because a thread that holds Python's lock and has no processor keeps this thread waiting."""

    def __init__(self, *servers):
        self.servers = servers
        self.without_processor = self._without_processor_s()
        self.begin = time.monotonic()

    def seconds(self):
        wall_s = time.monotonic() - self.begin
        return wall_s - max(0, self._without_processor_s() - self.without_processor)

    def _without_processor_s(self):
        return sum(map(without_processor_s, ("self", *self.servers)))


class Witness:
    """Connects again and again, as a torch client and as a muster node, and records how long the servers make it wait.
    `servers` are pids."""

    def __init__(self, port, servers, native_run=None):
        self.port = port
        self.servers = servers
        self.native_run = native_run
        self.longest_s = 0.0
        self.visits = 0
        self.errors = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _visit(self):
        wait = Wait(*self.servers)
        torch = Client(self.port)
        key = b"witness"
        torch.send(request(SET, key, b"1") + request(GET, key) + b"\x0dPING")
        assert torch.receive_text() == b"1" and torch.receive(4) == b"PING"
        torch.close()
        self.longest_s = max(self.longest_s, wait.seconds())
        if self.native_run is not None:
            wait = Wait(*self.servers)
            node = Client(self.port)
            node.send(hello(self.native_run))
            answer = node.receive_message()
            assert answer["type"] == "welcome", answer
            node.close()
            self.longest_s = max(self.longest_s, wait.seconds())
        self.visits += 1

    def _run(self):
        while not self.stopping.is_set():
            try:
                self._visit()
            except Exception as error:  # Whatever it is, the test is to say it.
                self.errors.append(repr(error))
            self.stopping.wait(0.02)

    def stop(self):
        self.stopping.set()
        self.thread.join(30)


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


class Memory:
    """Measures how far the memory of a process grows above its memory at the start."""

    def __init__(self, pid):
        self.pid = pid
        self.before = resident_bytes(pid)
        self.most = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopping.wait(0.02):
            try:
                self.most = max(self.most, resident_bytes(self.pid) - self.before)
            except OSError:
                return

    def stop(self):
        self.stopping.set()
        self.thread.join(10)


# How many times slower a server is with sanitizers and without optimization.
SLOWNESS = float(os.environ.get("MUSTER_SLOWNESS", "1"))
# AddressSanitizer keeps freed memory for a while. With this setting the tests measure what the program itself holds.
KEEP_LITTLE = {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}


class Victim(Musterd):
    """A musterd under attack."""

    def __init__(self, folder, *options):
        super().__init__(*options, log=pathlib.Path(folder) / "musterd.log", env=os.environ | KEEP_LITTLE)
        self.says("listening on")


def patience_s():
    """How long this machine takes now for what an idle machine does in a second: on a busy machine each process has a
    smaller share of the processors."""
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    return SLOWNESS * max(one_second(), min(30.0, share))
