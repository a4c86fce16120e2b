#!/usr/bin/env python3
"""Tests that secrets which muster is given or passes on (tokens, the workers' environment and
arguments) do not appear in anything that muster writes or serves: the console, log files, failure
reports, records of events, files beside the logs, musterd's log, HTTP and state, and what musterctl
prints."""
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys

from mixed import MusterdTest
from musterctl_test import MUSTERCTL
from nodes import TORCH_PYTHON
from ports import free_port
from support import PATIENCE_S, MusterTest, main, wait_for
from token_test import write_token

TOKEN = "canary-token-0123456789abcdefghijklmnop"
RUN_TOKEN = "canary-run-token-0123456789abcdefghijkl"
VARIABLE = "canary-variable-5f2d"
ARGUMENT = "canary-argument-91ac"
CANARIES = (TOKEN, RUN_TOKEN, VARIABLE, ARGUMENT)

FAILS = """
import os, signal, sys, time
assert os.environ["API_KEY"] and len(sys.argv) == 2
{what}
"""
ENDS = {
    "exit": "sys.exit(3)",
    "exception": "raise ValueError('what the user says')",
    "signal": "os.kill(os.getpid(), signal.SIGSEGV)",
    "hang": "time.sleep(1000)",
    "success": "",
}


def is_core(path):
    with path.open("rb") as file:
        return file.read(17)[:4] == b"\x7fELF" and path.name.startswith("core")


class Canary(MusterTest):
    def written(self):
        """{path: bytes} of all files in the test's folders, except those that the test itself has
        written."""
        found = {}
        for folder in (self.dir, pathlib.Path(self.memory)):
            for path in folder.rglob("*"):
                # The kernel writes core files, which contain all of a worker's memory.
                if path.is_file() and path.name not in ("rdzv-token", "job.py") and not is_core(path):
                    found[path] = path.read_bytes()
        return found

    def check(self, written):
        for path, text in written.items():
            for canary in CANARIES:
                at = text.find(canary.encode())
                self.assertEqual(at, -1, f"{path}: {text[max(0, at - 200):at + 100]}")

    def run_job(self, end, *options, popen=None, **env):
        job = self.script("job.py", FAILS.format(what=ENDS[end]))
        code, out, err = self.run_muster(
            "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", f"--rdzv-token-file={write_token(self.dir)}",
            "--nproc-per-node=2", "--log-dir=logs", "-t3", "--failure-report=report.json", "--event-log-handler=console",
            *options, job, f"--password={ARGUMENT}",
            env={"API_KEY": VARIABLE, "LOGLEVEL": "DEBUG", "TORCHELASTIC_ERROR_FILE": str(self.dir / "own_error.json"),
                 **env}, **(popen or {}))
        self.assertEqual(code, 0 if end == "success" else 1, err)
        return out + err

    def test_however_a_job_ends(self):
        for end in ("success", "exit", "exception", "signal"):
            with self.subTest(end=end):
                self.run_job(end, "--max-restarts=1")
                written = self.written()
                self.check(written)
                if end != "success":  # Ensures that the search above has something to find.
                    self.assertIn("failures", json.loads(written[self.dir / "report.json"]))
                    self.assertIn(b"errorCode", written[self.dir / "own_error.json"])

    def test_a_worker_whose_memory_the_kernel_writes_to_a_core(self):
        def allow_cores():
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY and os.geteuid() != 0:
            self.skipTest("the limit of cores may not be raised")
        said = self.run_job("signal", popen={"preexec_fn": allow_cores})
        self.assertIn("SIGSEGV", said)
        if pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip() == "core":
            self.assertTrue(any(is_core(path) for path in self.dir.glob("core*")), "the kernel has written no core")
            self.assertIn("core dumped", said)
        self.check(self.written())

    def test_stacks_of_a_job_that_hangs(self):
        # The path includes py-spy, if it is installed: py-spy itself prints command lines.
        path = os.pathsep.join([os.path.dirname(TORCH_PYTHON), os.environ["PATH"]])
        said = self.run_job("hang", "--hang-timeout=1", PATH=path)
        written = self.written()
        self.assertTrue(any(path.name.startswith("stacks.") and b"thread" in text for path, text in written.items()), said)
        self.check(written)

    def test_options_that_are_wrong(self):
        self.run_muster("--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-token-file={write_token(self.dir)}",
                        "--nproc-per-node=0", "--failure-report=report.json", "missing.py", f"--password={ARGUMENT}",
                        env={"API_KEY": VARIABLE}, expect=1)
        self.check(self.written())

    def test_no_process_of_muster_has_the_token_on_its_command_line_or_in_its_environment(self):
        job = self.script("job.py", "import time, sys\nopen('ready', 'w').write('x')\ntime.sleep(1000)\n")
        process = self.start("--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
                             f"--rdzv-token-file={write_token(self.dir)}", job)
        wait_for(lambda: self.read("ready"), "the worker")
        for pid in self.token.processes():
            for name in ("cmdline", "environ"):
                self.assertNotIn(TOKEN.encode(), pathlib.Path(f"/proc/{pid}/{name}").read_bytes())
        process.terminate()
        process.wait(PATIENCE_S)


