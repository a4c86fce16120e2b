#!/usr/bin/env python3
"""Tests musterd --tls-allow: which certificates may join, see and change which runs."""
import http.client
import json
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

from native_peer import NATIVE, OtherNode, frame, receive_message
from nodes import NodesTest
from support import PATIENCE_S, main, wait_for
from musterd import MUSTERD
from tls_test import TOKEN, TlsTest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from certificates import HERE, Authority, any_names

GET = b"\x03"
NOT_YOURS = "is not for this client: its certificate has"


class SecureNode(OtherNode):
    """A node's connection with TLS."""

    def __init__(self, port, context, address="127.0.0.1"):
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0))
        self.connection = context.wrap_socket(plain, server_hostname="localhost")
        self.greet()

    def hello(self, run):
        """The answer to a hello."""
        return self.tell({"type": "hello", "protocol_version": 1, "muster_version": "0", "run_id": run,
                          "resumes": True}).next()


class AllowTest(TlsTest):
    client_certificates = True
    rules = ["job=node", "team-b-*=b.example.org", "*=ops"]

    def start_musterd(self):
        self.more = [f"--tls-allow={rule}" for rule in self.rules]
        super().start_musterd()

    def has(self, name, alternative_names=None):
        """Creates a certificate with this name."""
        self.authority.issue(name, alternative_names or "DNS:" + name)
        return name

    def context_of(self, name):
        context = super().context()
        context.load_cert_chain(self.dir / f"{name}.pem", self.dir / f"{name}.key")
        return context

    def answer(self, name, run):
        """musterd's refusal of a node's hello with this certificate; None if the node may join."""
        node = SecureNode(self.port, self.context_of(name))
        try:
            said = node.hello(run)
            if said["type"] == "welcome":
                return None
            self.assertEqual(said["type"], "refused", said)
            self.assertTrue(node.is_closed())
            return said["text"]
        finally:
            node.close()

    def in_run(self, run, name="node"):
        """The options of a node of this run with this certificate. Of a repeated option the last
        one counts."""
        return [f"--rdzv-id={run}", f"--rdzv-tls-ca={self.dir}/ca.pem", *self.certificate(name)]

    def request(self, name, method, target, headers=None):
        """Status and JSON."""
        line = http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S,
                                           context=self.context_of(name))
        try:
            line.request(method, target, headers=headers or {})
            answer = line.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
        finally:
            line.close()

    def runs_of(self, name):
        status, answer = self.request(name, "GET", "/api/v1/runs")
        self.assertEqual(status, 200)
        self.assertEqual(answer["total"], len(answer["runs"]))
        return [run["id"] for run in answer["runs"]]


