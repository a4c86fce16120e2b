#!/usr/bin/env python3
"""Tests musterd --http with a token: which clients may read or change, and what a browser and a
page of another site can do."""
import hashlib
import hmac
import http.client
import http.server
import json
import os
import re
import subprocess
import threading
import time

from http_test import HttpTest, Stream
from support import PATIENCE_S, main, wait_for
from musterd import MUSTERD

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
TOKEN = "a-token-for-tests-only-0123456789"
STOP = "/api/v1/runs/job/stop"
READS = ("/", "/page.js", "/page.css", "/hub.js", "/favicon.svg", "/api/v1/server", "/api/v1/runs", "/api/v1/runs/job",
         "/api/v1/runs/job/nodes", "/api/v1/runs/job/steps", "/api/v1/runs/job/events", "/api/v1/events",
         "/api/v1/events?run=job", "/api/v1/openapi.json", "/metrics", "/nothing")


def mac(text, token=TOKEN):
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


READ_KEY = mac("muster http, protocol 1\nread")


def proof(nonce, method="POST", target=STOP, token=TOKEN):
    return f'Muster proof="{mac(chr(10).join(["muster http, protocol 1", "change", nonce, method, target]), token)}"'


class FalseMusterd(http.server.ThreadingHTTPServer):
    """Asks every client for a proof of this nonce, and keeps what it gets."""

    def __init__(self, nonce):
        super().__init__(("127.0.0.1", 0), FalseAnswers)
        self.port = self.server_address[1]
        self.nonce = nonce
        self.proofs = []

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()
        return super().__enter__()

    def __exit__(self, *failure):
        self.shutdown()
        self.thread.join()
        super().__exit__(*failure)