class AtMusterd(MusterdTest):
    """A job whose run has its own token, at a musterd that keeps its state and has HTTP."""

    def start_musterd(self):
        self.http_port = free_port()
        token, run_token = write_token(self.dir), write_token(self.dir, RUN_TOKEN, "run-token")
        write_token(self.dir, f"{self.run_id} {run_token.read_text()}", "run-tokens")
        self.musterd_options = [f"--rdzv-token-file={token}", f"--rdzv-run-tokens={self.dir}/run-tokens",
                                f"--http=127.0.0.1:{self.http_port}", f"--state-dir={self.dir}/state", "--log-level=debug"]
        super().start_musterd()

    def job(self):
        for tag in "ab":
            self.node(tag, 2, f"--rdzv-token-file={self.dir}/run-token", "--max-restarts=1", "--tee=3",
                      f"--log-dir={self.dir}/logs.{tag}", command=[str(self.worker), ARGUMENT],
                      env={"API_KEY": VARIABLE, "LOGLEVEL": "DEBUG"})
        self.round_of(2)

    def check(self, where, text):
        for canary in CANARIES:
            at = text.find(canary)
            self.assertEqual(at, -1, f"{where}: {text[max(0, at - 200):at + 100]}")

    def check_state(self):
        files = [path for path in (self.dir / "state").rglob("*") if path.is_file()]
        self.assertTrue(any(b"job" in path.read_bytes() for path in files), files)
        for path in files:
            self.check(path, path.read_bytes().decode(errors="replace"))

    def ctl(self, *words):
        done = subprocess.run([MUSTERCTL, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env=self.environment(MUSTER_ENDPOINT=f"127.0.0.1:{self.http_port}",
                                                   MUSTER_RDZV_TOKEN_FILE=f"{self.dir}/rdzv-token"))
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def get(self, target, key):
        """The bytes that arrive within two seconds after the first byte: streams do not end."""
        with socket.create_connection(("127.0.0.1", self.http_port), PATIENCE_S) as line:
            line.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
                         .encode())
            text = line.recv(1 << 16)
            line.settimeout(2)
            with contextlib.suppress(TimeoutError):
                while piece := line.recv(1 << 16):
                    text += piece
        return text.decode(errors="replace")

    def test_musterds_log(self):
        self.job()
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        self.tell("exit.b", "3")
        self.ends(a=1, b=1)
        log = self.all_output()
        self.assertIn("round_complete", log)
        self.check("output", log)
        self.check_state()

    def test_what_musterd_serves_and_musterctl_prints(self):
        self.job()
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        wait_for(lambda: "round 1 runs" in self.ctl("status", "job"), "the second round")
        for word in ("runs", "status", "nodes", "why", "ps"):
            for form in ((), ("--json",)):
                text = self.ctl(word, *form)
                self.assertRegex(text, "127.0.0.1|job")
                self.check(f"musterctl {word}", text)
        # Ensures that musterctl shows the command lines.
        self.assertIn(str(self.worker), self.ctl("ps"))
        for words in (("logs", "job", "0"), ("logs", "job", "1", "--stderr"), ("stacks", "job", "0")):
            self.check(f"musterctl {words}", self.ctl(*words))
        key = self.ctl("key").strip()
        paths = json.loads(self.get("/api/v1/openapi.json", key).split("\r\n\r\n", 1)[1])["paths"]
        targets = [re.sub(r"\{id\}", "job", path).replace("{rank}", "0") for path, methods in paths.items() if "get" in methods]
        self.assertIn("/api/v1/runs/job/nodes", targets)
        for target in (*targets, "/", "/metrics", "/healthz", "/readyz", "/api/v1/runs/none", "/nothing"):
            answer = self.get(target, key)
            self.assertTrue(answer.startswith("HTTP/1.1 "), target)
            if target.startswith("/api/v1/runs/job"):
                self.assertRegex(answer, r"^HTTP/1\.1 (200|401|403)", target)
            self.check(f"GET {target}", answer)
        self.check_state()
        for number in (signal.SIGHUP, signal.SIGTERM):
            self.musterd.send_signal(number)
        self.musterd.wait(PATIENCE_S)
        self.check_state()
        self.tell("finish")
        self.check("output", self.all_output())


if __name__ == "__main__":
    sys.exit(main())
