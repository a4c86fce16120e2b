#!/usr/bin/env python3
"""Tests TLS between muster nodes, musterctl, browsers and musterd: which clients are accepted, and
which errors the others get."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from mixed import MusterdTest
from musterd import MUSTERD
from native_peer import Passage
from nodes import NodesTest
from support import PATIENCE_S, main, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from certificates import Authority

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
TOKEN = "canary-token-0123456789abcdefghijklmnop"


class TlsTest(MusterdTest):
    client_certificates = False
    with_token = False
    more = []

    def setUp(self):
        self.authority = None
        super().setUp()

    def start_musterd(self):
        if self.authority is None:
            self.authority = Authority(self.dir)
            self.authority.issue("server")
            self.authority.issue("node", "DNS:node")
        self.token_options = []
        if self.with_token:
            (self.dir / "token").write_text(TOKEN)
            (self.dir / "token").chmod(0o600)
            self.token_options = [f"--rdzv-token-file={self.dir}/token"]
        ca = [f"--tls-ca={self.dir}/ca.pem"] if self.client_certificates else []
        self.musterd_options = [f"--tls-cert={self.dir}/server.pem", f"--tls-key={self.dir}/server.key", *ca,
                                "--http=127.0.0.1:0", *self.token_options, *self.more]
        super().start_musterd()
        wait_for(lambda: "HTTP at" in self.log(), "HTTP")
        self.http_port = int(re.search(r"HTTP at https://127\.0\.0\.1:(\d+)/", self.log())[1])

    def log(self):
        return self.read(f"err.musterd{self.musterds}")

    def arguments(self, tag, nnodes, extra):
        """Every node knows the CA, unless the test gives it another one or none."""
        tls = [f"--rdzv-tls-ca={self.dir}/ca.pem"]
        if self.client_certificates:
            tls += self.certificate()
        if any(word.startswith("--rdzv-tls-ca") for word in extra) or tag == "plain":
            tls = []
        return super().arguments(tag, nnodes, [*tls, *self.token_options, *extra])

    def certificate(self, name="node"):
        return [f"--rdzv-tls-cert={self.dir}/{name}.pem", f"--rdzv-tls-key={self.dir}/{name}.key"]

    def fails(self, tag, text):
        self.ends(**{tag: 1})
        self.assertIn(text, self.read(f"err.{tag}"))

    def context(self, **more):
        context = ssl.create_default_context(cafile=str(self.dir / "ca.pem"), **more)
        if self.client_certificates:
            context.load_cert_chain(self.dir / "node.pem", self.dir / "node.key")
        return context

    def ask(self, target, headers=None, context=None):
        """Status and text, by HTTPS."""
        line = http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S,
                                           context=context or self.context())
        try:
            line.request("GET", target, headers=headers or {})
            answer = line.getresponse()
            return answer.status, answer.read().decode()
        finally:
            line.close()

    def ctl(self, *words, expect=0, tls=True):
        named = {"MUSTER_TLS_CA": str(self.dir / "ca.pem")} if tls else {}
        if tls and self.client_certificates:
            named |= {"MUSTER_TLS_CERT": str(self.dir / "node.pem"), "MUSTER_TLS_KEY": str(self.dir / "node.key")}
        done = subprocess.run([MUSTERCTL, *words, *self.token_options], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False,
                              env=self.environment(MUSTER_ENDPOINT=f"localhost:{self.http_port}", **named))
        self.assertEqual(done.returncode, expect, f"{words}\n{done.stdout}\n{done.stderr}\n{self.all_output()}")
        return done.stdout + done.stderr


class Nodes(TlsTest):
    def test_a_job_that_restarts_and_ends(self):
        self.a_job_that_restarts()

    def test_a_node_with_another_ca_does_not_go_in(self):
        Authority(self.dir, "other")
        self.node("a", 2, f"--rdzv-tls-ca={self.dir}/other.pem")
        self.fails("a", "TLS: its certificate is not signed by this side's CA")
        wait_for(lambda: "tls_failed peer=127.0.0.1" in self.log(), "a line in musterd's log")

    def test_a_node_without_tls_is_told_what_it_lacks(self):
        self.node("plain", 2)
        self.fails("plain", "it speaks TLS with nodes: give this node --rdzv-tls-ca FILE")

    def test_a_proxy_that_has_no_server_yet_is_tried_again(self):
        """As `ssh -L` and most load balancers: it accepts connections, and closes them until musterd is there."""
        proxy = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(proxy.close)

        def serve():
            with contextlib.suppress(OSError):  # The test is over.
                for _ in range(4):
                    proxy.accept()[0].close()
                while True:
                    client = proxy.accept()[0]
                    server = socket.create_connection(("127.0.0.1", self.port))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=copy, args=pair, daemon=True).start()

        def copy(source, target):
            with contextlib.suppress(OSError):
                while part := source.recv(1 << 16):
                    target.sendall(part)
                target.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        self.node("a", 1, f"--rdzv-endpoint=127.0.0.1:{proxy.getsockname()[1]}")
        self.round_of(1)
        self.tell("finish")
        self.ends(a=0)

    def test_a_host_without_tls_is_left_and_gets_nothing(self):
        self.stop_musterd()
        self.musterd_options = []
        MusterdTest.start_musterd(self)
        self.node("a", 2)
        self.fails("a", "Does it speak TLS (musterd --tls-cert)?")

    def test_a_certificate_for_another_name_is_refused(self):
        self.stop_musterd()
        self.authority.issue("server", "DNS:elsewhere.example.org")
        self.start_musterd()
        self.node("a", 2)
        self.fails("a", "its certificate is not for 127.0.0.1")

    def test_a_certificate_that_has_expired_is_refused(self):
        self.stop_musterd()
        self.authority.issue_expired("server")
        self.start_musterd()
        self.node("a", 2)
        self.fails("a", "has expired")

    def test_sighup_reads_the_certificate_again(self):
        self.node("a", 2)
        wait_for(lambda: '"nodes":1' in self.ask("/api/v1/runs")[1].replace(" ", ""), "the node")
        before = self.serial()
        good = (self.dir / "server.pem").read_text(), (self.dir / "server.key").read_text()
        (self.dir / "server.key").write_text("no key")
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: "tls_not_reloaded reason=" in self.log(), "a refusal of the key")
        self.assertEqual(self.serial(), before)
        for path, text in zip(("server.pem", "server.key"), good):
            (self.dir / path).write_text(text)
        self.authority.issue("server")
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: "tls_reloaded" in self.log(), "the reload")
        self.assertNotEqual(self.serial(), before)
        self.assertNotIn("config_not_reloaded", self.log())
        self.node("b", 2)  # The node from before still waits for this one.
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_reload_with_a_wrong_file_changes_no_certificate(self):
        self.stop_musterd()
        path = self.dir / "musterd.json"
        path.write_text("{}")
        self.more = [f"--config={path}"]
        self.start_musterd()
        before = self.serial()
        self.authority.issue("server")
        path.write_text("{")
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: "config_not_reloaded" in self.log(), "the refusal")
        self.assertEqual(self.serial(), before)
        path.write_text("{}")
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: "tls_reloaded" in self.log(), "the reload")
        self.assertNotEqual(self.serial(), before)

    def serial(self):
        """The serial number of the certificate that new connections get."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as plain:
            with self.context().wrap_socket(plain, server_hostname="localhost") as line:
                self.assertEqual(line.version(), "TLSv1.3")
                return line.getpeercert()["serialNumber"]

    def test_older_tls_is_refused(self):
        context = self.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.assertRaises(ssl.SSLError), socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as plain:
            context.wrap_socket(plain, server_hostname="localhost")


