#!/usr/bin/env python3
"""Tests musterds and agents with a real etcd that uses TLS and requires client certificates. A
client that is refused must report the reason."""
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

from etcd_cluster import EtcdCluster, have_etcd
from etcd_test import LEASE_S, SharedTest
from nodes import NodesTest
from support import MUSTER, PATIENCE_S, main, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from certificates import Authority

HOST_OF_NO_NAME = "127.0.0.2"  # etcd's certificate does not contain this address.
PASSWORD = "correct horse: battery"


class TlsCluster:
    """One member, and the certificates: "server" is etcd's, "node" is a client's."""

    def __init__(self, client_certificates=True):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-etcd-tls-"))
        authority = Authority(self.dir)
        authority.issue("server")
        authority.issue("node", "DNS:node")
        authority.issue_expired("expired")
        Authority(self.dir, "other")
        self.etcd = EtcdCluster(1, authority=authority, client_certificates=client_certificates,
                                hosts=("127.0.0.1", HOST_OF_NO_NAME))

    def close(self):
        self.etcd.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class TlsTest(NodesTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = TlsCluster()
        cls.etcd = cls.cluster.etcd

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def file(self, name):
        return self.cluster.dir / name

    def musterd_tls(self, ca="ca", certificate="node"):
        own = [f"--state-cert={self.file(f'{certificate}.pem')}", f"--state-key={self.file(f'{certificate}.key')}"]
        return [f"--state-ca={self.file(ca + '.pem')}", *(own if certificate else [])]

    def conf_tls(self, ca="ca", certificate="node"):
        own = f",cert={self.file(f'{certificate}.pem')},key={self.file(f'{certificate}.key')}"
        return f"protocol=https,cacert={self.file(ca + '.pem')}" + (own if certificate else "")


class Musterds(TlsTest, SharedTest):
    user = ""

    def address(self):
        return f"etcd://{self.user}localhost:{self.etcd.clients[0]}{self.prefix}"

    def musterd(self, name, *options, env=None, tls=None):
        return super().musterd(name, *(self.musterd_tls() if tls is None else tls), *options, env=env)

    def refused(self, text, tls, **more):
        """Checks that a musterd prints this text and ends when it gets a signal."""
        process = self.musterd("x", tls=tls, **more)
        self.musterd_says("x", text)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        self.assertNotIn("listening on", self.read("err.musterd.x"))


class Runs(Musterds):
    def test_a_run_survives_its_leader(self):
        self.job()
        self.fails_once(2, 1)
        self.musterds["x"].kill()
        self.musterd_says("y", "runs_restored runs=1")
        self.nodes_are_back()
        self.musterd("x")
        self.musterd_says("x", "leads")
        self.musterds["y"].kill()
        self.musterd_says("x", "runs_restored runs=1")
        self.nodes_are_back(2)
        self.fails_once(4, 2)
        self.finishes()

    def test_the_variables_of_etcds_own_tools(self):
        self.musterd("x", tls=[], env={"ETCDCTL_CACERT": str(self.file("ca.pem")),
                                       "ETCDCTL_CERT": str(self.file("node.pem")),
                                       "ETCDCTL_KEY": str(self.file("node.key"))})
        self.musterd_says("x", "listening on")

    def test_a_certificate_that_was_renewed_is_used_from_a_signal_on(self):
        for end in (".pem", ".key"):
            shutil.copy(self.file("expired" + end), self.dir / ("own" + end))
        process = self.musterd("x", tls=[f"--state-ca={self.file('ca.pem')}", f"--state-cert={self.dir}/own.pem",
                                         f"--state-key={self.dir}/own.key"])
        self.musterd_says("x", "standing_by")
        for end in (".pem", ".key"):
            shutil.copy(self.file("node" + end), self.dir / ("own" + end))
        process.send_signal(signal.SIGHUP)
        self.musterd_says("x", "tls_reloaded")
        self.musterd_says("x", "listening on")


class Strangers(Musterds):
    def test_another_ca(self):
        self.refused(f"etcd member localhost:{self.etcd.clients[0]}: TLS: its certificate is not signed by "
                     "this side's CA", self.musterd_tls(ca="other"))

    def test_no_client_certificate(self):
        self.refused("TLS: it has got no certificate of this side", self.musterd_tls(certificate=None))

    def test_an_expired_client_certificate(self):
        self.refused("TLS: it has got no certificate of this side, or does not accept it: it may have expired", self.musterd_tls(certificate="expired"))

    def test_a_certificate_for_another_host(self):
        self.address = lambda: f"etcd://{HOST_OF_NO_NAME}:{self.etcd.clients[0]}{self.prefix}"
        self.refused(f"TLS: its certificate is not for {HOST_OF_NO_NAME}", self.musterd_tls())

    def test_a_musterd_without_tls(self):
        self.refused("if it speaks TLS, the CA of its certificate must be given", [])


class Impostors(Musterds):
    """The server is not etcd but a server of the test."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = TlsCluster.__new__(TlsCluster)
        cls.cluster.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-etcd-tls-"))
        authority = Authority(cls.cluster.dir)
        authority.issue("node", "DNS:node")
        authority.issue_expired("expired")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cluster.dir, ignore_errors=True)

    def serve(self, answer):
        """Starts a server that calls `answer` with each connection."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def loop():
            while True:
                try:
                    answer(listener.accept()[0])
                except ssl.SSLError:
                    pass
                except OSError:
                    return
        threading.Thread(target=loop, daemon=True).start()
        self.address = lambda: f"etcd://127.0.0.1:{listener.getsockname()[1]}{self.prefix}"

    def test_an_expired_certificate(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file("expired.pem"), self.file("expired.key"))

        def answer(connection):
            connection.settimeout(PATIENCE_S)
            with connection, context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)
        self.serve(answer)
        self.refused("TLS: its certificate, or that of its CA, has expired", self.musterd_tls())

    def test_silence(self):
        kept = []
        self.addCleanup(lambda: [connection.close() for connection in kept])
        self.serve(kept.append)
        self.refused("etcd cannot be asked who leads: etcd member 127.0.0.1:", self.musterd_tls())

    def test_no_tls(self):
        def answer(connection):
            with connection:
                connection.settimeout(PATIENCE_S)
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.serve(answer)
        self.refused("what it sends is no TLS 1.3 handshake", self.musterd_tls())


