#!/usr/bin/env python3
"""Tests musterd --http: its answers while a real job fails and recovers, and the requests that it
refuses."""
import contextlib
import http.client
import json
import select
import signal
import socket
import struct
import subprocess
import time

from mixed import MusterdTest
from musterd import MUSTERD, run_musterd
from native_peer import OtherNode, receive
from support import PATIENCE_S, SOURCE, main, wait_for


class HttpTest(MusterdTest):
    http_options = ["--http=127.0.0.1:0"]

    def start_musterd(self):
        self.musterd = run_musterd(self, f"--lease-seconds={self.lease_s}", *self.http_options, port=self.port,
                                     log=self.dir / "err.musterd", env=self.environment(), ready="HTTP at")
        self.port, self.http_port = self.musterd.port, self.musterd.http_port

    def all_output(self):
        return "\n".join(self.output(tag) for tag in self.nodes) + "\nmusterd:\n" + self.read("err.musterd")

    def ask(self, target, method="GET", headers=None, body=None):
        """Status, headers and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        try:
            connection.request(method, target, body=body, headers=headers or {})
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read().decode()
        finally:
            connection.close()

    def get(self, target):
        status, headers, text = self.ask(target)
        self.assertEqual(status, 200, text)
        self.assertEqual(headers["Content-Type"], "application/json")
        return json.loads(text)

    def run_is(self, state, run="job"):
        def there():
            status, _, text = self.ask(f"/api/v1/runs/{run}")
            found = json.loads(text)
            return found if status == 200 and found["state"] == state else None
        try:
            return wait_for(there, f"state {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.ask('/api/v1/runs/' + run)[2]}\n{self.all_output()}") from None

    def raw(self, data, seconds=PATIENCE_S):
        """Sends these bytes. Returns what the server sends until it closes the connection."""
        client = socket.create_connection(("127.0.0.1", self.http_port), seconds)
        self.addCleanup(client.close)
        try:
            client.sendall(data)
        except OSError:
            pass  # The server may have answered and closed already.
        answer = b""
        while True:
            try:
                piece = client.recv(65536)
            except ConnectionResetError:
                return answer
            if not piece:
                return answer
            answer += piece


class Stream:
    """Reads server-sent events as they arrive."""

    def __init__(self, test, target, headers=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", test.http_port, timeout=PATIENCE_S)
        test.addCleanup(self.connection.close)
        self.connection.request("GET", target, headers=headers or {})
        self.reply = self.connection.getresponse()
        self.status = self.reply.status
        self.type = self.reply.getheader("Content-Type")

    def next(self):
        """(event, id, data)"""
        fields = {}
        while True:
            line = self.reply.readline().decode()
            assert line, "the stream has ended"
            if line == "\n":
                if "event" in fields:
                    return fields["event"], int(fields.get("id", 0)), json.loads(fields["data"])
                continue
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def until(self, wanted):
        """The first event for which wanted(event, data) is true."""
        while True:
            event, _, data = self.next()
            if wanted(event, data):
                return data


class Job(HttpTest):
    def test_a_job_that_fails_and_recovers(self):
        self.assertEqual(self.get("/api/v1/runs")["runs"], [])
        listed = Stream(self, "/api/v1/events")
        self.assertEqual(listed.until(lambda event, _: event == "runs")["total"], 0)
        self.node("a", "2", "--max-restarts=3")
        gathering = self.run_is("gathering")
        self.assertEqual((gathering["lacking"], gathering["nodes"], gathering["min_nodes"]), (1, 1, 2))
        self.assertIn("1 more must come", gathering["reason"])
        self.assertEqual(listed.until(lambda _, data: data["total"] == 1)["runs"][0]["id"], "job")
        stream = Stream(self, "/api/v1/runs/job/events")
        self.assertEqual((stream.status, stream.type), (200, "text/event-stream"))
        watching = Stream(self, "/api/v1/events?run=job&run=not%20there")
        self.assertEqual(watching.until(lambda event, data: event == "run" and data["nodes"] == 1)["id"], "job")
        self.assertEqual(watching.until(lambda event, _: event == "forgotten"), {"id": "not there"})

        self.node("b", "2", "--max-restarts=3", "--nproc-per-node=2")
        self.round_of(3)
        running = self.run_is("running")
        self.assertEqual((running["restarts_used"], running["restarts_allowed"], running["missing"]), (0, 3, []))
        self.assertGreater(running["generation"], 0)
        nodes = self.get("/api/v1/runs/job/nodes")["nodes"]
        self.assertEqual(sorted(node["group_rank"] for node in nodes), [0, 1])
        self.assertEqual(sum(node["local_world_size"] for node in nodes), 3)
        self.assertEqual({node["pid"] for node in nodes},
                         {self.agent_pid(node) for node in nodes})
        for node in nodes:
            self.assertEqual((node["kind"], node["state"], node["address"]), ("muster", "working", node["address"]))
            self.assertLess(node["silent_seconds"], 3)
        stream.until(lambda event, data: event == "event" and data["kind"] == "round_complete")

        self.tell("exit.a", "3")
        restart = stream.until(lambda event, data: event == "event" and data["kind"] == "round_restarts")
        self.assertEqual(restart["cause"], "workers_failed")
        self.round_of(3, after=3)
        recovered = self.run_is("running")
        failure = recovered["first_failure"]
        self.assertEqual((failure["kind"], failure["cause"]), ("round_restarts", "workers_failed"))
        self.assertIn("exited with 3", failure["text"].replace("exitcode", "exited with"))
        self.assertEqual(recovered["restarts_used"], 1)
        # A reader that reconnects gets exactly the events that it has missed.
        again = Stream(self, "/api/v1/runs/job/events", {"Last-Event-ID": str(restart["number"])})
        event, number, _ = again.next()
        self.assertEqual((event, number), ("event", restart["number"] + 1))

        self.tell("finish")
        self.ends(a=0, b=0)
        self.run_is("succeeded")
        last = stream.until(lambda event, data: event == "run" and data["state"] == "succeeded")
        self.assertTrue(last["outcome"]["succeeded"])

    def agent_pid(self, node):
        """The pid of the node's agent, as the API reports it."""
        with open(f"/proc/{node['pid']}/comm", encoding="ascii") as comm:
            self.assertIn("muster", comm.read())
        return node["pid"]

    def test_the_missing_nodes_and_the_time_since_when(self):
        for tag in "ab":
            self.node(tag, "2", "--max-restarts=3")
        self.round_of(2)
        self.kill("b")
        missing = wait_for(lambda: self.get("/api/v1/runs/job")["missing"], "a missing node")
        gone = [node for node in missing if not node["expected"]]
        wait_for(lambda: self.get("/api/v1/runs/job")["lacking"] == 1, "one to be lacking")
        run = self.get("/api/v1/runs/job")
        gone = [node for node in run["missing"] if not node["expected"]]
        self.assertEqual(len(gone), 1, run)
        self.assertIsNotNone(gone[0]["group_rank"])
        later = wait_for(lambda: [node for node in self.get("/api/v1/runs/job")["missing"]
                                  if not node["expected"] and node["since_seconds"] > gone[0]["since_seconds"] + 0.5],
                         "the time to pass")
        self.assertEqual(later[0]["name"], gone[0]["name"])
        self.assertEqual(run["first_failure"]["kind"], "node_lost")

    def values(self):
        """The metrics' values by name and by the values of the labels."""
        from prometheus_client.parser import text_string_to_metric_families
        return {(sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(self.ask("/metrics")[2]) for sample in family.samples}

    def use_the_store(self):
        """Does what workers do that meet at musterd: writes a value of 1,000 bytes once and reads
        it twice."""
        key, value = struct.pack("<Q", 1) + b"k", struct.pack("<Q", 1000) + b"x" * 1000
        client = OtherNode(self.port)
        self.addCleanup(client.close)
        client.connection.sendall(b"\x01" + key + value + (b"\x03" + key) * 2 + b"\x04" + key.replace(b"k", b"n") +
                                  struct.pack("<q", 1))
        self.assertEqual(receive(client.connection, 2 * 1008 + 8), 2 * value + struct.pack("<q", 1))

    def test_metrics(self):
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            self.skipTest("prometheus_client is not installed")
        self.node("a", "1", "--max-restarts=1")
        self.round_of(1)
        self.run_is("running")
        time_limit = time.time() + 1
        status, headers, text = self.ask("/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        families = {family.name: family for family in text_string_to_metric_families(text)}
        value = self.values()
        self.assertEqual(value["muster_runs", "running"], 1)
        self.assertEqual(value["muster_nodes", "working"], 1)
        self.assertEqual(value["muster_rounds_completed_total",], 1)
        self.assertEqual(value["muster_rendezvous_duration_seconds_count",], 1)
        self.assertEqual(value["muster_rendezvous_duration_seconds_bucket", "+Inf"], 1)
        self.assertEqual(families["muster_recovery_duration_seconds"].type, "histogram")
        self.assertGreaterEqual(value["muster_store_connections",], 1)
        self.assertGreaterEqual(value["muster_store_requests_total", "validate"], 1)
        self.assertGreater(value["muster_store_requests_total", "native"], 1)
        self.assertEqual(value["muster_store_requests_total", "queue_push"], 0)
        before = {name: value[f"muster_store_{name}_bytes_total",] for name in ("received", "sent")}
        self.assertGreater(min(before.values()), 100)
        self.use_the_store()
        wait_for(lambda: self.values()["muster_store_requests_total", "add"] == 1, "figures of this moment")
        value = self.values()
        self.assertEqual([value["muster_store_requests_total", name] for name in ("set", "get", "add", "wait")],
                         [1, 2, 1, 0])
        self.assertGreater(value["muster_store_received_bytes_total",] - before["received"], 1000)
        self.assertGreater(value["muster_store_sent_bytes_total",] - before["sent"], 2000)
        self.assertLess(value["process_start_time_seconds",], time_limit)
        for name, family in families.items():
            self.assertTrue(family.documentation, name)
            self.assertNotEqual(family.type, "unknown", name)
            # Prometheus' conventions for names: base units only.
            self.assertNotRegex(name, "_(ms|us|minutes|kb|mb)$")
        named = (SOURCE / "docs/operating.md").read_text()
        for name in families:
            self.assertIn(f"`{name}", named, "docs/operating.md names every metric")


class Refusals(HttpTest):
    def refused(self, target, status, code, **more):
        got, headers, text = self.ask(target, **more)
        self.assertEqual(got, status, text)
        self.assertEqual(headers["Content-Type"], "application/json")
        error = json.loads(text)["error"]
        self.assertEqual(error["code"], code)
        self.assertGreater(len(error["message"]), 20)
        return headers

    def test_every_refusal_is_json_that_says_why(self):
        self.refused("/nothing", 404, "not_found")
        self.refused("/api/v1/runs/other", 404, "unknown_run")
        self.refused("/api/v1/runs/other/events", 404, "unknown_run")
        self.refused("/api/v1/runs?limit=x", 400, "bad_request")
        self.refused("/api/v1/runs/%zz", 400, "bad_request")
        headers = self.refused("/api/v1/runs", 405, "method_not_allowed", method="POST", body="{}")
        self.assertEqual(headers["Allow"], "GET, HEAD")
        self.refused("/api/v1/runs", 405, "method_not_allowed", method="DELETE")
        self.refused("/healthz", 421, "misdirected_request", headers={"Host": "evil.example.org"})
        self.refused("http://evil.example.org/healthz", 421, "misdirected_request")
        self.assertEqual(self.ask(f"http://127.0.0.1:{self.http_port}/healthz", headers={"Host": "evil.example.org"})[0], 200)
        self.refused("/" + "x" * 5000, 414, "target_too_long")
        self.refused("/healthz", 431, "headers_too_large", headers={"X-Long": "x" * 40000})
        self.refused("/healthz", 413, "body_too_large", method="POST", body="x" * 5000)

    def test_a_page_of_another_origin_changes_nothing(self):
        self.node("a", "1")
        self.round_of(1)
        self.run_is("running")
        self.refused("/api/v1/runs/job/stop", 403, "forbidden", method="POST")
        self.refused("/api/v1/runs/job/stop", 403, "forbidden", method="POST", headers={"X-Muster-Action": "0"})
        self.refused("/api/v1/runs/job/stop", 421, "misdirected_request", method="POST",
                     headers={"X-Muster-Action": "1", "Host": "evil.example.org"})
        self.refused("/api/v1/runs/job/stop", 405, "method_not_allowed", headers={"X-Muster-Action": "1"})
        self.assertEqual(self.ask("/api/v1/runs/job/stop", method="OPTIONS")[0], 405)
        self.run_is("running")
        status, _, text = self.ask("/api/v1/runs/job/stop", method="POST", headers={"X-Muster-Action": "1"})
        self.assertEqual(status, 200, text)
        self.ends(a=1)

    def test_headers_are_strict(self):
        for target in ("/healthz", "/api/v1/runs", "/metrics", "/nothing"):
            headers = self.ask(target)[1]
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertNotIn("unsafe", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Cache-Control"], "no-store")
            self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_head_has_no_body(self):
        status, headers, text = self.ask("/api/v1/runs", method="HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 10)

    def test_the_page_has_its_parts(self):
        kinds = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
                 ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
        for part in (SOURCE / "rendezvous/http/page").iterdir():
            status, headers, text = self.ask("/" if part.name == "index.html" else f"/{part.name}")
            self.assertEqual(status, 200, part.name)
            self.assertEqual(headers["Content-Type"], kinds[part.suffix])
            self.assertEqual(text, part.read_text())

    def test_the_server_says_who_it_is(self):
        server = self.get("/api/v1/server")
        self.assertEqual(server["host"], socket.gethostname())
        self.assertRegex(server["version"], r"^\d+\.\d+")
        self.assertEqual(server["port"], self.port)

    def test_health_and_readiness(self):
        self.assertEqual(self.get("/healthz"), {"ok": True})
        self.assertEqual(self.get("/readyz"), {"ok": True})

    def test_garbage_is_400_and_costs_only_its_connection(self):
        for data in (b"\0\1\2\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            answer = self.raw(data)
            self.assertIn(b" 400 ", answer.split(b"\r\n")[0], data)
        self.assertEqual(self.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")[:15],
                         b"HTTP/1.1 200 OK")
        self.assertEqual(self.get("/healthz"), {"ok": True})

    def test_a_client_that_waits_with_its_body_is_told_to_go_on(self):
        fields = b"POST /api/v1/runs/none/stop HTTP/1.1\r\nHost: localhost\r\nX-Muster-Action: 1\r\nConnection: close\r\n"
        with socket.create_connection(("127.0.0.1", self.http_port), PATIENCE_S) as client:
            client.sendall(fields + b"Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n")
            self.assertEqual(client.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(b"{}")
            self.assertEqual(client.makefile("rb").readline(), b"HTTP/1.1 404 Not Found\r\n")
        # Fields that are refused already, and a body that is there already, are answered at once.
        large = self.raw(fields + b"Content-Length: 99999\r\nExpect: 100-continue\r\n\r\n")
        self.assertEqual(large[:12], b"HTTP/1.1 413")
        there = self.raw(fields + b"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n")
        self.assertEqual(there[:12], b"HTTP/1.1 404")

    def test_half_a_request_is_closed_in_time(self):
        begin = time.monotonic()
        self.assertEqual(self.raw(b"GET /healthz HTTP/1.1\r\nHost: "), b"")
        self.assertGreater(time.monotonic() - begin, 5)

    def test_connections_are_bounded_and_come_back(self):
        kept = []
        for _ in range(140):  # The limit is 128 connections from one address.
            client = socket.create_connection(("127.0.0.1", self.http_port), PATIENCE_S)
            self.addCleanup(client.close)
            kept.append(client)

        def closed():
            readable = select.select(kept, [], [], 0)[0]
            return len(readable) >= 12
        wait_for(closed, "12 connections to be closed", 8)
        for client in kept:
            client.close()
        wait_for(self.answers, "it to answer again")

    def test_streams_of_one_address_do_not_shut_it_out(self):
        for _ in range(140):
            self.keep_connection(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(self.answers, "an answer beside the streams")

    def test_each_watched_run_counts_as_a_stream(self):
        target = "/api/v1/events?" + "&".join(f"run=x{i}" for i in range(8))
        for _ in range(10):  # 10 times 9 of the 96 streams.
            self.assertEqual(Stream(self, target).status, 200)
        refused = Stream(self, target)
        self.assertEqual((refused.status, json.loads(refused.reply.read())["error"]["code"]), (503, "too_many_streams"))
        self.assertEqual(Stream(self, "/api/v1/events?run=x").status, 200)

    def test_strangers_that_do_not_read_shut_out_no_other_client(self):
        for _ in range(140):
            self.keep_connection(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        for _ in range(20):
            self.assertTrue(self.answers())

    def keep_connection(self, data):
        """Sends as much of the data as is taken, and reads nothing."""
        client = socket.socket()
        self.addCleanup(client.close)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", self.http_port))
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.send(data)

    def answers(self):
        try:
            return self.ask("/healthz")[0] == 200
        except OSError:
            return False

    def test_several_requests_on_one_connection(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        self.addCleanup(connection.close)
        for _ in range(20):
            connection.request("GET", "/healthz")
            self.assertEqual(connection.getresponse().read(), b'{"ok":true}\n')

    def test_the_last_answer_of_a_connection_says_so(self):
        answers = self.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1001).split(b"HTTP/1.1 200 ")[1:]
        self.assertEqual(len(answers), 1000)
        closes = [b"connection: close" in answer.lower() for answer in answers]
        self.assertEqual(closes, [False] * 999 + [True])

    def test_a_probe_by_http_1_0_needs_no_host(self):
        status = lambda version, host=b"": self.raw(b"GET /healthz HTTP/" + version + b"\r\nConnection: close\r\n" + host +
                                                    b"\r\n").split()[1]
        self.assertEqual(status(b"1.0"), b"200")
        self.assertEqual(status(b"1.0", b"Host: evil.example.org\r\n"), b"421")
        self.assertEqual(status(b"1.1"), b"421")

    def test_musterd_ends_on_sigterm_while_a_client_reads(self):
        stream = Stream(self, "/api/v1/events")
        stream.next()
        self.musterd.send_signal(signal.SIGTERM)
        self.assertEqual(self.musterd.wait(PATIENCE_S), 0, self.read("err.musterd"))

    def test_a_reader_that_does_not_read_delays_no_other_client(self):
        lazy = socket.create_connection(("127.0.0.1", self.http_port), PATIENCE_S)
        self.addCleanup(lazy.close)
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        begin = time.monotonic()
        self.assertEqual(self.get("/healthz"), {"ok": True})
        self.assertLess(time.monotonic() - begin, 5)


class Usage(HttpTest):
    def start_musterd(self):
        self.http_port = 0

    def all_output(self):
        return ""

    def musterd_says(self, *options):
        return subprocess.run([MUSTERD, "--port=0", *options], capture_output=True, text=True, timeout=30, check=False)

    def test_a_bad_address_is_2(self):
        for text in ("x", "70000", "host:80", "::1:80", ""):
            done = self.musterd_says(f"--http={text}")
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("--http", done.stderr)

    def test_a_port_in_use_is_1(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = self.musterd_says("--bind=127.0.0.1", f"--http={taken.getsockname()[1]}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--http", done.stderr)


if __name__ == "__main__":
    main()
