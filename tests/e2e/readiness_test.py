#!/usr/bin/env python3
"""Tests /healthz and /readyz, for load balancers and monitors: each cause of "not ready", and its
end.

tests/etcd/etcd_test.py tests a musterd that stands by."""
import ctypes
import http.client
import json
import os
import re
import struct
import subprocess

from http_test import HttpTest
from musterd import run_musterd
from native_peer import OtherNode
from nodes import NodesTest
from support import PATIENCE_S, main, wait_for

GET = b"\x03"


class Held:
    """Stops one thread of a child process while the others run."""
    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17

    def __init__(self, test, pid):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self.libc.ptrace.restype = ctypes.c_long
        self.pid = pid
        if self.libc.ptrace(self.SEIZE, pid, None, None) != 0:
            test.skipTest(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
        self.libc.ptrace(self.INTERRUPT, pid, None, None)
        os.waitpid(pid, 0x40000000)  # __WALL. Waits until the thread has stopped.

    def release(self):
        self.libc.ptrace(self.DETACH, self.pid, None, None)


class Readiness(HttpTest):
    def readiness(self):
        """The status, and the code of the error."""
        status, _, text = self.ask("/readyz")
        return status, json.loads(text).get("error", {}).get("code")

    def becomes(self, *wanted):
        try:
            wait_for(lambda: self.readiness() == wanted, f"/readyz to say {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}, at last {self.readiness()}\n{self.all_output()}") from None


class Loop(Readiness):
    def test_a_loop_that_hangs(self):
        self.becomes(200, None)
        held = Held(self, self.musterd.pid)
        try:
            # This takes a moment: a view is valid for a quarter of a second.
            self.becomes(503, "no_answer")
            self.assertEqual(self.ask("/healthz")[0], 200)
        finally:
            held.release()
        self.becomes(200, None)


class State(Readiness):
    """The state is in its own small file system."""

    def start_musterd(self):
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("user namespaces may not mount here")
        state = self.dir / "state"
        state.mkdir()
        self.http_options = [f"--state-dir={state}", *type(self).http_options]
        self.musterd = run_musterd(
            self, *self.http_options, log=self.dir / "err.musterd", env=self.environment(), ready="HTTP at",
            prefix=["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m x "$0" && exec "$@"', state])
        self.port, self.http_port = self.musterd.port, self.musterd.http_port
        self.inside = f"/proc/{self.musterd.pid}/root{state}"

    def join(self, number):
        """A node joins, which is a change that must be recorded."""
        node = OtherNode(self.port)
        self.addCleanup(node.close)
        node.tell({"type": "hello", "protocol_version": 1, "muster_version": "1", "run_id": "job", "resumes": True})
        settings = {"min_nodes": 9, "max_nodes": 9, "max_restarts": 2, "scale_policy": "now",
                    "join_timeout_ns": 600000000000, "last_call_timeout_ns": 30000000000}
        node.tell({"type": "join", "name": {"addr": f"10.0.0.{number}", "pid": 1, "local_id": 0},
                   "instance": f"i{number}", "role": "default", "local_world_size": 1, "run": settings,
                   "protocol_version": 1, "muster_version": "1", "last_round": -1, "spare": False,
                   "hosts_rendezvous": False})

    def test_a_state_that_cannot_be_written(self):
        self.join(1)
        self.becomes(200, None)
        fill = os.open(f"{self.inside}/fill", os.O_WRONLY | os.O_CREAT, 0o600)
        self.addCleanup(os.close, fill)
        with self.assertRaisesRegex(OSError, "No space left"):
            while True:
                os.write(fill, b"x" * 4096)
        number = 1

        def not_recorded():  # The file may have room for some more changes.
            nonlocal number
            number += 1
            if number < 100:
                self.join(number)
            return self.readiness() == (503, "state_not_recorded")

        wait_for(not_recorded, "a change that finds no room")
        self.assertEqual(self.ask("/healthz")[0], 200)
        status, _, text = self.ask("/readyz")
        self.assertNotIn(str(self.dir), text)  # Any client may read this text.
        self.assertIn("muster_state_problem 1\n", self.ask("/metrics")[2])
        os.truncate(fill, 0)
        self.becomes(200, None)
        self.assertIn("muster_state_problem 0\n", self.ask("/metrics")[2])


class Ending(NodesTest):
    """A job that hosts its run ends: it waits up to two seconds for its last torchrun client."""

    def ready(self, port):
        """The status of /readyz; None if no process listens any more."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/readyz")
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read()).get("error", {}).get("code")
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def seen_while_it_ends(self, tag):
        (self.dir / "finish").unlink(missing_ok=True)
        after = len(self.starts())
        process = self.node(tag, "1", "--http=0", "--local-addr=127.0.0.1")
        self.round_of(1, after=after)
        found = wait_for(lambda: re.findall(r"HTTP at http://127\.0\.0\.1:(\d+)/", self.read(f"err.{tag}")), "HTTP")
        client = OtherNode(self.port)
        self.addCleanup(client.close)
        key = b"/torch.rendezvous.job"
        client.connection.sendall(GET + struct.pack("<Q", len(key)) + key)
        self.assertTrue(client.connection.recv(8))
        self.assertEqual(self.ready(int(found[0])), (200, None))
        (self.dir / "finish").touch()
        seen = set()
        while (now := self.ready(int(found[0]))) is not None:
            seen.add(now)
        self.assertEqual(process.wait(PATIENCE_S), 0, self.output(tag))
        return seen

    def test_a_job_that_ends(self):
        seen = set()
        for tag in "abcde":  # The two seconds may pass before a request is answered.
            seen |= self.seen_while_it_ends(tag)
            if (503, "ending") in seen:
                return
        self.fail(f"only {seen}\n{self.all_output()}")


if __name__ == "__main__":
    main()
