#!/usr/bin/env python3
"""Tests jobs with a token: at musterd, at one of their own nodes, and with invalid token files."""
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from mixed import SHORT_LEASE_S, MusterdTest
from musterd import MUSTERD, run_musterd
from native_peer import OtherHost
from nodes import REACH, NodesTest
from support import MUSTER, PATIENCE_S, MusterTest, main, wait_for

for folder in ("attack", "support"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))
import token_peers  # noqa: E402
from certificates import Authority  # noqa: E402

TOKEN = "canary-token-0123456789abcdefghijklmnop"


def write_token(folder, text=TOKEN, name="rdzv-token"):
    path = folder / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


class TokenJob(MusterdTest):
    access = []  # Further options of musterd and of the muster nodes.
    file_token = TOKEN

    def start_musterd(self):
        self.musterd_options = [f"--rdzv-token-file={write_token(self.dir, self.file_token)}", *self.access]
        super().start_musterd()

    def arguments(self, tag, nnodes, extra):
        token = [] if tag in self.launchers else [f"--rdzv-token-file={self.dir}/rdzv-token", *self.access]
        return super().arguments(tag, nnodes, [*token, *extra])


class MusterdAway(TokenJob):
    lease_s = SHORT_LEASE_S

    def test_workers_go_on_while_musterd_is_away_and_after_it_is_back(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.stop_musterd()
        # This is longer than a node may run without reaching any other one. The nodes ask rank 0's
        # store, which also has the token.
        end = time.monotonic() + 2 * self.lease_s + 3
        while time.monotonic() < end:
            self.assertEqual(len(self.starts()), 2, self.all_output())
            time.sleep(0.05)
        self.comes_back()

    def test_why_a_host_refuses_is_told_while_the_workers_train(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.stop_musterd()
        # The nodes' file keeps the old token.
        self.musterd_options = [f"--rdzv-token-file={write_token(self.dir, 'other-' + TOKEN, 'other-token')}"]
        MusterdTest.start_musterd(self)
        self.says("ab", "does not take this node back, and the nodes of this round reach each other: training goes on "
                        "(the latest attempt: ")
        for tag in "ab":
            self.assertIn("this node's token differs from the rendezvous' token", self.read(f"err.{tag}"))
            self.assertNotIn("does not answer", self.read(f"err.{tag}"))
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.stop_musterd()
        self.comes_back()

    def test_another_program_at_musterds_port_ends_no_job(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.stop_musterd()
        welcome = {"type": "welcome", "protocol_version": 1, "muster_version": "0", "peer_address": "127.0.0.1"}
        for answer in ({"type": "refused", "text": "go home"},
                       {"type": "refused", "text": "go home", "proof": "0" * 64}, welcome):
            host = OtherHost(answer, self.port)
            wait_for(lambda host=host: len(host.hellos) >= 4, "the nodes to ask it")
            self.assertEqual(len(self.starts()), 2, self.all_output())
            self.assertNotIn(TOKEN, json.dumps(host.hellos))
            host.close()
        self.comes_back()

    def test_nodes_read_a_token_again_that_was_renewed_meanwhile(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=1")
        self.round_of(2)
        self.stop_musterd()
        self.file_token = "renewed-" + TOKEN
        self.start_musterd()
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd2"), "the round to be resumed")
        self.tell("exit.a", "3")
        self.round_of(2, after=2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_node_that_is_started_with_a_renewed_token_joins_the_next_round(self):
        self.conf = self.conf.replace("last_call_timeout=600", "last_call_timeout=1")
        for tag in "ab":
            self.node(tag, "1:3", "--max-restarts=1")
        self.round_of(2)
        self.stop_musterd()
        self.file_token = "renewed-" + TOKEN
        self.start_musterd()
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd2"), "the round to be resumed")
        self.node("c", "1:3", "--max-restarts=1")
        self.round_of(3, after=2)
        for tag in "abc":
            self.assertNotIn("does not know this node's token", self.read(f"err.{tag}"))
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def comes_back(self):
        self.start_musterd()
        wait_for(lambda: "round_resumed run=job" in self.read(f"err.musterd{self.musterds}"), "the round to be resumed")
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assertEqual(len(self.starts()), 2, self.all_output())


class AtMusterd(TokenJob):
    def test_a_job_that_restarts_and_ends(self):
        self.a_job_that_restarts()

    def test_the_variable_and_the_service_managers_credential_are_the_defaults(self):
        self.stop_musterd()
        self.musterd_options = []
        MusterdTest.start_musterd(self)
        self.stop_musterd()
        (self.dir / "credentials").mkdir()
        write_token(self.dir / "credentials")
        for environment in ({"CREDENTIALS_DIRECTORY": str(self.dir / "credentials")},
                            {"MUSTER_RDZV_TOKEN_FILE": str(self.dir / "credentials" / "rdzv-token")}):
            self.lets_in_nodes_with_its_token_only(environment)

    def lets_in_nodes_with_its_token_only(self, environment):
        process = run_musterd(self, port=self.port, log=self.dir / "err.other", env={**os.environ, **environment})
        without = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-id=x", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                   "--rdzv-conf=is_host=false", "--no-python", "/bin/true"]

        def run(**env):
            return subprocess.run([MUSTER, *without], env=self.environment(**env), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        refused = run()
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("it lets in only nodes that have its token", refused.stderr)
        self.assertEqual(run(**environment).returncode, 0)
        process.end()


class RunTokensTest(TokenJob):
    """A run with its own token: the cluster's token no longer opens it."""
    own = "of-this-run-0123456789abcdef"

    def start_musterd(self):
        self.run_tokens = write_token(self.dir, f"# whose\njob {self.own}", "run-tokens")
        self.access = self.options()
        super().start_musterd()
        self.access = self.node_options()

    def node_options(self):
        return []

    def refused(self, run, token):
        job = ["--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-id={run}", f"--rdzv-endpoint=127.0.0.1:{self.port}",
               "--rdzv-conf=is_host=false", f"--rdzv-token-file={token}", *self.access, "--no-python", "/bin/true"]
        done = subprocess.run([MUSTER, *job], env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        if done.returncode == 0:
            return False
        self.assertIn("this node's token differs from the rendezvous' token", done.stderr)
        return True

    def reload(self, lines, says):
        """Replaces the tokens. Returns what musterd logs until `says`."""
        before = len(self.read("err.musterd1"))
        write_token(self.dir, lines, "run-tokens")
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: says in self.read("err.musterd1")[before:], says)
        return self.read("err.musterd1")[before:]

    def reads_the_list_again(self):
        own = write_token(self.dir, self.own, "own")
        self.assertFalse(self.refused("job", own))
        self.reload("job short", "line 1: its token has 5 characters")
        self.assertFalse(self.refused("job", own))
        self.reload("job another-0123456789abcdef", "config_reloaded")
        self.assertTrue(self.refused("job", own))


class RunTokens(RunTokensTest):
    def options(self):
        (self.dir / "config.json").write_text(json.dumps({"rdzv-run-tokens": str(self.run_tokens)}))
        return [f"--config={self.dir}/config.json", "--http=127.0.0.1:0"]

    def test_a_job_with_its_own_token_and_no_other(self):
        common = self.dir / "rdzv-token"
        self.assertTrue(self.refused("job", common))
        self.assertFalse(self.refused("other", common))
        own = write_token(self.dir, self.own)  # The nodes of TokenJob read this file.
        self.assertTrue(self.refused("other", own))
        self.a_job_that_restarts()

    def test_the_common_token_begins_no_run_whose_state_is_a_key_of_this_run(self):
        node = token_peers.Node(self.port)
        self.addCleanup(node.close)
        answer = node.enter("job.0/MASTER_ADDR", TOKEN)
        self.assertEqual(answer["type"], "refused", answer)
        self.assertIn("looks like a key of a round of another run", answer["text"])

    def test_the_list_is_read_again_at_a_reload(self):
        self.reads_the_list_again()
        self.assertNotIn("another-0123456789abcdef", self.read("err.musterd1"))

    def test_another_file_needs_a_restart(self):
        """A run keeps the tokens of the file that musterd was started with, as the log says."""
        own = write_token(self.dir, self.own, "own")
        other = write_token(self.dir, "other another-0123456789abcdef", "other-tokens")
        for config in ({"rdzv-run-tokens": str(other)}, {}):
            (self.dir / "config.json").write_text(json.dumps(config))
            said = self.reload(f"job {self.own}", "config_reloaded changed=0 needs_restart=1")
            self.assertIn("config_needs_restart key=rdzv-run-tokens", said)
            self.assertTrue(self.refused("job", self.dir / "rdzv-token"))
            self.assertFalse(self.refused("job", own))
            self.assertFalse(self.refused("other", self.dir / "rdzv-token"))
        self.reload("job another-0123456789abcdef", "config_reloaded")
        self.assertTrue(self.refused("job", own))

    def test_a_node_that_has_joined_by_an_older_token_stays(self):
        write_token(self.dir, self.own)
        self.node("a", 2)
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a"), "a to wait")
        newer = "newer-0123456789abcdefgh"
        write_token(self.dir, f"job {newer}", "run-tokens")
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: "config_reloaded" in self.read("err.musterd1"), "the reload")
        write_token(self.dir, newer)
        self.node("b", 2)
        self.round_of(2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_http_asks_for_the_common_token(self):
        wait_for(lambda: "HTTP at" in self.read("err.musterd1"), "HTTP")
        port = int(re.search(r"HTTP at http://127\.0\.0\.1:(\d+)/", self.read("err.musterd1"))[1])

        def status(token):
            key = hmac.new(token.encode(), b"muster http, protocol 1\nread", hashlib.sha256).hexdigest()
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            self.addCleanup(line.close)
            line.request("GET", "/api/v1/runs", headers={"Authorization": f"Bearer {key}"})
            return line.getresponse().status
        self.assertEqual(status(TOKEN), 200)
        self.assertEqual(status(self.own), 401)

    def test_only_beside_a_common_token(self):
        done = subprocess.run([MUSTERD, "--port=0", f"--rdzv-run-tokens={self.run_tokens}"], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("only with --rdzv-token-file", done.stderr)


class RunTokensWithoutConfig(RunTokensTest):
    """All options are on the command line: SIGHUP reads the files that they name."""

    def options(self):
        return [f"--rdzv-run-tokens={self.run_tokens}"]

    def test_the_list_is_read_again_at_a_reload(self):
        self.reads_the_list_again()


class RunTokensBesideTls(RunTokensWithoutConfig):
    def options(self):
        Authority(self.dir).issue("server")
        return [*super().options(), f"--tls-cert={self.dir}/server.pem", f"--tls-key={self.dir}/server.key"]

    def node_options(self):
        return [f"--rdzv-tls-ca={self.dir}/ca.pem"]


class AtANode(NodesTest):
    def setUp(self):
        super().setUp()
        self.worker.write_text(REACH + self.worker.read_text())
        write_token(self.dir)

    def test_the_node_that_hosts_asks_for_the_token(self):
        token = f"--rdzv-token-file={self.dir}/rdzv-token"
        self.node("a", 2, token)
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a"), "a to wait")
        self.node("x", 2, "--rdzv-conf=is_host=false")
        self.ends(x=1)
        self.assertIn("it lets in only nodes that have its token", self.read("err.x"))
        self.node("b", 2, "--rdzv-conf=is_host=false", token)
        self.round_of(2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)


class Files(MusterTest):
    def refused(self, path, text):
        job = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", f"--rdzv-token-file={path}",
               "--no-python", "/bin/true"]
        _, _, err = self.run_muster(*job, expect=1)
        self.assertIn(text, err)
        done = subprocess.run([MUSTERD, "--port=0", f"--rdzv-token-file={path}"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        self.assertIn(done.returncode, (1, 2))
        self.assertIn(text, done.stderr)
        self.assertNotIn(TOKEN, err + done.stderr)

    def test_files_that_are_no_good_are_refused_with_advice(self):
        path = write_token(self.dir)
        path.chmod(0o644)
        self.refused(path, f"every user of this machine may read it: `chmod 600 {path}` takes that back")
        self.refused(write_token(self.dir, "short", "short"), "fewer than 16")
        self.refused(write_token(self.dir, "", "empty"), "it is empty")
        self.refused(write_token(self.dir, TOKEN + " " + TOKEN, "two"), "one word of printable ASCII")
        self.refused(self.dir / "missing", "No such file")

    def test_an_empty_name_is_no_way_to_have_no_token(self):
        _, _, err = self.run_muster("--nnodes=1", "--rdzv-backend=c10d", "--rdzv-token-file=", "--no-python",
                                    "/bin/true", expect=1)
        self.assertIn("--rdzv-token-file is empty", err)
        done = subprocess.run([MUSTERD, "--port=0", "--rdzv-token-file="], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_libcrypto_is_loaded_only_where_there_is_a_token(self):
        def loaded(*options):
            self.run_muster("--dry-run", "--nnodes=1", "--rdzv-backend=c10d", *options, "--no-python", "/bin/true",
                            env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(self.dir / "loaded")}, expect=0)
            text = "".join(path.read_text() for path in self.dir.glob("loaded.*"))
            for path in self.dir.glob("loaded.*"):
                path.unlink()
            return "libcrypto" in text
        self.assertFalse(loaded())
        self.assertTrue(loaded(f"--rdzv-token-file={write_token(self.dir)}"))


if __name__ == "__main__":
    sys.exit(main())
