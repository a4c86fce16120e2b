#!/usr/bin/env python3
"""Tests what musterd reports to a service manager; the test acts as the manager."""
import os
import signal
import socket
import time

from support import PATIENCE_S, MusterTest, main, wait_for
from musterd import run_musterd



class Notify(MusterTest):
    def setUp(self):
        super().setUp()
        self.path = str(self.dir / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(self.path)
        self.socket.settimeout(PATIENCE_S)

    def musterd(self, *prefix, bound=True, **env):
        # Variables of a service manager that started this test are not meant for musterd.
        inherited = {k: v for k, v in self.environment().items() if not k.startswith("WATCHDOG_")}
        inherited["NOTIFY_SOCKET"] = self.path if bound else str(self.dir / "nobody")
        return run_musterd(self, prefix=prefix, log=self.dir / "err", env={**inherited, **env}, ready=None)

    def next_message(self):
        return dict(line.split("=", 1) for line in self.socket.recv(65536).decode().split("\n"))

    def test_ready_after_it_listens_then_stopping(self):
        process = self.musterd()
        ready = self.next_message()
        self.assertEqual(ready["READY"], "1")
        endpoint = f"127.0.0.1:{process.says().port}"
        self.assertEqual(ready["STATUS"], f"listening on {endpoint}, 0 connections, 0 keys")
        socket.create_connection(("127.0.0.1", int(endpoint.split(":")[1])), PATIENCE_S).close()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: self.next_message().get("STOPPING") == "1", "that it stops")
        self.assertEqual(process.wait(PATIENCE_S), 0)
        expected = ("musterd: listening on", "access token=no")  # The log warns that musterd has no token.
        self.assertEqual([line for line in process.log().splitlines() if not any(text in line for text in expected)], [])

    def test_a_watchdog_that_is_not_set_or_not_its_own_is_not_fed(self):
        """The first message after READY comes with the first tick, after 10 s: the status has changed by then."""
        for name, env in (("not set", {}), ("another process's", {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"})):
            with self.subTest(name):
                process = self.musterd(**env)
                self.assertIn("READY", self.next_message())
                port = process.says().port
                with socket.create_connection(("127.0.0.1", port), PATIENCE_S):
                    self.assertEqual(list(self.next_message()), ["STATUS"])
                process.kill()
                process.wait(PATIENCE_S)

    def test_the_watchdog_is_fed_and_brings_the_status(self):
        process = self.musterd(WATCHDOG_USEC="100000")
        self.assertNotIn("WATCHDOG", self.next_message())
        port = process.says().port
        for _ in range(3):
            self.assertEqual(self.next_message(), {"WATCHDOG": "1"})
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S):
            status = wait_for(lambda: self.next_message().get("STATUS"), "another status")
        self.assertIn(" 1 connections", status)

    def test_a_loop_that_stands_still_feeds_nothing(self):
        process = self.musterd(WATCHDOG_USEC="100000")
        self.next_message()
        self.assertEqual(self.next_message(), {"WATCHDOG": "1"})
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        self.addCleanup(process.send_signal, signal.SIGCONT)
        # Messages that musterd sent before it stopped may still arrive; after them there is none.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        self.socket.settimeout(0.5)
        with self.assertRaises(TimeoutError):
            while time.monotonic() < stopped + PATIENCE_S:
                self.next_message()
        process.send_signal(signal.SIGCONT)
        self.socket.settimeout(PATIENCE_S)
        self.assertEqual(self.next_message(), {"WATCHDOG": "1"})

    def test_a_manager_that_is_gone_is_one_warning(self):
        process = self.musterd(bound=False, WATCHDOG_USEC="20000")
        wait_for(lambda: "service_manager_not_told" in self.read("err"), "the warning")
        port = process.says().port
        # musterd serves nevertheless.
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.read("err").count("service_manager_not_told"), 1)

    def test_without_the_library_it_serves_and_says_what_is_missing(self):
        library = next((f"{folder}/libsystemd.so.0" for folder in
                        ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64")
                        if os.path.exists(f"{folder}/libsystemd.so.0")), None)
        if os.geteuid() != 0 or library is None:
            self.skipTest("hides libsystemd in a mount namespace: needs root")
        hidden = ["unshare", "--mount", "sh", "-c",
                  f"mount --bind /dev/null {library} && exec \"$@\"", "sh"]
        process = self.musterd(*hidden)
        port = process.says().port
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertIn("libsystemd0 in Debian", self.read("err"))

    def test_without_a_manager_the_library_is_not_loaded(self):
        process = self.musterd(NOTIFY_SOCKET="")
        process.says()
        with open(f"/proc/{process.pid}/maps") as maps:
            self.assertNotIn("libsystemd", maps.read())


if __name__ == "__main__":
    main()
