#!/usr/bin/env python3
"""Secrets that muster is given or passes on (the token, the workers' environment and arguments) are in nothing that it
writes: the console, log files, failure reports, records of events, files beside the logs, musterd's log."""
import json
import os
import pathlib
import sys

from mixed import MusterdTest
from nodes import TORCH_PYTHON
from support import MusterTest, main, wait_for
from token_test import write_token

TOKEN = "canary-token-0123456789abcdefghijklmnop"
VARIABLE = "canary-variable-5f2d"
ARGUMENT = "canary-argument-91ac"
CANARIES = (TOKEN, VARIABLE, ARGUMENT)

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


class Canary(MusterTest):
    def written(self):
        """{path: bytes} of everything below the test's folders, but what the test itself has written."""
        found = {}
        for folder in (self.dir, pathlib.Path(self.memory)):
            for path in folder.rglob("*"):
                if path.is_file() and path.name not in ("rdzv-token", "job.py"):
                    found[path] = path.read_bytes()
        return found

    def check(self, written):
        for path, text in written.items():
            for canary in CANARIES:
                at = text.find(canary.encode())
                self.assertEqual(at, -1, f"{path}: {text[max(0, at - 200):at + 100]}")

    def run_job(self, end, *options, **env):
        job = self.script("job.py", FAILS.format(what=ENDS[end]))
        code, out, err = self.run_muster(
            "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", f"--rdzv-token-file={write_token(self.dir)}",
            "--nproc-per-node=2", "--log-dir=logs", "-t3", "--failure-report=report.json", "--event-log-handler=console",
            *options, job, f"--password={ARGUMENT}",
            env={"API_KEY": VARIABLE, "LOGLEVEL": "DEBUG", "TORCHELASTIC_ERROR_FILE": str(self.dir / "own_error.json"),
                 **env})
        self.assertEqual(code, 0 if end == "success" else 1, err)
        return out + err

    def test_however_a_job_ends(self):
        for end in ("success", "exit", "exception", "signal"):
            with self.subTest(end=end):
                self.run_job(end, "--max-restarts=1")
                written = self.written()
                self.check(written)
                if end != "success":  # The test looks where something is.
                    self.assertIn("failures", json.loads(written[self.dir / "report.json"]))
                    self.assertIn(b"errorCode", written[self.dir / "own_error.json"])

    def test_stacks_of_a_job_that_hangs(self):
        # Where py-spy is, if it is installed: it shows command lines by itself.
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
        process.wait(60)


class AtMusterd(MusterdTest):
    def start_musterd(self):
        self.musterd_options = [f"--rdzv-token-file={write_token(self.dir)}", "--log-level=debug"]
        super().start_musterd()

    def test_musterds_log(self):
        for tag in "ab":
            self.node(tag, 2, f"--rdzv-token-file={self.dir}/rdzv-token", command=[str(self.worker), ARGUMENT],
                      env={"API_KEY": VARIABLE, "LOGLEVEL": "DEBUG"})
        self.round_of(2)
        self.tell("exit.a", "3")
        self.ends(a=1, b=1)
        log = self.all_output()
        self.assertIn("round_complete", log)
        for canary in CANARIES:
            self.assertNotIn(canary, log)


if __name__ == "__main__":
    sys.exit(main())
