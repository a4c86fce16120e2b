#!/usr/bin/env python3
"""Tests what musterctl makes of musterd's answers, with a model of musterd that gives them at once."""
import base64
import datetime
import http.server
import json
import os
import pathlib
import pty
import resource
import shutil
import socketserver
import subprocess
import tempfile
import threading
import unittest
import urllib.parse

import tcsh_lines
from support import MUSTER, PATIENCE_S, main
from musterd import MUSTERD

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
FULL = pathlib.Path("/dev/full")
NO_SPACE = "the output cannot be written: No space left on device\n"


def piece(text, begin=0):
    """The end of a log of which `begin` bytes are before it."""
    end = begin + len(text)
    return {"node": "a_1_0", "attempt": 1, "offset": begin, "next_offset": end, "size": end,
            "base64": base64.b64encode(text).decode()}


class Model(http.server.ThreadingHTTPServer):
    """Answers by the path: with a JSON object, or with (status, object)."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = {}
        self.made = {}  # When the answer to each target was made.


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answer = self.server.answers.get(urllib.parse.urlsplit(self.path).path,
                                         (404, {"error": {"code": "unknown_run", "message": "no such run"}}))
        if callable(answer):
            answer = answer(self)
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        text = json.dumps(body, separators=(",", ":")).encode() + b"\n"
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Muster nonce="' + 64 * "a" + '"')
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Endless(socketserver.ThreadingTCPServer):
    """Sends the same bytes again and again, at most `most` times, whatever is asked."""
    daemon_threads = True

    def __init__(self, begin, again, most):
        self.begin, self.again, self.most = begin, again, most
        super().__init__(("127.0.0.1", 0), EndlessHandler)


class EndlessHandler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(65536)  # The request. Unread bytes would reset the connection at its end.
        try:
            self.request.sendall(self.server.begin)
            for _ in range(self.server.most):
                self.request.sendall(self.server.again)
        except OSError:
            pass  # musterctl has ended.


class Answers(unittest.TestCase):
    def setUp(self):
        self.model = Model()
        threading.Thread(target=self.model.serve_forever, daemon=True).start()
        self.addCleanup(self.model.server_close)
        self.addCleanup(self.model.shutdown)
        self.endpoint = f"127.0.0.1:{self.model.server_address[1]}"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def endless(self, *given):
        server = Endless(*given)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.endpoint = f"127.0.0.1:{server.server_address[1]}"

    def environment(self):
        return {**os.environ, "MUSTER_ENDPOINT": self.endpoint, "MUSTER_RDZV_TOKEN_FILE": ""}

    def ctl(self, *words, expect=0, stdout=subprocess.PIPE):
        done = subprocess.run([MUSTERCTL, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, expect, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def has_ranks(self, count):
        self.model.answers["/api/v1/runs/job/nodes"] = {"nodes": [{"first_rank": 0, "local_world_size": count}]}
        for rank in range(count):
            self.model.answers[f"/api/v1/runs/job/ranks/{rank}/stacks"] = piece(f"stack of {rank}\n".encode())

    def test_an_error_says_that_output_was_lost(self):
        log = "/api/v1/runs/job/ranks/0/log"
        self.model.answers[log] = piece(b"hello\n")
        self.has_ranks(2)
        for words in (["logs", "job", "0"], ["logs", "job", "0", "-f"], ["stacks", "job"], ["stacks", "job", "0"],
                      ["ps", "--json"], ["--version"], ["--help"], ["--completion", "bash"]):
            with FULL.open("w") as full:
                self.assertEqual(self.ctl(*words, expect=1, stdout=full).stderr, "musterctl: " + NO_SPACE, words)
        for program in (MUSTER, MUSTERD):
            for option in ("--version", "--help"):
                with FULL.open("w") as full:
                    done = subprocess.run([program, option], stdout=full, stderr=subprocess.PIPE, text=True,
                                          timeout=PATIENCE_S, check=False)
                self.assertEqual(done.returncode, 1, done)
                self.assertTrue(done.stderr.endswith(": " + NO_SPACE), done.stderr)

    def test_an_answer_without_an_end_is_given_up(self):
        head = b"HTTP/1.1 200 OK\r\n"
        for again in (b"X: y\r\n" * 1000, b"x" * 10_000):  # More than enough for musterctl to give up.
            self.endless(head, again, 100_000)
            self.assertIn("not musterd's HTTP", self.ctl("status", "job", expect=3).stderr)
        self.endless(head + b"\r\n", b"x" * 10_000, 100_000)  # No length.
        self.assertIn("not musterd's HTTP", self.ctl("status", "job", expect=3).stderr)
        self.endless(head + b"Content-Length: 99999999999\r\n\r\n", b"x", 0)
        self.assertIn("Message too long", self.ctl("status", "job", expect=3).stderr)

    def test_an_answer_whose_values_are_too_deep_or_too_many_is_no_answer(self):
        for begin, again in ((b'{"runs":', b"[" * 10_000), (b'{"runs":[', b"[],{}," * 1000)):
            body = begin + 1000 * again
            self.endless(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body, 1)
            self.assertIn("this is no answer of musterd", self.ctl("status", "job", expect=1).stderr)
            self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 400 << 10)  # Of the largest child.

    def test_a_reader_that_is_gone_is_no_error(self):
        self.model.answers["/api/v1/runs/job/ranks/0/log"] = piece(b"hello\n")
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as gone:
            # Without the signal SIGPIPE, as for a child of some programs.
            done = subprocess.run([MUSTERCTL, "logs", "job", "0", "-f"], stdout=gone, stderr=subprocess.PIPE, text=True,
                                  timeout=PATIENCE_S, env=self.environment(), restore_signals=False, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_end_of_a_log_that_is_one_long_line(self):
        bar = b"".join(b"\r%3d%%|%s|" % (percent, b"#" * 200) for percent in range(81)) + b"\n"
        self.model.answers["/api/v1/runs/job/ranks/0/log"] = piece(bar, begin=5000)
        self.assertIn(" 80%|####", self.ctl("logs", "job", "0").stdout)
        line = b"x" * 16383 + b"\n"
        self.model.answers["/api/v1/runs/job/ranks/0/log"] = piece(line, begin=5000)
        self.assertEqual(self.ctl("logs", "job", "0").stdout.encode(), line)

    def test_lines_that_were_shown_on_a_terminal_are_not_shown_again(self):
        end = "10%\r20%\n\x1b[31mboom\x1b[0m\n"
        over = (409, {"error": {"code": "not_possible", "message": "its node has gone"}})
        pieces = iter([piece(end.encode())])
        self.model.answers["/api/v1/runs/job/ranks/0/log"] = lambda _: next(pieces, over)
        self.model.answers["/api/v1/runs/job"] = {
            "state": "failed", "round": 0, "first_failure_report": {"rank": 0, "round": 0, "stderr_end": end}}
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.ctl("logs", "job", "0", "-f", "--stderr", stdout=slave)
        os.close(slave)
        shown = b""
        try:
            while more := os.read(master, 4096):
                shown += more
        except OSError:  # EIO: the other end is closed.
            pass
        self.assertEqual(shown.replace(b"\r\n", b"\n"), b"10%\n20%\n\\x1b[31mboom\\x1b[0m\n")

    def test_the_number_of_ranks_that_were_not_asked_is_printed(self):
        self.has_ranks(300)
        done = self.ctl("stacks", "job", expect=1)
        self.assertIn("=== rank 255\nstack of 255\n", done.stdout)
        self.assertNotIn("=== rank 256\n", done.stdout)
        self.assertIn("44 ranks, from rank 256 on, were not asked", done.stderr)
        self.assertIn("musterctl stacks RUN RANK", done.stderr)

    def test_a_server_that_goes_away_while_a_log_is_followed(self):
        def last(handler):
            handler.server.socket.close()  # Nobody answers from now on.
            return piece(b"hello\n")
        self.model.answers["/api/v1/runs/job/ranks/0/log"] = last
        done = self.ctl("logs", "job", "0", "-f", expect=3)
        self.assertIn("hello\n", done.stdout)
        self.assertRegex(done.stderr, r"has gone while the log was followed: musterd has ended, or the muster --http")
        self.assertNotIn("Is it there", done.stderr)

    def test_a_token_that_is_refused(self):
        token = self.dir / "token"
        token.write_text("another-token-0123456789-0123456789\n")
        token.chmod(0o600)
        refused = (401, {"error": {"code": "token_needed", "message": "give musterctl --rdzv-token-file FILE"}})
        for path in ("", "/job", "/job/stop", "/job/ranks/0/log"):
            self.model.answers["/api/v1/runs" + path] = refused
        for words in (["runs"], ["status", "job"], ["stop", "job"], ["logs", "job", "0"]):
            self.assertIn("give musterctl --rdzv-token-file", self.ctl(*words, expect=1).stderr)
            said = self.ctl(*words, f"--rdzv-token-file={token}", expect=1).stderr
            self.assertIn("musterd refuses the token", said)
            self.assertNotIn("give musterctl", said)

    def doctor(self, name):
        done = subprocess.run([MUSTERCTL, "doctor", "--json"], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S,
                              env={**self.environment(), "PYTHON_EXEC": "/bin/true"}, check=False)
        return next(check for check in json.loads(done.stdout)["checks"] if check["name"] == name)

    def test_the_doctor_shows_musterds_own_message(self):
        for status in (400, 401, 403, 421, 503):
            self.model.answers["/api/v1/runs"] = (status, {"error": {"code": "x", "message": "musterd's own words"}})
            check = self.doctor("endpoint")
            self.assertEqual(check["verdict"], "failure")
            self.assertIn("musterd's own words", check["found"])
            self.assertNotIn("firewall", check["remedy"])
        self.model.answers["/api/v1/runs"] = (503, {"another": "program"})
        self.assertIn("not musterd's HTTP", self.doctor("endpoint")["found"])

    def test_the_doctor_reads_the_clock_of_its_own_answer(self):
        """musterd answers the same target for a moment with the same view; this model does so for ever."""
        def runs(handler):
            at = self.model.made.setdefault(handler.path, datetime.datetime.now(datetime.timezone.utc))
            return {"at": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z", "runs": [], "total": 0}
        self.model.answers["/api/v1/runs"] = runs
        self.doctor("clock")
        self.model.made = {target: at - datetime.timedelta(hours=1) for target, at in self.model.made.items()}
        found = self.doctor("clock")["found"]
        self.assertLess(float(found.split(" ")[0]), 600, found)

    def test_completion_offers_only_what_exists(self):
        names = ["job-17", "my run", "a\"b", "node{\"id\":\"x"]
        self.model.answers["/api/v1/runs"] = {"at": "now", "total": 4, "offset": 0, "runs": [
            {"id": name, "state": "running", "reason": "round 0"} for name in names]}
        self.model.answers["/api/v1/runs/job-17/nodes"] = {"run": "job-17", "nodes": [
            {"name": name, "address": "x"} for name in ("a b_1_0", "c_2_0")]}
        script = self.dir / "completion"
        script.write_text(self.ctl("--completion", "bash").stdout)
        (self.dir / "musterctl").symlink_to(pathlib.Path(MUSTERCTL).resolve())
        def offered(*words):
            line = " ".join(f"'{word}'" for word in words)
            code = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _musterctl; echo ${{COMPREPLY[*]}}"
            done = subprocess.run(["bash", "-c", code], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True, cwd=self.dir,
                                  env={**self.environment(), "PATH": f"{self.dir}:{os.environ['PATH']}"})
            return [word for word in done.stdout.split() if not word.startswith("--")]
        self.assertEqual(offered("musterctl", "status", ""), ["job-17"])
        self.assertEqual(offered("musterctl", "drain", "job-17", ""), ["c_2_0"])
        self.assertEqual(offered("musterctl", "--completion", "f"), ["fish"])
        self.assertIn("completion", offered("musterctl", "runs", "--tls-ca", ""))
        self.assertEqual(offered("musterctl", "logs", "--tail", ""), [])
        if shutil.which("tcsh"):
            (self.dir / "musterctl.csh").write_text(self.ctl("--completion", "tcsh").stdout)
            tcsh = tcsh_lines.Shell(self.dir, "musterctl.csh", **{
                **self.environment(), "PATH": f"{self.dir}:{os.environ['PATH']}"})
            self.addCleanup(tcsh.close)
            for line, expected in (("musterctl sta", ["stacks", "status"]), ("musterctl status ", ["job-17"]),
                                   ("musterctl drain job-17 ", ["c_2_0"]), ("musterctl --completion ", ["bash", "fish", "tcsh", "zsh"]),
                                   ("musterctl doctor --no", ["--no-torch", "--nodes", "--notice"])):
                self.assertEqual(sorted(tcsh.offered(line)), expected, line)
        else:
            print("tcsh is not installed: its script is not tried")
        if shutil.which("fish"):
            (self.dir / "fish").write_text(self.ctl("--completion", "fish").stdout)
            for line, expected in (("status ", "job-17"), ("drain job-17 ", "c_2_0"), ("--completion ", "bash\nfish\ntcsh\nzsh")):
                done = subprocess.run(["fish", "--no-config", "-c", f"source fish; complete -C 'musterctl {line}'"],
                                      stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True, cwd=self.dir,
                                      env={**self.environment(), "PATH": f"{self.dir}:{os.environ['PATH']}"})
                words = [word for word in done.stdout.splitlines() if not word.startswith("-")]
                self.assertEqual("\n".join(words), expected, line)


if __name__ == "__main__":
    main()