class Nodes(AllowTest):
    def test_a_job_runs_whose_certificate_may_join_it_and_another_run_is_refused(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.node("c", 1, *self.in_run("team-b-1"))
        self.fails("c", "run team-b-1 is not for this client: its certificate has the DNS names node, and the host lets "
                        "none of them into this run (--tls-allow)")
        self.assertIn("run team-b-1 is not for this client", self.log())
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_names_are_matched_whole_and_not_by_what_they_look_like(self):
        self.has("b", "DNS:other,DNS:B.Example.org")
        self.has("wide", "DNS:*.example.org")
        self.has("zero", any_names(b"node\0.evil.org"))
        self.has("longer", "DNS:node2,DNS:anode,DNS:node.evil.org,URI:node,email:node@evil.org")
        self.authority.issue_nameless("common", "node")
        self.has("ops")
        for name, run, text in (
                ("node", "job", None), ("node", "job2", NOT_YOURS), ("node", "jo", NOT_YOURS),
                ("node", "team-b-1", "the DNS names node, and"),
                ("b", "team-b-1", None), ("b", "team-b-", None), ("b", "team-b", NOT_YOURS), ("b", "job", NOT_YOURS),
                ("wide", "team-b-1", "the DNS names *.example.org, and"),
                ("zero", "job", "has no DNS names"), ("common", "job", "has no DNS names"),
                ("longer", "job", "the DNS names node2, anode, node.evil.org, and"),
                ("ops", "job", None), ("ops", "anything", None)):
            with self.subTest(certificate=name, run=run):
                answer = self.answer(name, run)
                if text is None:
                    self.assertIsNone(answer)
                else:
                    self.assertIn(text, answer or "")

    def test_refusals_are_few_lines_and_leave_nothing(self):
        begin = time.monotonic()
        for _ in range(20):
            self.assertIn(NOT_YOURS, self.answer("node", "team-b-1"))
        took = time.monotonic() - begin
        lines = self.log().count("run team-b-1 is not for this client")
        self.assertGreaterEqual(lines, 1)
        self.assertLessEqual(lines, 1 + took / 10, self.log())
        self.has("ops")
        self.assertEqual(self.runs_of("ops"), [])

    def test_a_refused_node_may_not_try_another_way(self):
        """On a refused connection, neither the next message nor a second hello is served."""
        node = SecureNode(self.port, self.context_of("node"))
        self.addCleanup(node.close)
        refused = {"type": "hello", "protocol_version": 1, "muster_version": "0", "run_id": "team-b-1"}
        node.connection.sendall(NATIVE + frame(refused) + NATIVE + frame({**refused, "run_id": "job"}))
        self.assertEqual(receive_message(node.connection)["type"], "refused")
        self.assertTrue(node.is_closed())


class WithToken(AllowTest):
    with_token = True

    def test_the_token_alone_opens_no_run(self):
        self.node("a", 1, *self.in_run("team-b-1"))
        self.fails("a", "run team-b-1 is not for this client")
        self.assertNotIn(TOKEN, self.log())


class TorchsDoor(AllowTest):
    """PyTorch's own protocol, whose clients show no certificate: they must have the address of a
    member."""

    def hello(self, run, address):
        """The type of the answer to a node at this address."""
        node = SecureNode(self.port, self.context_of("node"), address)
        self.addCleanup(node.close)
        return node.hello(run)["type"]

    def may_read(self, run, address, context=None):
        """Whether a client at this address gets the state of the run, by plain TCP or by TLS."""
        node = SecureNode(self.port, context, address) if context else OtherNode(self.port, address)
        self.addCleanup(node.close)
        key = b"/torch.rendezvous." + run.encode()
        node.connection.sendall(GET + struct.pack("<Q", len(key)) + key)
        return not node.is_closed()

    def test_a_machine_comes_to_the_runs_that_its_nodes_have_joined_only(self):
        self.assertEqual(self.hello("job", "127.0.0.6"), "welcome")
        self.assertTrue(self.may_read("job", "127.0.0.6"))
        self.assertFalse(self.may_read("team-b-1", "127.0.0.6"))
        self.assertFalse(self.may_read("job", "127.0.0.7"))

    def test_a_node_that_is_refused_makes_no_member_of_its_machine(self):
        self.assertEqual(self.hello("job", "127.0.0.6"), "welcome")
        self.assertEqual(self.hello("team-b-1", "127.0.0.7"), "refused")
        for run in ("job", "team-b-1"):
            self.assertFalse(self.may_read(run, "127.0.0.7"))
            self.assertFalse(self.may_read(run, "127.0.0.7", self.context_of("node")))


class Reload(AllowTest):
    def config(self, *rules):
        new = self.dir / "musterd.json.new"
        new.write_text(json.dumps({"tls-allow": list(rules)} if rules else {}))
        new.rename(self.dir / "musterd.json")

    def start_musterd(self):
        self.config("job=node")
        self.rules = []
        self.more = [f"--config={self.dir}/musterd.json"]
        TlsTest.start_musterd(self)

    def reload(self, *rules):
        """The line of the log about the reload."""
        self.config(*rules)
        before = len(self.log())
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: any(f"config_{word}" in self.log()[before:] for word in ("reloaded", "not_reloaded")),
                 "the reload")
        return self.log()[before:]

    def test_sighup_reads_the_rules_again(self):
        staying = SecureNode(self.port, self.context_of("node"))
        self.addCleanup(staying.close)
        self.assertEqual(staying.hello("job")["type"], "welcome")
        self.assertIn(NOT_YOURS, self.answer("node", "next"))
        self.assertEqual(self.runs_of("node"), ["job"])
        self.assertIn("config_changed key=tls-allow", self.reload("next=node", "job=other"))
        self.assertIsNone(self.answer("node", "next"))
        self.assertIn(NOT_YOURS, self.answer("node", "job"))
        self.assertEqual(self.request("node", "GET", "/api/v1/runs/job")[0], 403)
        # A node that has joined stays.
        self.assertEqual(staying.tell({"type": "keep_alive"}).next()["type"], "alive")

    def test_a_file_with_an_error_changes_nothing(self):
        self.assertIn('is no DNS name', self.reload("job=node", "next=no de"))
        self.assertIn(NOT_YOURS, self.answer("node", "next"))
        self.assertIsNone(self.answer("node", "job"))

    def test_the_first_rule_and_the_last_one_can_come_with_a_reload(self):
        self.reload()
        self.assertIsNone(self.answer("node", "anything"))
        self.reload("job=other")
        self.assertIn(NOT_YOURS, self.answer("node", "job"))


