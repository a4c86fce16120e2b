#!/usr/bin/env python3
"""Attacks on the token: a stranger, a thief of old messages and a false host get nothing, and the members notice nothing.

    token_attack_test.py [-v] [CLASS.test_NAME ...]      (MUSTERD_BIN and MUSTER_BIN name the programs)
"""
import contextlib
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import threading

from hostile import GET, HELLO, Client, Victim, hello, join, main, native, request
from token_peers import TOKEN, Node, TokenTest, json_of, proof, prove, token_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from native_peer import OtherHost, receive
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from support import MUSTER, PATIENCE_S, wait_for


class Door(TokenTest):
    def test_both_prove_that_they_have_the_token_and_neither_says_it(self):
        self.start()
        node = self.node()
        answer = node.enter()
        self.assertEqual(answer["type"], "welcome", answer)
        self.assertEqual(answer["proof"], proof("host", node.challenge, json_of(node.first)))
        self.assertNotIn(TOKEN, json.dumps(answer))
        self.check_log()

    def test_a_node_without_a_token_is_told_what_to_do(self):
        self.start()
        node = self.node()
        node.send(hello())
        self.refused(node, node.receive_message(), "give this node --rdzv-token-file FILE")
        self.assertIn("a node without the token", self.check_log())

    def test_downgrade_nothing_is_served_before_the_proof(self):
        self.start()
        for first in (join(), native({"type": "keep_alive"}), native({"type": "leave"}),
                      native({"type": "reach", "generation": 1, "group_rank": 0}),
                      native({"type": "prove", "proof": "0" * 64}), hello(nonce=""), hello(nonce=None)):
            node = self.node()
            node.send(first)
            answer = node.receive_message()
            self.assertEqual(answer["type"], "refused", answer)
            self.assertTrue(node.is_closed())
        for second in (join(), hello(), hello(nonce="0" * 64), native({"type": "keep_alive"})):
            node = self.node()
            node.send(hello(nonce="0" * 64))
            self.assertEqual(node.receive_message()["type"], "challenge")
            node.send(second)
            self.refused(node, node.receive_message(), "this is no proof of it")
        node = self.node()
        node.send(native({"type": "hello", "protocol_version": 0, "muster_version": "0", "run_id": "job"}))
        self.refused(node, node.receive_message(), "speaks protocol 0")
        self.check_log()

    def test_another_token_and_the_wrong_roles_proof_are_refused(self):
        self.start()
        for options in ({"token": TOKEN + "x"}, {"token": TOKEN[:-1]}, {"role": "host"}):
            node = self.node()
            self.refused(node, node.enter(**options), "token differs from the rendezvous' token")
        self.assertIn("a node with another token", self.check_log())

    def test_proofs_that_were_overheard_are_good_for_nothing(self):
        self.start()
        seen = self.node()
        self.assertEqual(seen.enter()["type"], "welcome")
        old = prove(proof("node", seen.challenge, json_of(seen.first)))
        thief = self.node()
        thief.send(seen.first)
        self.assertNotEqual(thief.receive_message()["nonce"], seen.challenge)
        thief.send(old)
        self.refused(thief, thief.receive_message(), "token differs from the rendezvous' token")
        # The host's own proof is not accepted as the proof of a node, neither on the same connection nor on another one.
        mirror = self.node()
        mirror.send(seen.first)
        challenge = mirror.receive_message()["nonce"]
        mirror.send(prove(proof("host", challenge, json_of(seen.first))))
        self.refused(mirror, mirror.receive_message(), "token differs from the rendezvous' token")

    def test_a_proof_is_for_one_run_only(self):
        self.start()
        node = self.node()
        nonce = secrets.token_hex(32)
        node.send(hello("other", nonce=nonce))
        challenge = node.receive_message()["nonce"]
        node.send(prove(proof("node", challenge, json_of(hello("job", nonce=nonce)))))
        self.refused(node, node.receive_message(), "token differs from the rendezvous' token")

    def test_nonces_are_not_repeated(self):
        self.start()
        seen = set()
        for _ in range(50):
            node = self.node()
            node.send(hello(nonce="0" * 64))
            seen.add(node.receive_message()["nonce"])
        self.assertEqual(len(seen), 50)

    def test_a_stolen_name_moves_no_member(self):
        self.start()
        member = self.member(pid=7)
        for _ in range(20):
            thief = self.node()
            thief.send(hello("job", nonce="0" * 64) + join(pid=7) + native({"type": "leave"}))
            self.assertEqual(thief.receive_message()["type"], "challenge")
            self.refused(thief, thief.receive_message(), "this is no proof of it")
        other = self.member(pid=8)
        self.assertEqual(member.receive_message()["type"], "prepare_store")
        other.close()

    def test_who_proves_nothing_is_gone_after_a_while_and_has_cost_little(self):
        self.start("--validate-seconds=1")

        def asks(node, more=b""):
            node.send(hello(nonce="0" * 64) + more)
            self.assertEqual(node.receive_message()["type"], "challenge")
        node = self.node_that(asks, 1)
        self.assertTrue(node.is_closed())
        self.assertIn("no proof of the token in time: limit validate_seconds", self.check_log())
        long_proof = native(b'{"type":"prove","proof":"' + b"0" * 20_000 + b'"}')
        node = self.node_that(lambda node: asks(node, long_proof), 1)
        self.assertTrue(node.is_closed())
        self.assertIn("native message is too long", self.check_log())

    def test_a_thousand_strangers_are_a_few_lines(self):
        self.start()
        for _ in range(1_000):
            node = Node(self.musterd.port, first=hello())
            node.close()
        self.member()
        self.assertLess(self.check_log().count("store_connection_closed"), 10)


