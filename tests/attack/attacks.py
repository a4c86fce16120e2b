"""The attacks, one function each: the requests of a hostile client to the server at `a.port` (an Attacker).

Each function returns when the attack is complete. Its connections stay open until the test closes them.
"""
import base64
import pathlib
import tempfile
import time

import pickles
from hostile import (ADD, APPEND, CANCEL_WAIT, CHECK, COMPARE_SET, GET, HELLO, LIST_KEYS, MULTI_GET, MULTI_SET,
                     NO_STATE, QUEUE_POP, QUEUE_PUSH, SET, STATE_KEY, WAIT, chance_of, hello, join, keys_request, native, request,
                     text, u64)

MIB = 1 << 20


# --- native messages -------------------------------------------------------------------------------------------------

def hello_of_many_fields(a):
    fields = b"".join(b',"%d":0' % i for i in range(30_000))
    for client in a.clients_of(20):
        client.send(native(b'{"type":"hello"' + fields[:284 << 10].rpartition(b",")[0] + b"}"))


def hello_of_a_mebibyte(a):
    fields = b"".join(b',"%d":0' % i for i in range(100_000))[:MIB - 100].rpartition(b",")[0]
    for client in a.clients_of(10):
        client.send(native(b'{"type":"hello"' + fields + b"}"))


def join_of_many_fields(a):
    fields = b"".join(b',"%d":0' % i for i in range(12_000)).rpartition(b",")[0]
    for client in a.clients_of(20):
        client.send(hello() + native(b'{"type":"join"' + fields[:120_000].rpartition(b",")[0] + b"}"))


def message_of_deep_levels(a):
    for client in a.clients_of(20):
        client.send(hello() + native(b'{"type":"join","x":' + b"[" * 100_000))


def many_small_messages(a):
    for client in a.clients_of(10):
        client.send(hello() + native({"type": "keep_alive"}) * 20_000, 0.3)


def long_address_of_many_nodes(a):
    for i, client in enumerate(a.clients_of(200)):
        client.send(hello("crowd") + join(addr="a" * 100_000, pid=i, nodes=60_000))


def largest_texts_of_many_nodes(a):
    for i, client in enumerate(a.clients_of(300)):
        client.send(hello("crowd") + join(addr="a" * 256, pid=i, nodes=60_000, role="r" * 256, instance="%064d" % i))


def node_that_reads_nothing(a):
    for client in a.clients_of(5):
        client.send(hello("unread") + join(nodes=60_000) * 5_000, 0.3)


# --- amplification ---------------------------------------------------------------------------------------------------

def multi_get_of_one_key(a):
    client = a.client()
    client.send(request(SET, "k", b"v" * 21_000))
    for reader in a.clients_of(4):
        reader.send(keys_request(MULTI_GET, ["k"] * 12_000))


def multi_get_of_one_key_most_times(a):
    client = a.client()
    client.send(request(SET, "k", b"v" * 16_383))
    for reader in a.clients_of(2):
        reader.send(keys_request(MULTI_GET, ["k"] * 131_072))


def multi_get_of_a_small_value(a):
    client = a.client()
    client.send(request(SET, "k", b"v" * 1000))
    for reader in a.clients_of(4):
        reader.send(keys_request(MULTI_GET, ["k"] * 60_000))


def list_keys_unread(a):
    client = a.client()
    for i in range(0, 2_000, 100):
        keys = [b"%06d" % (i + j) + b"n" * 4_000 for j in range(100)]
        a.keys_to_delete += keys
        client.send(bytes([MULTI_SET]) + u64(100) + b"".join(text(key) + text(b"") for key in keys))
    client.ping()
    for reader in a.clients_of(60):
        reader.send(bytes([LIST_KEYS]))


list_keys_unread.unread_bytes = 256 << 20  # docs/protocol.md: the limit of all clients' unread replies at musterd.


