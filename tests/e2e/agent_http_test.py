#!/usr/bin/env python3
"""Tests muster --http: the page, the API, metrics and musterctl for a run without musterd."""
import http.client
import json
import os
import re
import socket
import subprocess

from nodes import NodesTest
from support import MUSTER, PATIENCE_S, main, wait_for

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")


class AgentHttp(NodesTest):
    def url_port(self, *tags):
        """The HTTP port of the one node among `tags` that hosts the run."""
        found = lambda: [port for tag in tags for port in
                         re.findall(r"HTTP at http://127\.0\.0\.1:(\d+)/ shows", self.read(f"err.{tag}"))]
        try:
            ports = wait_for(found, "the line with the URL")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None
        self.assertEqual(len(ports), 1, self.all_output())
        return int(ports[0])

    def ask(self, port, target):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("GET", target)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def ctl(self, port, *words, expect=0):
        done = subprocess.run([MUSTERCTL, *words, f"--endpoint=127.0.0.1:{port}"], capture_output=True, text=True,
                              timeout=PATIENCE_S, env=self.environment(), check=False)
        self.assertEqual(done.returncode, expect, f"{words}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def is_running(self, port, run="job"):
        wait_for(lambda: json.loads(self.ask(port, f"/api/v1/runs/{run}")[1]).get("state") == "running", "the round")

    def ends(self, code, *tags):
        for tag in tags:
            self.assertEqual(self.nodes[tag].wait(PATIENCE_S), code, self.output(tag))

    def launch(self, *words):
        """Runs a command line that must fail without starting a worker. Returns its stderr."""
        done = subprocess.run([MUSTER, *words, "touch", str(self.dir / "started")], capture_output=True, text=True,
                              timeout=PATIENCE_S, env=self.environment(), cwd=self.dir, check=False)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.dir / "started").exists())
        return done.stderr

    def test_two_nodes_with_the_same_command_line(self):
        for tag in "ab":
            self.node(tag, "2", "--max-restarts=2", "--http=0", "--tee=3", f"--log-dir={self.dir / ('logs.' + tag)}")
        self.round_of(2)
        port = self.url_port("a", "b")
        self.is_running(port)
        self.assertIn("<title>", self.ask(port, "/")[1])
        self.assertEqual(self.ask(port, "/readyz")[0], 200)
        self.assertIn('muster_runs{state="running"} 1\n', self.ask(port, "/metrics")[1])
        self.assertRegex(self.ctl(port, "runs"), r"\njob +running +.+? +0 +2/2 ")
        # The worker has printed nothing so far.
        self.assertEqual(self.ctl(port, "logs", "job", "1"), "")
        self.ctl(port, "restart", "job")
        self.round_of(2, after=2)
        self.tell("exit.a", "3")
        self.round_of(2, after=4)
        wait_for(lambda: "failed first" in self.ctl(port, "why", "job"), "the failure")
        self.tell("finish")
        self.ends(0, "a", "b")

    def test_standalone(self):
        self.nodes["a"] = process = self.start("--standalone", "--http=0", "--nproc-per-node=2", "--no-python",
                                               "sleep", "600")
        (self.dir / "err.a").symlink_to(self.dir / "err")
        port = self.url_port("a")
        run = wait_for(lambda: json.loads(self.ask(port, "/api/v1/runs")[1])["runs"], "the run")[0]["id"]
        self.is_running(port, run)
        nodes = json.loads(self.ask(port, f"/api/v1/runs/{run}/nodes")[1])["nodes"]
        self.assertEqual([(node["address"], node["local_world_size"]) for node in nodes], [("127.0.0.1", 2)])
        self.assertEqual(self.listeners(nodes[0]["pid"]), {"127.0.0.1"})
        self.ctl(port, "stop", run)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("an operator has stopped it", self.read("err"))

    def listeners(self, pid):
        """The addresses at which this process listens."""
        inodes = set()
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")))
            except FileNotFoundError:
                pass
        addresses = set()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                for line in list(lines)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[9] in inodes:
                        raw = bytes.fromhex(fields[1].split(":")[0])
                        addresses.add(socket.inet_ntoa(raw[::-1]) if len(raw) == 4 else raw.hex())
        return addresses

    def test_with_a_token_it_asks_for_it(self):
        token = self.dir / "token"
        token.write_text("a-token-for-tests-only-0123456789\n")
        token.chmod(0o600)
        self.node("a", "1", "--http=0", f"--rdzv-token-file={token}")
        self.round_of(1)
        port = self.url_port("a")
        self.assertEqual(self.ask(port, "/api/v1/runs")[0], 401)
        self.assertIn("token", self.ctl(port, "runs", expect=1))
        with_token = f"--rdzv-token-file={token}"
        wait_for(lambda: "running" in self.ctl(port, "runs", with_token), "the round")
        self.ctl(port, "stop", "job", with_token)
        self.ends(1, "a")

    def test_values_of_http_that_are_refused(self):
        c10d = ["--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint()}", "--no-python"]
        self.assertIn("Give --rdzv-token-file", self.launch("--http=0.0.0.0:0", *c10d))
        self.assertIn("Give --rdzv-token-file", self.launch("--http=0.0.0.0:0", "--standalone", "--no-python"))
        self.assertIn("--http: 'x' is neither a port", self.launch("--http=x", *c10d))
        static = ["--nnodes=2", "--node-rank=0", "--master-port=1", "--no-python"]
        self.assertIn("static backend has none", self.launch("--http=0", *static))
        several = [*c10d[:2], "--rdzv-endpoint=127.0.0.1:1,127.0.0.1:2", "--no-python"]
        self.assertIn("several musterds", self.launch("--http=0", *several))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            said = self.launch(f"--http={taken.getsockname()[1]}", *c10d)
        self.assertIn("--http: ", said)
        self.assertIn("in use", said)


if __name__ == "__main__":
    main()