class WorkersStore(TokenTest):
    """The store of rank 0, in a job of two nodes."""

    WORKER = """
import os, socket, struct, sys, time
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 30)
store.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE) + b"\\x0dPING")
store.sendall(b"\\x12" + struct.pack("<Q", 4) + b"meet" + struct.pack("<q", int(os.environ["WORLD_SIZE"])))
assert store.recv(4, socket.MSG_WAITALL) == b"PING" and store.recv(1) == b"\\0", "refused"
with open(os.environ["TEST_DIR"] + "/master." + os.environ["RANK"] + ".new", "w") as file:
    file.write(os.environ["MASTER_PORT"])
os.rename(file.name, file.name[:-4])
while not os.path.exists(os.environ["TEST_DIR"] + "/finish"):
    time.sleep(0.01)
"""

    def job(self, *options):
        (self.dir / "worker.py").write_text(self.WORKER)
        port = free_port()
        logs = [open(self.dir / f"err.{i}", "wb") for i in range(2)]
        for log in logs:
            self.addCleanup(log.close)
        nodes = [subprocess.Popen(
            [MUSTER, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job",
             f"--rdzv-token-file={self.file}", *options, str(self.dir / "worker.py")], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, "TEST_DIR": str(self.dir)}) for log in logs]
        for node in nodes:
            self.addCleanup(node.wait)
            self.addCleanup(node.kill)

        def output():
            return "\n".join((self.dir / f"err.{i}").read_text() for i in range(2))
        try:
            wait_for(lambda: all((self.dir / f"master.{i}").exists() for i in range(2)), "both workers to meet")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{output()}") from None
        store = int((self.dir / "master.0").read_text())
        for server in (port, store):
            stranger = Client(server, HELLO + request(GET, "k"), address="127.0.0.9")
            self.addCleanup(stranger.close)
            if "any" in options[0]:
                self.assertEqual(stranger.receive_text(), b"")
            else:
                stranger.socket.settimeout(PATIENCE_S)
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(stranger.socket.recv(1), b"")
            asks = Client(server, HELLO + native({"type": "reach", "generation": 1, "group_rank": 0}))
            self.addCleanup(asks.close)
            self.assertIn("give this node --rdzv-token-file FILE", asks.receive_message()["text"])
        (self.dir / "finish").touch()
        self.assertEqual([node.wait(PATIENCE_S) for node in nodes], [0, 0], output())
        self.assertNotIn(TOKEN, output())
        self.assertNotIn("does not know this node's token", output())

    def test_only_members_of_the_run_come_to_its_stores(self):
        self.job("--c10d-allow=members")

    def test_any_is_for_networks_that_are_trusted(self):
        self.job("--c10d-allow=any")

    def test_members_without_a_token_make_no_sense(self):
        done = subprocess.run([MUSTER, "--nnodes=2", "--rdzv-backend=c10d", "--c10d-allow=members", "--no-python", "x"],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("members are known by their token", done.stderr)


class FalseHost(TokenTest):
    def join(self, port, *options):
        done = subprocess.run(
            [MUSTER, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job",
             "--rdzv-conf=is_host=false,read_timeout=20", *options, "--no-python", "/bin/true"],
            capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        return done.stderr

    def host(self, answer):
        host = OtherHost(answer)
        self.addCleanup(host.close)
        return host

    def test_a_host_without_the_token_is_left(self):
        welcome = {"type": "welcome", "protocol_version": 1, "muster_version": "0", "peer_address": "127.0.0.1",
                   "resumes": True}
        for answer in (welcome, {**welcome, "proof": "0" * 64}):
            host = self.host(answer)
            said = self.join(host.port, f"--rdzv-token-file={self.file}")
            self.assertIn("it does not prove that it has this node's token", said)
            self.assertEqual(len(host.hellos[0]["nonce"]), 64)
            self.assertNotIn(TOKEN, json.dumps(host.hellos))

    def test_a_real_musterd_without_the_token_is_left(self):
        self.musterd = Victim(self.dir)
        self.addCleanup(self.musterd.end)
        said = self.join(self.musterd.port, f"--rdzv-token-file={self.file}")
        self.assertIn("it was started without --rdzv-token-file", said)

    def test_a_node_with_another_token_or_none_is_told_so(self):
        self.start()
        other = token_file(self.dir, "another-token-of-32-characters--", "other")
        self.assertIn("token differs from the rendezvous' token", self.join(self.musterd.port, f"--rdzv-token-file={other}"))
        self.assertIn("give this node --rdzv-token-file FILE", self.join(self.musterd.port))

    def test_a_torch_store_is_not_joined(self):
        """As a torch server does it: it closes the connection on the native door's first byte."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    receive(connection, 6)
                    connection.sendall(receive(connection, 4))
                    connection.recv(1)
        threading.Thread(target=serve, daemon=True).start()
        self.assertIn("it is torchrun's, which cannot prove that it has this node's token",
                      self.join(server.getsockname()[1], f"--rdzv-token-file={self.file}"))

    def test_a_host_that_sends_a_challenge_and_nothing_more(self):
        host = self.host({"type": "challenge", "nonce": "0" * 64})
        said = self.join(host.port, f"--rdzv-token-file={self.file}")
        self.assertIn("it does not answer hello", said)
        self.assertEqual([message["type"] for message in host.hellos[:2]], ["hello", "prove"])


if __name__ == "__main__":
    main()