def list_keys_again_and_again(a):
    client = a.client()
    keys = [b"%d" % i for i in range(50_000)]
    client.send(bytes([MULTI_SET]) + u64(len(keys)) + b"".join(text(key) + text(b"") for key in keys))
    client.ping()
    for reader in a.clients_of(20):
        reader.send(bytes([LIST_KEYS]) * 5_000)
    for reader in a.clients[1:4]:
        reader.drain(0.3)


def gets_unread_by_many_clients(a):
    a.client().send(request(SET, "k", b"v" * 16_383))
    for reader in a.clients_of(100):
        reader.send(request(GET, "k") * 2_000, 0.1)


def get_beside_append(a):
    writer = a.client()
    writer.send(request(SET, "k", b"v" * MIB))
    writer.ping()
    readers = a.clients_of(20)
    for _ in range(50):
        for reader in readers:
            reader.send(request(GET, "k") + request(APPEND, "k", b"+"), 0.05)


def gets_of_a_growing_value_unread(a):
    writer = a.client()
    writer.send(request(SET, "k", b"v" * (7 * MIB)))
    writer.ping()
    for reader in a.clients_of(60):
        reader.send(request(GET, "k"))
        writer.send(request(APPEND, "k", b"+"))  # The value that the reply holds is replaced.
        writer.ping()


gets_of_a_growing_value_unread.unread_bytes = list_keys_unread.unread_bytes


def get_beside_set(a):
    readers = a.clients_of(10)
    for i in range(5):
        for reader in readers:
            reader.send(request(SET, "k", b"%d" % i * 500_000) + request(GET, "k") * 10, 0.05)


def state_read_unread(a):
    for i, client in enumerate(a.clients_of(20)):
        key = STATE_KEY + b"read%d" % i
        client.send(request(COMPARE_SET, key, b"", NO_STATE) + keys_request(MULTI_GET, [key] * 5_000))


# --- work ------------------------------------------------------------------------------------------------------------

def queues_that_come_and_go_under_a_wait(a):
    names = ["q%d" % i for i in range(30_000)]
    waiter, pusher = a.clients_of(2)
    waiter.send(keys_request(WAIT, names))
    pusher.send(b"".join(request(QUEUE_PUSH, name, "v") for name in names[1:-1]), 10)
    for _ in range(20):
        pusher.send(b"".join(request(QUEUE_PUSH, name, "v") + request(QUEUE_POP, name)
                             for name in (names[0], names[-1]) * 50))
    pusher.drain(0.3)


def queue_with_many_waiters_that_miss_another(a):
    for waiter in a.clients_of(300):
        waiter.send(keys_request(WAIT, ["q", "missing"]))
    pusher = a.client()
    pusher.send((request(QUEUE_PUSH, "q", "v") + request(QUEUE_POP, "q")) * 10_000)
    pusher.drain(0.3)


def waits_of_one_client_in_many_runs(a):
    client = a.client()
    for i in range(300):
        client.send(request(COMPARE_SET, STATE_KEY + b"w%d" % i, b"", NO_STATE))
    client.send((keys_request(WAIT, ["nobody"]) + bytes([CANCEL_WAIT])) * 3_000)
    client.drain(0.3)


def waits_for_many_names(a):
    names = ["w%d" % i for i in range(60_000)]
    for client in a.clients_of(3):
        client.send(keys_request(WAIT, names) + bytes([CANCEL_WAIT]))
        client.send((keys_request(CHECK, names)) * 3)


def requests_without_end(a):
    for client in a.clients_of(50):
        client.send((request(SET, "k", "v") + request(GET, "k") + request(ADD, "n") + u64(1)) * 10_000, 0.05)


# --- memory ----------------------------------------------------------------------------------------------------------

def small_queues_of_many_names(a):
    client = a.client()
    client.send(b"".join(request(QUEUE_PUSH, "%x" % i, b"") for i in range(100_000)), 10)
    client.drain(0.2)