class FalseAnswers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "Authorization" in self.headers:
            self.server.proofs.append(self.headers["Authorization"])
        self.send_response(401)
        self.send_header("WWW-Authenticate", f'Muster nonce="{self.server.nonce}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


class TokenTest(HttpTest):
    address = "127.0.0.1:0"

    def start_musterd(self):
        self.token_file = self.dir / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.token_file.chmod(0o600)
        self.http_options = [f"--http={self.address}", f"--rdzv-token-file={self.token_file}"]
        super().start_musterd()

    def ask(self, target, method="GET", headers=None, body=None):
        return super().ask(target, method, {"Authorization": f"Bearer {READ_KEY}", **(headers or {})}, body)

    def as_stranger(self, target, method="GET", **headers):
        return HttpTest.ask(self, target, method, headers)

    def a_run(self):
        """Starts a run with one node, which waits for another one."""
        self.node("a", "2", f"--rdzv-token-file={self.token_file}")
        self.run_is("gathering")

    def test_a_client_with_the_key_alone_is_told_that_the_key_reads_no_logs(self):
        status, _, text = self.as_stranger("/api/v1/runs/job/ranks/0/log", Authorization=f"Bearer {READ_KEY}")
        self.assertEqual(status, 401)
        self.assertIn("the key is right", json.loads(text)["error"]["message"])
        self.assertNotIn("http_refused", self.read("err.musterd"))

    def connection(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        self.addCleanup(connection.close)
        return connection

    def post(self, connection, authorization=None, target=STOP):
        return self.send(connection, "POST", target, authorization)

    def send(self, connection, method, target, authorization=None):
        """Status, the nonce of the challenge, JSON."""
        headers = {"X-Muster-Action": "1", **({"Authorization": authorization} if authorization else {})}
        connection.request(method, target, headers=headers)
        reply = connection.getresponse()
        found = re.search(r'Muster nonce="([0-9a-f]{64})"', reply.getheader("WWW-Authenticate") or "")
        return reply.status, found and found[1], json.loads(reply.read())

    def ctl(self, *words, expect=0, token=True):
        named = {"MUSTER_RDZV_TOKEN_FILE": str(self.token_file)} if token else {}
        done = subprocess.run([MUSTERCTL, *words], capture_output=True, text=True, timeout=60, check=False,
                              env=self.environment(MUSTER_ENDPOINT=f"localhost:{self.http_port}", **named))
        self.assertEqual(done.returncode, expect, f"{words}\n{done.stdout}\n{done.stderr}")
        return done.stdout if expect == 0 else done.stderr

    def cookie(self):
        link = self.ctl("open").strip()
        self.assertRegex(link, rf"^http://localhost:{self.http_port}/login\?secret=[0-9a-f]{{64}}$")
        return link.split(str(self.http_port), 1)[1]


class Reading(TokenTest):
    def test_a_stranger_reads_nothing_and_is_told_what_to_do(self):
        self.a_run()
        for target in READS:
            for headers in ({}, {"Authorization": "Bearer " + "0" * 64}, {"Authorization": f"Bearer {TOKEN}"},
                            {"Authorization": f"Basic {READ_KEY}"}, {"Cookie": "muster_session=1"},
                            {"Cookie": f"muster_session_00000000={READ_KEY}"}):
                status, got, text = self.as_stranger(target, **headers)
                self.assertEqual(status, 401, (target, headers, text))
                self.assertIn("--rdzv-token-file", json.loads(text)["error"]["message"])
                self.assertIn("WWW-Authenticate", got)
                self.assertNotIn("job", text.replace("jobs", ""))
        # Monitors have no token, and these answers reveal nothing.
        for target in ("/healthz", "/readyz"):
            self.assertEqual(self.as_stranger(target)[::2], (200, '{"ok":true}\n'))

    def test_the_key_reads_and_is_printed_by_musterctl(self):
        self.assertEqual(self.ctl("key"), READ_KEY + "\n")
        self.assertEqual(self.ask("/metrics")[0], 200)
        self.assertIn("--rdzv-token-file", self.ctl("key", expect=2, token=False))

    def test_musterctl_reads_with_the_token_only(self):
        self.a_run()
        self.assertIn("gathering", self.ctl("runs"))
        self.assertIn("gathering", self.ctl("status", "job", f"--rdzv-token-file={self.token_file}", token=False))
        self.assertIn("gathering", self.ctl(f"--rdzv-token-file={self.token_file}", "runs", token=False))
        self.assertIn("give musterctl --rdzv-token-file", self.ctl("runs", expect=1, token=False))
        self.assertIn('"verdict":"ok"', self.ctl("doctor", "--json").split('"clock"')[1].replace(" ", ""))
        other = self.dir / "other"
        other.write_text("x" * 32)
        other.chmod(0o600)
        self.assertIn("refuses the token", self.ctl("runs", f"--rdzv-token-file={other}", expect=1))
        other.chmod(0o644)
        self.assertIn("every user", self.ctl("runs", f"--rdzv-token-file={other}", expect=1))

    def test_refusals_are_few_lines_and_show_neither_token_nor_key(self):
        for _ in range(200):
            self.as_stranger("/api/v1/runs", Authorization=f"Bearer {TOKEN}")
            self.as_stranger("/api/v1/runs", Authorization=f"Muster proof=\"{READ_KEY[:-1]}\"")
        log = self.read("err.musterd")
        self.assertIn("http_refused peer=127.0.0.1", log)
        self.assertLess(log.count("http_refused"), 20)
        for secret in (TOKEN, READ_KEY[:-1]):
            self.assertNotIn(secret, log)


class Changing(TokenTest):
    def test_the_key_for_reading_changes_nothing(self):
        self.a_run()
        for authorization in (None, f"Bearer {READ_KEY}", f'Muster proof="{READ_KEY}"', 'Muster proof=""'):
            self.assertEqual(self.post(self.connection(), authorization)[0], 401)
        self.run_is("gathering")

    def test_a_proof_is_good_once_on_its_connection_for_its_request(self):
        self.a_run()
        line = self.connection()
        status, nonce, _ = self.post(line)
        self.assertEqual(status, 401)
        for wrong in (proof(nonce, token=TOKEN + "x"), proof(nonce, target=STOP.replace("stop", "restart")),
                      proof(nonce, method="GET")):
            status, nonce, _ = self.post(line, wrong)
            self.assertEqual(status, 401)
        # The nonce belongs to another connection.
        self.assertEqual(self.post(self.connection(), proof(nonce))[0], 401)
        self.run_is("gathering")
        right = proof(nonce)
        self.assertEqual(self.post(line, right)[0], 200)
        self.run_is("failed")
        for replayed in (line, self.connection()):
            self.assertEqual(self.post(replayed, right)[0], 401)

    def test_a_proof_reads_once_too(self):
        self.a_run()
        target = "/api/v1/runs/job"
        line = self.connection()
        nonce = self.send(line, "GET", target)[1]
        right = proof(nonce, "GET", target)
        self.assertEqual(self.send(line, "GET", target, right)[0], 200)
        nonce = self.send(line, "GET", target, right)[1]
        for wrong in (proof(nonce, "POST", target), proof(nonce, "GET", target + "/nodes"), right):
            status, nonce, _ = self.send(line, "GET", target, wrong)
            self.assertEqual(status, 401)

    def test_a_program_that_takes_the_port_gets_nothing_from_musterctl_for_later(self):
        self.a_run()
        # The false musterd asks for a proof of a nonce that the real one has given it.
        line = self.connection()
        nonce = self.send(line, "GET", "/api/v1/runs")[1]
        with FalseMusterd(nonce) as false:
            for words in (["runs"], ["status", "job"], ["why", "job"], ["stop", "job"], ["logs", "job", "0"]):
                self.ctl(*words, f"--endpoint=localhost:{false.port}", expect=1)
        self.assertEqual(len(false.proofs), 5)
        for authorization in false.proofs:
            self.assertRegex(authorization, '^Muster proof="[0-9a-f]{64}"$')
            for target in ("/api/v1/runs/job/nodes", "/metrics"):
                self.assertEqual(self.as_stranger(target, Authorization=authorization)[0], 401)
        self.assertEqual(self.send(line, "POST", STOP, false.proofs[0])[0], 401)
        self.run_is("gathering")

    def test_musterctl_proves_it_from_any_name(self):
        self.a_run()
        self.assertIn("no round runs", self.ctl("restart", "job", expect=1))
        for words in (["stop", "job"], ["exclude", "job", "x"]):
            self.assertIn("asks for its token", self.ctl(*words, expect=1, token=False))
        self.assertIn("not in the run now", self.ctl("exclude", "job", "x"))
        self.run_is("gathering")
        self.assertIn("it has ended", self.ctl("stop", "job"))
        self.run_is("failed")


class Browser(TokenTest):
    def test_a_link_is_good_once_and_its_cookie_reads(self):
        self.a_run()
        path = self.cookie()
        # A HEAD request does not use a link up.
        self.assertEqual(self.as_stranger(path, "HEAD")[0], 401)
        status, headers, _ = self.as_stranger(path)
        self.assertEqual((status, headers["Location"]), (303, "/"))
        name, _, attributes = headers["Set-Cookie"].partition("; ")
        self.assertEqual(attributes, "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
        for target in READS[:10]:
            self.assertEqual(self.as_stranger(target, Cookie=f"a=b; {name}")[0], 200, target)
        self.assertEqual(self.as_stranger(path)[0], 401)
        self.assertIn("musterctl open", self.as_stranger("/login?secret=" + "0" * 64)[2])

    def test_a_browser_without_the_cookie_reads_what_to_do(self):
        for target in ("/", "/login?secret=" + "0" * 64):
            status, got, text = self.as_stranger(target, Accept="text/html,*/*;q=0.8")
            self.assertEqual((status, got["Content-Type"]), (401, "text/html; charset=utf-8"))
            self.assertIn("musterctl --rdzv-token-file FILE open", text)
            self.assertIn("default-src 'none'", got["Content-Security-Policy"])
        self.assertEqual(self.as_stranger("/api/v1/runs", Accept="text/html")[1]["Content-Type"], "application/json")

    def test_a_page_of_another_site_changes_nothing_with_the_cookie(self):
        self.a_run()
        name = self.as_stranger(self.cookie())[1]["Set-Cookie"].split(";")[0]
        # Requests that a form or a script of another site could send if the browser did send the
        # cookie.
        for headers in ({}, {"X-Muster-Action": "1"}, {"Content-Type": "text/plain", "Origin": "http://evil.example.org"},
                        {"X-Muster-Action": "1", "Origin": f"http://127.0.0.1:{self.http_port}"}):
            for target in (STOP, STOP.replace("stop", "restart"), STOP.replace("stop", "nodes/x/drain"), "/api/v1/login"):
                self.assertEqual(self.as_stranger(target, "POST", Cookie=name, **headers)[0], 401)
        status, headers, _ = self.as_stranger(STOP, "OPTIONS", Cookie=name, Origin="http://evil.example.org")
        self.assertEqual(status, 405)
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        self.assertNotIn("Access-Control-Allow-Origin", self.as_stranger("/", Cookie=name)[1])
        self.run_is("gathering")

    def test_another_name_for_this_server_gets_nothing(self):
        name = self.as_stranger(self.cookie())[1]["Set-Cookie"].split(";")[0]
        for headers in ({"Cookie": name}, {"Authorization": f"Bearer {READ_KEY}"}):
            self.assertEqual(self.as_stranger("/api/v1/runs", Host="evil.example.org", **headers)[0], 421)

    def test_a_stream_of_events_ends_with_its_session(self):
        name = self.as_stranger(self.cookie())[1]["Set-Cookie"].split(";")[0]
        stream = Stream(self, "/api/v1/events", {"Cookie": name})
        self.assertEqual(stream.next()[0], "runs")
        line = self.connection()
        for _ in range(64):  # So many sessions are kept: the next one ends the oldest.
            _, nonce, _ = self.post(line, target="/api/v1/login")
            status, _, link = self.post(line, proof(nonce, target="/api/v1/login"), "/api/v1/login")
            self.assertEqual(status, 200)
            self.assertEqual(self.as_stranger(link["path"])[0], 303)
        self.assertEqual(self.as_stranger("/api/v1/runs", Cookie=name)[0], 401)
        end = time.monotonic() + PATIENCE_S
        while stream.reply.readline():  # Comments, as long as it goes on.
            self.assertLess(time.monotonic(), end, "the stream goes on")

    def test_sessions_end_with_musterd(self):
        name = self.as_stranger(self.cookie())[1]["Set-Cookie"].split(";")[0]
        self.musterd.kill()
        self.musterd.wait()
        self.port = 0
        self.start_musterd()
        self.assertEqual(self.as_stranger("/api/v1/runs", Cookie=name)[0], 401)


class OtherAddresses(TokenTest):
    address = "0.0.0.0:0"

    def test_with_a_token_every_address_is_served_and_asks_for_it(self):
        # From elsewhere, musterd may be reached by any name. A browser sends the cookie only to the
        # name that set it.
        for host in ("musterd.example.org", "10.0.0.1:9400"):
            self.assertEqual(self.as_stranger("/api/v1/runs", Host=host)[0], 401)
            self.assertEqual(self.ask("/api/v1/runs", headers={"Host": host})[0], 200)

    def test_many_strangers_at_once_delay_no_other_client(self):
        statuses = []

        def flood():
            statuses.extend(self.as_stranger("/api/v1/runs", Authorization="Bearer x")[0] for _ in range(50))
        threads = [threading.Thread(target=flood) for _ in range(8)]
        for thread in threads:
            thread.start()
        self.assertEqual(self.ask("/api/v1/runs")[0], 200)
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {401})
        self.assertEqual(len(statuses), 400)


class WithoutToken(HttpTest):
    def start_musterd(self):
        self.http_port = 0

    def all_output(self):
        return ""

    def test_an_address_that_others_reach_is_refused(self):
        for address in ("0.0.0.0:0", "[::]:0", "10.0.0.1:0"):
            done = subprocess.run([MUSTERD, "--bind=127.0.0.1", "--port=0", f"--http={address}"], capture_output=True,
                                  text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("--rdzv-token-file", done.stderr)
            self.assertIn("ssh -L", done.stderr)

    def test_there_is_no_login(self):
        HttpTest.start_musterd(self)
        self.assertEqual(self.ask("/api/v1/runs")[0], 200)
        self.assertEqual(self.ask("/login?secret=" + "0" * 64)[0], 401)
        self.assertEqual(self.ask("/api/v1/login", "POST", {"X-Muster-Action": "1"})[0], 409)
        self.assertEqual(self.ask("/api/v1/login", "POST")[0], 403)


if __name__ == "__main__":
    main()
