"""A musterd with a token, and a node that proves that it has it: what the attacks on the token share."""
import hashlib
import hmac
import pathlib
import secrets
import sys
import tempfile
import time
import unittest

from hostile import HELLO, Client, Victim, hello, join, native

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from support import PATIENCE_S

TOKEN = "a-token-for-tests-only-0123456789"


def token_file(folder, text=TOKEN, name="token", mode=0o600):
    path = pathlib.Path(folder) / name
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


def json_of(framed):
    return framed[9:]  # Behind the native byte and the length.


def proof(role, nonce, first_json, token=TOKEN):
    text = f"muster native door, protocol 1\n{role}\n{nonce}\n".encode() + first_json
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()


def prove(value):
    return native({"type": "prove", "proof": value})


class Node(Client):
    """A node that follows the protocol, unless the caller passes wrong values."""

    def enter(self, run="job", token=TOKEN, role="node"):
        """Sends the hello and the proof. Returns the answer to the proof."""
        self.first = hello(run, nonce=secrets.token_hex(32))
        self.send(self.first)
        self.challenge = self.receive_message()["nonce"]
        self.send(prove(proof(role, self.challenge, json_of(self.first), token)))
        return self.receive_message()

    def is_closed(self):
        self.socket.settimeout(PATIENCE_S)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class TokenTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-attack-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.file = token_file(self.dir)

    def start(self, *options):
        self.musterd = Victim(self.dir, "--rdzv-token-file", str(self.file), *options)
        self.addCleanup(self.musterd.end)

    def node(self, address="127.0.0.1", first=HELLO):
        node = Node(self.musterd.port, first, address=address)
        self.addCleanup(node.close)
        return node

    def node_that(self, greets, limit_s, address="127.0.0.1"):
        """A new node for which greets(node) was done. If the server closes the connection, and this test was off the
        CPU for so long that the server may do that after `limit_s`, another node connects."""
        end = time.monotonic() + PATIENCE_S
        while True:
            begin = time.monotonic()
            node = self.node(address)
            try:
                greets(node)
                return node
            except (EOFError, OSError):
                if time.monotonic() < begin + limit_s or time.monotonic() > end:
                    raise

    def refused(self, node, answer, text):
        self.assertEqual(answer["type"], "refused", answer)
        self.assertIn(text, answer["text"])
        self.assertTrue(node.is_closed())

    def member(self, run="job", pid=1, nodes=2, address="127.0.0.1"):
        """A node that has joined."""
        node = self.node(address)
        self.assertEqual(node.enter(run)["type"], "welcome")
        node.send(join(pid=pid, nodes=nodes))
        self.assertEqual(node.receive_message()["type"], "waiting")
        return node

    def check_log(self):
        log = self.musterd.log_bytes()
        self.assertIsNone(self.musterd.poll(), log[-2000:])
        self.assertNotIn(TOKEN.encode(), log)
        return log.decode()