def small_keys_of_many_names(a):
    client = a.client()
    client.send(b"".join(request(SET, "%x" % i, b"") for i in range(100_000)), 10)
    client.drain(0.2)


def half_requests(a):
    for client in a.clients_of(300):
        client.send(bytes([SET]) + text("k") + u64(8 * MIB) + b"v" * 100)


def connections_that_say_nothing(a):
    a.clients_of(500, first=b"")


# --- slowness ---------------------------------------------------------------------------------------------------------

def slow_loris(a):
    """Clients whose bytes come one by one: the greeting, a hello, a join, a SET and a MULTI_GET that never end."""
    streams = [HELLO, HELLO + hello("slow"), HELLO + hello("slow") + join(nodes=60_000),
               HELLO + request(SET, "k", b"v" * 1000), HELLO + keys_request(MULTI_GET, ["k%d" % i for i in range(50)])]
    slow = [(client, streams[i % len(streams)]) for i, client in enumerate(a.clients_of(200, first=b""))]
    end = time.monotonic() + 2
    for at in range(max(map(len, streams))):
        if time.monotonic() > end:
            return
        for client, stream in slow:
            client.send(stream[at:at + 1])


# --- the log, and bytes that mean nothing ----------------------------------------------------------------------------

FORGED = "x\nC0101 00:00:00.000000 1 musterd] FORGED\x1b[31m\r\u2028\u009b \" advice=\"rm -rf /\""


def forged_lines(a):
    for first in (native({"type": FORGED}),
                  hello(FORGED) + join(addr=FORGED, role=FORGED),
                  hello("forged") + native({"type": "join", "name": FORGED}),
                  native({"type": "hello", "protocol_version": 99, "muster_version": FORGED}),
                  hello("forged") + join(addr=FORGED, nodes=1) + native({"type": "leave"}),
                  hello("forged2") + join(nodes=1) + native({"type": "workers_failed", "round": 0, "what": FORGED}),
                  hello("forged3") + join(nodes=1) + native({"type": "restart", "what": FORGED})):
        client = a.client()
        client.send(first)
        client.drain(0.1)
    client = a.client()
    client.send(request(COMPARE_SET, STATE_KEY + FORGED.encode(), b"", NO_STATE))
    client.send(request(COMPARE_SET, STATE_KEY + FORGED.encode(), NO_STATE, FORGED))
    client.drain(0.1)


def flood_of_bad_clients(a):
    for _ in range(300):
        for first in (b"GET / HTTP/1.1\r\n\r\n", bytes([0, 1, 2, 3, 4])):
            client = a.client(first=first)
            client.close()
            a.clients.pop()


def random_bytes(a):
    chance = chance_of("random_bytes")
    for _ in range(200):
        client = a.client(first=b"" if chance.random() < 0.3 else HELLO)
        client.send(bytes([chance.randrange(25)]) + chance.randbytes(chance.randrange(200)), 0.1)


def key_of_the_wrong_kind_many_times(a):
    for i in range(200):
        client = a.client()
        client.send(request(SET, "text", "no number") + request(ADD, "text") + u64(1))
        client.drain(0.05)


# --- states and rounds -----------------------------------------------------------------------------------------------

def pickled_state(*, closed=False, participants=0, opcode=b"\x80\x04"):
    """A text that looks like torch's state, so that a reader begins to decode it."""
    return base64.b64encode(opcode + b"}" * (participants + 1) + (b"\x88" if closed else b"\x89") + b".")


def states_that_are_none(a):
    chance = chance_of("states_that_are_none")
    for i in range(40):
        client = a.client()
        key = STATE_KEY + b"none%d" % i
        client.send(request(COMPARE_SET, key, b"", NO_STATE))
        client.receive_text()
        client.send(request(COMPARE_SET, key, NO_STATE, pickled_state(participants=chance.randrange(5))))
        client.drain(0.02)