class Http(AllowTest):
    def setUp(self):
        super().setUp()
        self.has("b", "DNS:b.example.org")
        self.has("ops")
        self.has("nobody")
        for name, run in (("node", "job"), ("b", "team-b-1"), ("b", "team-b-2")):
            node = SecureNode(self.port, self.context_of(name))
            self.addCleanup(node.close)
            self.assertEqual(node.hello(run)["type"], "welcome")

    def test_the_list_has_only_the_runs_that_the_certificate_may_join(self):
        self.assertEqual(self.runs_of("node"), ["job"])
        self.assertEqual(self.runs_of("b"), ["team-b-1", "team-b-2"])
        self.assertEqual(self.runs_of("ops"), ["job", "team-b-1", "team-b-2"])
        self.assertEqual(self.runs_of("nobody"), [])
        second = self.request("b", "GET", "/api/v1/runs?offset=1&limit=5")[1]
        self.assertEqual(([run["id"] for run in second["runs"]], second["total"]), (["team-b-2"], 2))

    def test_another_run_is_neither_seen_nor_changed(self):
        operator = {"X-Muster-Action": "1"}
        begin = time.monotonic()
        for method, what in (("GET", ""), ("GET", "/nodes"), ("GET", "/steps"), ("GET", "/events"), ("GET", "/ranks/0/log"),
                             ("POST", "/ranks/0/stacks"), ("POST", "/restart"), ("POST", "/stop"),
                             ("POST", "/nodes/node/drain"), ("POST", "/nodes/node/exclude"),
                             ("POST", "/nodes/node/allow")):
            # The answer does not show whether the run exists.
            for run in ("team-b-1", "not-there"):
                with self.subTest(method=method, what=what, run=run):
                    status, answer = self.request("node", method, f"/api/v1/runs/{run}{what}", operator)
                    self.assertEqual(status, 403, answer)
                    self.assertEqual(answer["error"]["code"], "run_not_allowed")
                    self.assertIn(f"run {run} is not for this client: its certificate has the DNS names node",
                                  answer["error"]["message"])
        for query in ("?run=team-b-1", "?run=job&run=not-there"):
            self.assertEqual(self.request("node", "GET", "/api/v1/events" + query)[1]["error"]["code"], "run_not_allowed")
        self.assertEqual(self.request("node", "GET", "/api/v1/runs/%6aob")[0], 200)
        self.assertEqual(self.request("node", "GET", "/api/v1/runs/team%2Db-1")[0], 403)
        took = time.monotonic() - begin
        self.assertLessEqual(self.log().count("http_refused"), 1 + took / 10, self.log())
        self.assertIn('reason="run team-b-1 is not for this client', self.log())
        # A client whose run it is may stop it. This run has no nodes, which musterd checks only
        # after the permission.
        self.assertEqual(self.request("b", "POST", "/api/v1/runs/team-b-1/stop", operator)[1]["error"]["code"],
                         "not_possible")

    def test_a_stream_has_only_the_runs_that_the_certificate_may_join(self):
        line = http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S,
                                           context=self.context_of("node"))
        self.addCleanup(line.close)
        line.request("GET", "/api/v1/events")
        answer = line.getresponse()
        text = b""
        while b"\n\n" not in text:
            text += answer.readline()
        data = json.loads(text.decode().split("data: ", 1)[1])
        self.assertEqual([run["id"] for run in data["runs"]], ["job"])

    def test_resources_without_a_run_are_for_every_certificate(self):
        for target in ("/", "/healthz", "/readyz", "/api/v1/openapi.json"):
            self.assertEqual(self.request("nobody", "GET", target)[0], 200, target)
        status, metrics = self.request("nobody", "GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn("muster", metrics)
        for run in ("job", "team-b"):
            self.assertNotIn(f'"{run}', metrics)

    def test_musterctl_prints_the_refusal(self):
        self.assertIn("run team-b-1 is not for this client", self.ctl("status", "team-b-1", expect=1))
        self.assertIn("run team-b-1 is not for this client", self.ctl("stop", "team-b-1", expect=1))
        listed = self.ctl("runs")
        self.assertIn("job", listed)
        self.assertNotIn("team-b", listed)


class HostedByANode(NodesTest):
    """--rdzv-tls-allow, at the node that hosts its run."""

    def setUp(self):
        super().setUp()
        authority = Authority(self.dir)
        authority.issue("host", f"{HERE},DNS:job.example.org")
        authority.issue("other", f"{HERE},DNS:other.example.org")

    def tls(self, name, *more):
        return [f"--rdzv-tls-ca={self.dir}/ca.pem", f"--rdzv-tls-cert={self.dir}/{name}.pem",
                f"--rdzv-tls-key={self.dir}/{name}.key", *more]

    def status(self, name, what):
        """The status of an HTTP request with this certificate, and whether the answer names the
        run."""
        context = ssl.create_default_context(cafile=str(self.dir / "ca.pem"))
        context.load_cert_chain(self.dir / f"{name}.pem", self.dir / f"{name}.key")
        port = int(re.search(r"HTTP at https://127\.0\.0\.1:(\d+)/", self.read("err.a"))[1])
        line = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
        self.addCleanup(line.close)
        line.request("GET", "/api/v1/runs" + what)
        answer = line.getresponse()
        return answer.status, "job" in answer.read().decode().replace("job.example.org", "")

    def test_it_lets_in_nodes_with_its_names_only(self):
        self.node("a", 2, *self.tls("host", "--rdzv-tls-allow=job.example.org", "--rdzv-conf=is_host=true",
                                    "--http=127.0.0.1:0"))
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a"), "a to wait")
        self.node("x", 2, *self.tls("other", "--rdzv-conf=is_host=false"))
        self.ends(x=1)
        self.assertIn("run job is not for this client: its certificate has the DNS names localhost, other.example.org",
                      self.read("err.x"))
        self.assertEqual([self.status("host", what) for what in ("", "/job")], [(200, True), (200, True)])
        self.assertEqual([self.status("other", what) for what in ("", "/job")], [(200, False), (403, True)])
        self.node("b", 2, *self.tls("host", "--rdzv-conf=is_host=false"))
        self.round_of(2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)


    def test_a_machine_without_a_certificate_does_not_come_through_torchs_door(self):
        self.node("a", 2, *self.tls("host", "--rdzv-conf=is_host=true", "--c10d-allow=members"))
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a"), "a to wait")
        stranger = OtherNode(self.port, "127.0.0.9")
        stranger.connection.sendall(GET + struct.pack("<Q", 1) + b"k")
        self.assertTrue(stranger.is_closed())
        wait_for(lambda: "this address may not use the c10d door: --c10d-allow=members" in self.read("err.a"), "a to say it")
        self.node("b", 2, *self.tls("host", "--rdzv-conf=is_host=false"))
        self.round_of(2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)


class Options(TlsTest):
    """Errors in the rules are reported at the start and by --check-config."""

    def start_musterd(self):
        self.musterds = 0  # Each test starts its own musterd.

    def refused(self, text, *options, code=2):
        for more in ((), ("--check-config",)):
            done = subprocess.run([MUSTERD, "--port=0", *options, *more], capture_output=True, text=True,
                                  timeout=PATIENCE_S, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)

    def test_rules_need_client_certificates(self):
        needs = "--tls-allow: clients are known by their certificates; give --tls-ca, too"
        self.refused(needs, "--tls-allow=job=node")
        self.refused(needs, "--tls-allow=job=node", "--tls-cert=a.pem", "--tls-key=a.key")
        path = self.dir / "musterd.json"
        path.write_text(json.dumps({"tls-allow": ["job=node"]}))
        self.refused(needs, f"--config={path}")

    def test_malformed_rules_are_refused(self):
        tls = ["--tls-ca=ca.pem", "--tls-cert=a.pem", "--tls-key=a.key"]
        self.refused("a rule is RUN=NAME[,NAME...]", *tls, "--tls-allow=job")
        self.refused("the run id in front of '=' is missing", *tls, "--tls-allow==node")
        self.refused("is no DNS name", *tls, "--tls-allow=job=node;other")
        path = self.dir / "musterd.json"
        path.write_text(json.dumps({"tls-allow": ["job=node", "job="]}))
        self.refused('key "tls-allow": job=node, job=: ', *tls, f"--config={path}")

    def test_rules_that_are_right_are_ok(self):
        path = self.dir / "musterd.json"
        path.write_text(json.dumps({"tls-allow": ["a=b=node", "team-*=*.example.org,ops", "scratch=*"],
                                    "tls-ca": "ca.pem", "tls-cert": "a.pem", "tls-key": "a.key"}))
        done = subprocess.run([MUSTERD, "--check-config", f"--config={path}"], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    sys.exit(main())