class Users(Musterds):
    """etcd requires a password instead of a certificate."""
    user = "jobs@"

    @classmethod
    def setUpClass(cls):
        cls.cluster = TlsCluster(client_certificates=False)
        cls.etcd = cls.cluster.etcd
        cls.etcd.ask_for_passwords("jobs", PASSWORD, "/test/")

    def test_a_musterd_logs_in(self):
        self.musterd("x", tls=self.musterd_tls(certificate=None), env={"ETCDCTL_PASSWORD": PASSWORD})
        self.musterd_says("x", "listening on")
        self.assertIn(f"{self.prefix}/leader", self.etcd.keys("/test/"))


class AgentsTest(TlsTest):
    backend = "etcd"

    def endpoint(self):
        return f"localhost:{self.etcd.clients[0]}"

    def node(self, tag, nnodes, *extra, **more):
        conf = f"--rdzv-conf=etcd_prefix=/agents,host_lease={LEASE_S},last_call_timeout=3,{self.conf_tls()}"
        return super().node(tag, nnodes, conf, "--max-restarts=3", *extra, env={"LOGLEVEL": "INFO"}, **more)


class Agents(AgentsTest):
    def test_a_job_whose_host_is_killed(self):
        self.node("a", "1:2")
        wait_for(lambda: "rendezvous_hosted" in self.read("err.a"), "a to host")
        self.node("b", "1:2")
        self.round_of(2)
        self.kill("a")
        self.assertEqual(len(self.round_of(1, after=2)), 1)
        self.assertIn("rendezvous_hosted", self.read("err.b"))
        self.tell("finish")
        self.ends(b=0)

    def ends_with(self, text, conf, backend="etcd"):
        done = subprocess.run(
            [MUSTER, "--nnodes=2", f"--rdzv-backend={backend}", "--rdzv-id=w", f"--rdzv-endpoint={self.endpoint()}",
             f"--rdzv-conf=etcd_prefix=/agents,{conf}", "--no-python", "true"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=self.environment())
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(text, done.stderr)

    def test_an_agent_that_is_refused_ends_at_once(self):
        self.ends_with("TLS: its certificate is not signed by this side's CA", self.conf_tls(ca="other"))
        self.ends_with("TLS: it has got no certificate of this side", self.conf_tls(certificate=None))
        self.ends_with("TLS: it has got no certificate of this side, or does not accept it: it may have expired", self.conf_tls(certificate="expired"))

    def test_files_that_cannot_be_used(self):
        self.ends_with("without the CA", "protocol=https")
        self.ends_with("the CA file /none: No such file", "protocol=https,cacert=/none")
        self.ends_with("the CA file /none: No such file", "protocol=https,ca_cert=/none", backend="etcd-v2")


class Renewed(AgentsTest):
    """etcd's certificate, the CA and the nodes' certificate are renewed while a job runs."""

    def test_agents_read_their_files_again(self):
        self.node("a", "1:2")
        wait_for(lambda: "rendezvous_hosted" in self.read("err.a"), "a to host")
        self.node("b", "1:2")
        self.round_of(2)
        self.etcd.kill(0)
        authority = Authority(self.cluster.dir)
        authority.issue("server")
        authority.issue("node", "DNS:node")
        self.etcd.trust(authority)
        self.etcd.start(0)
        self.etcd.wait_healthy()
        self.kill("a")
        wait_for(lambda: "rendezvous_hosted" in self.read("err.b"), "b to host")
        self.assertEqual(len(self.round_of(1, after=2)), 1)
        self.tell("finish")
        self.ends(b=0)


if __name__ == "__main__":
    if not have_etcd():
        print("skipped: etcd is not installed (Debian: etcd-server)")
        sys.exit(77)
    main()