def pickle_of_lists_in_sets(a):
    # Lists of lists that refer to one list several times: each level doubles the memory of a reader that copies lists.
    pickle = b"\x80\x04]\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(200)) + b"."
    for i, client in enumerate(a.clients_of(10)):
        key = STATE_KEY + b"bomb%d" % i
        client.send(request(COMPARE_SET, key, b"", NO_STATE) + request(COMPARE_SET, key, NO_STATE,
                                                                        base64.b64encode(pickle * 20)))
        client.drain(0.05)


def pickle_of_huge_memo_index(a):
    for i, client in enumerate(a.clients_of(10)):
        key = STATE_KEY + b"memo%d" % i
        client.send(request(COMPARE_SET, key, b"", NO_STATE)
                    + request(COMPARE_SET, key, NO_STATE, base64.b64encode(b"\x80\x04}r\xff\xff\xff\x7f.")))
        client.drain(0.05)


def pickles_that_execute(a):
    """States that run a program in any process that unpickles them with Python. The server must not run them, and must
    give them to no client."""
    with tempfile.TemporaryDirectory(prefix="muster-attack-") as folder:
        marker = pathlib.Path(folder) / "executed"
        for name, pickled in {**pickles.rejected(), **pickles.executing(marker)}.items():
            for run in (b"pickle-" + name.encode(), b"job"):
                key = STATE_KEY + run
                client = a.client()
                client.send(request(COMPARE_SET, key, b"", NO_STATE))
                try:
                    before = client.receive_text()
                    client.send(request(COMPARE_SET, key, before, pickled))
                    answers = [client.receive_text()]
                    client.send(request(GET, key))
                    answers.append(client.receive_text())
                except (EOFError, OSError):
                    continue  # It was closed for that, or is not a run of this host.
                assert pickled not in [answer for answer in answers if answer], f"{name} comes back"
            other = a.client()
            other.send(hello("pickles") + native(base64.b64decode(pickled[:len(pickled) // 4 * 4])))
        a.clients[-1].drain(0.3)
        assert not marker.exists(), "a pickle was executed"


def waits_at_the_exit_barrier_and_leaves(a):
    for run in ("exit", "job"):
        node = a.client()
        node.send(hello(run) + join(nodes=1))
        watcher = a.client()
        watcher.send(request(GET, STATE_KEY + run.encode()))
        watcher.send(keys_request(WAIT, [b"torch.rendezvous.%s.0/torchelastic/agent/terminal_state/last_member"
                                         % run.encode()]))
        node.drain(0.1)
        watcher.close()
        node.close()


def fails_and_leaves_while_a_round_is_prepared(a):
    for kind in ("workers_failed", "finished", "leave", "restart", "store_ready"):
        nodes = [a.client() for _ in range(3)]
        for i, node in enumerate(nodes):
            node.send(hello("prepare-" + kind) + join(pid=i, nodes=3))
        message = {"type": kind, "round": 0, "what": "", "succeeded": False, "addr": "x", "port": 1}
        for node in nodes[1:]:
            node.send(native(message))
            node.close()
        nodes[0].send(native(message))
        nodes[0].close()


def numbers_at_their_limits(a):
    most = (1 << 63) - 1
    for more in ({"local_world_size": (1 << 31) - 1}, {"preferred_rank": (1 << 31) - 1}, {"last_round": most},
                 {"pid": most}, {"life": most}):
        for i in range(3):
            client = a.client()
            client.send(hello("numbers") + join(**{"pid": i, "nodes": 2, **more}))
            client.send(native({"type": "finished", "round": most, "succeeded": True, "what": ""}))
    for timeouts in (most, 0):
        client = a.client()
        settings = {"min_nodes": 1, "max_nodes": (1 << 31) - 1, "max_restarts": (1 << 31) - 1, "scale_policy": "now",
                    "join_timeout_ns": timeouts, "last_call_timeout_ns": timeouts}
        client.send(hello("timeouts%d" % bool(timeouts)) + join(**{"run": settings}))