class SlowPassage(Passage):
    """Passes what a server sends first on in pieces, once it is told to: a server that is busy with other handshakes."""
    PIECES, PAUSE_S = 6, 0.5

    def __init__(self, port):
        self.is_slow = False
        self.slow_s = []  # How long each connection got pieces, also one that the node gave up.
        super().__init__(port)

    def _pass_back(self, server, connection):
        with contextlib.suppress(OSError):
            if self.is_slow and (data := server.recv(65536)):
                begun, size = time.monotonic(), -(-len(data) // self.PIECES)
                try:
                    for at in range(0, len(data), size):
                        connection.sendall(data[at:at + size])
                        time.sleep(self.PAUSE_S)
                finally:
                    self.slow_s.append(time.monotonic() - begun)
        super()._pass_back(server, connection)


class Herd(TlsTest):
    def setUp(self):
        self.more = [f"--state-dir={tempfile.mkdtemp(prefix='muster-e2e-')}"]
        self.addCleanup(shutil.rmtree, self.more[0].partition("=")[2])
        super().setUp()

    def test_a_try_that_makes_progress_is_not_given_up(self):
        """After a restart of musterd each handshake takes longer than the two seconds that a try without progress has."""
        passage = SlowPassage(self.port)
        self.addCleanup(passage.close)
        nodes = "abcd"
        for tag in nodes:
            self.node(tag, len(nodes), f"--rdzv-endpoint=127.0.0.1:{passage.port}")
        self.round_of(len(nodes))
        self.stop_musterd()
        passage.is_slow = True
        passage.cut()
        self.start_musterd()
        wait_for(lambda: "round_resumed" in self.log(), "the round")
        self.tell("finish")
        self.ends(**{tag: 0 for tag in nodes})
        self.assertNotIn("round_complete", self.log())  # No node was lost, and no worker began again.
        if max(passage.slow_s) < 3.5:  # This machine did not hold the passage up.
            self.assertEqual(len(passage.slow_s), len(nodes), "each node needs one try")
        print(f"the handshakes took {[round(one, 1) for one in passage.slow_s]} s")


class Http(TlsTest):
    def test_the_page_and_the_api_are_https(self):
        self.assertEqual(self.ask("/")[0], 200)
        self.assertEqual(self.ask("/api/v1/runs")[0], 200)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.ask("/", context=ssl.create_default_context())

    def test_a_plain_client_learns_only_that_musterd_lives(self):
        def plain(target):
            line = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
            self.addCleanup(line.close)
            line.request("GET", target)
            answer = line.getresponse()
            return answer.status, answer.read().decode()
        for target in ("/", "/api/v1/runs", "/metrics", "/login?secret=" + "0" * 64):
            status, text = plain(target)
            self.assertEqual(status, 400, target)
            self.assertIn("https://", json.loads(text)["error"]["message"])
        self.assertEqual(plain("/healthz")[0], 200)

    def test_musterctl(self):
        self.node("a", 2)
        wait_for(lambda: "gathering" in self.ctl("runs"), "the run")
        self.assertIn("gathering", self.ctl("status", "job", f"--endpoint=https://127.0.0.1:{self.http_port}"))
        self.assertIn("speaks HTTPS", self.ctl("runs", expect=1, tls=False))
        self.assertIn("--tls-ca", self.ctl("runs", "--endpoint=https://localhost:1", expect=2, tls=False))
        Authority(self.dir, "other")
        self.assertIn("TLS: its certificate is not signed", self.ctl("runs", f"--tls-ca={self.dir}/other.pem", expect=3))
        # As muster spells the option.
        self.assertIn("TLS: its certificate is not signed", self.ctl("runs", f"--rdzv-tls-ca={self.dir}/other.pem", expect=3))
        self.ctl("runs", f"--rdzv-tls-ca={self.dir}/ca.pem", tls=False)
        self.assertIn("it has ended", self.ctl("stop", "job"))
        self.assertNotEqual(self.nodes["a"].wait(PATIENCE_S), 0)


class ClientCertificates(TlsTest):
    client_certificates = True

    def test_a_job_of_nodes_that_have_one(self):
        self.a_job_that_restarts()
        self.assertIn("tls=client-certificates c10d_allow=members", self.log())

    def test_nodes_read_files_again_that_were_renewed_meanwhile(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=1")
        self.round_of(2)
        self.stop_musterd()
        self.authority = None  # Another CA, another certificate of the server, others of the nodes.
        self.start_musterd()
        wait_for(lambda: "round_resumed run=job" in self.log(), "the round to be resumed")
        self.tell("exit.b", "4")
        self.round_of(2, after=2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_node_without_one_is_told_so(self):
        self.node("a", 2, f"--rdzv-tls-ca={self.dir}/ca.pem")
        self.fails("a", "it asks for a certificate of this side, which was started without one")
        wait_for(lambda: 'reason="it shows no certificate, and must have one"' in self.log(), "musterd's log")

    def test_a_node_with_a_strangers_is_told_so(self):
        Authority(self.dir, "stranger").issue("strange")
        self.node("a", 2, f"--rdzv-tls-ca={self.dir}/ca.pem", *self.certificate("strange"))
        self.fails("a", "it does not accept this side's certificate")

    def test_http_and_musterctl_need_one_too(self):
        self.assertEqual(self.ask("/api/v1/runs")[0], 200)
        with self.assertRaises((ssl.SSLError, OSError)):
            self.ask("/api/v1/runs", context=ssl.create_default_context(cafile=str(self.dir / "ca.pem")))
        self.ctl("runs")
        self.assertIn("it asks for a certificate",
                      self.ctl("runs", f"--tls-ca={self.dir}/ca.pem", expect=3, tls=False))


class WithToken(TlsTest):
    with_token = True

    def test_a_job_with_both(self):
        self.a_job_that_restarts()

    def test_the_token_is_asked_for_within_tls(self):
        (self.dir / "another").write_text("x" * 40)
        (self.dir / "another").chmod(0o600)
        self.token_options = [f"--rdzv-token-file={self.dir}/another"]
        self.node("a", 2)
        self.fails("a", "token")

    def test_the_browsers_cookie_is_for_https_only(self):
        link = re.search(r"https://localhost:\d+(/login\S+)", self.ctl("open"))[1]
        line = http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S, context=self.context())
        self.addCleanup(line.close)
        line.request("GET", link)
        answer = line.getresponse()
        self.assertEqual(answer.status, 303, answer.read())
        self.assertIn("; Secure", answer.getheader("Set-Cookie"))


class HostedByANode(NodesTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.dir)
        self.authority.issue("node")

    def tls(self, certificate=True):
        own = [f"--rdzv-tls-cert={self.dir}/node.pem", f"--rdzv-tls-key={self.dir}/node.key"]
        return [f"--rdzv-tls-ca={self.dir}/ca.pem", *(own if certificate else [])]

    def test_nodes_with_certificates_need_no_musterd(self):
        for tag in "ab":
            self.node(tag, 2, *self.tls())
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_node_without_one_cannot_be_the_host(self):
        self.node("a", 2, *self.tls(certificate=False), "--rdzv-conf=is_host=true")
        self.ends(a=1)
        self.assertIn("TLS needs --rdzv-tls-cert and --rdzv-tls-key for that", self.read("err.a"))


class Files(NodesTest):
    def refused(self, text, *options, code=1):
        done = subprocess.run([MUSTERD, "--port=0", *options], capture_output=True, text=True, timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)

    def test_files_that_are_no_good_are_refused_with_advice(self):
        Authority(self.dir).issue("server")
        cert, key = f"--tls-cert={self.dir}/server.pem", f"--tls-key={self.dir}/server.key"
        self.refused("a certificate needs its key", cert, code=2)
        self.refused("give --tls-cert and --tls-key", f"--tls-ca={self.dir}/ca.pem", code=2)
        self.refused("FILE missing", cert, "--tls-key=", code=2)
        self.refused("No such file", cert, f"--tls-key={self.dir}/missing")
        self.refused("not the key of", f"--tls-cert={self.dir}/ca.pem", key)
        (self.dir / "server.key").chmod(0o644)
        self.refused("every user of this machine may read it", cert, key)

    def test_nodes_refuse_incomplete_options_of_tls(self):
        Authority(self.dir).issue("node")
        for options, text in (
                ([f"--rdzv-tls-cert={self.dir}/node.pem"], "a certificate needs its key"),
                ([f"--rdzv-tls-cert={self.dir}/node.pem", f"--rdzv-tls-key={self.dir}/node.key"],
                 "give --rdzv-tls-ca, too"),
                ([f"--rdzv-tls-ca={self.dir}/missing"], "the CA file"),
                (["--rdzv-tls-ca="], "--rdzv-tls-ca is empty")):
            tag = str(len(self.nodes))
            self.node(tag, 2, *options)
            self.assertEqual(self.nodes[tag].wait(PATIENCE_S), 1)
            self.assertIn(text, self.read(f"err.{tag}"))
        self.node("static", 2, f"--rdzv-tls-ca={self.dir}/ca.pem", "--rdzv-backend=static")
        self.ends(static=1)
        self.assertIn("cannot protect the static backend", self.read("err.static"))

    def test_libssl_is_loaded_only_where_there_is_tls(self):
        Authority(self.dir)
        def loads(*options):
            self.run_muster("--dry-run", "--nnodes=1", "--rdzv-backend=c10d", *options, "--no-python", "/bin/true",
                            env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(self.dir / "loaded")}, expect=0)
            text = "".join(path.read_text() for path in self.dir.glob("loaded.*"))
            for path in self.dir.glob("loaded.*"):
                path.unlink()
            return "libssl" in text
        self.assertFalse(loads())
        self.assertTrue(loads(f"--rdzv-tls-ca={self.dir}/ca.pem"))


class DoctorOfNodes(TlsTest):
    client_certificates = True

    def test_nodes_of_the_doctor_meet_by_tls(self):
        words = [MUSTERCTL, "doctor", "--nodes=2", "--no-torch", "--json", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                 f"--tls-ca={self.dir}/ca.pem", f"--tls-cert={self.dir}/node.pem", f"--tls-key={self.dir}/node.key"]
        nodes = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=self.environment()) for _ in range(2)]
        for node in nodes:
            self.addCleanup(node.wait)
            self.addCleanup(node.kill)
        for node in nodes:
            out, err = node.communicate(timeout=PATIENCE_S)
            self.assertEqual(node.returncode, 0, out + err)
            self.assertEqual(len(json.loads(out)["peers"]), 1)


if __name__ == "__main__":
    sys.exit(main())
