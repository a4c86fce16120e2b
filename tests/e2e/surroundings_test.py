#!/usr/bin/env python3
"""muster works, or says why not, whatever signals, limits and files it was started with."""
import os
import signal
import sys

from support import MusterTest, main, shim_of


class Signals(MusterTest):
    def test_a_parent_that_ignores_sigchld(self):
        code, _, err = self.run_muster(
            "--standalone", "--no-python", "--nproc-per-node=2", "/bin/sh", "-c", "exit 3",
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(code, 1)
        self.assertIn("exitcode  : 3", err)  # Not lost: with SIG_IGN nobody could wait for it.

    def test_every_signal_ignored_or_blocked(self):
        """As a careless parent may leave them: muster goes on, stops when asked, and dies of it."""
        numbers = set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}

        def ignore_all():
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)

        for spoil in (ignore_all, lambda: signal.pthread_sigmask(signal.SIG_BLOCK, numbers)):
            self.run_muster("--standalone", "--no-python", "--nproc-per-node=2", "/bin/sh", "-c",
                            "sleep 0.01; exit 0", preexec_fn=spoil, expect=0)
            (self.dir / "ready").unlink(missing_ok=True)
            process = self.start("--standalone", "--no-python", "--nproc-per-node=2",
                                 "--shutdown-timeout=1", "/bin/sh", "-c",
                                 "echo x >> ready; exec sleep 1000", preexec_fn=spoil)
            self.ready(2)
            process.terminate()
            self.assertEqual(process.wait(60), 1)
            self.assert_nothing_left()

    def test_what_workers_inherit(self):
        names = ["SIGCHLD", "SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGUSR1", "SIGWINCH"]

        def spoil():
            for name in names:
                signal.signal(getattr(signal, name), signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

        _, out, _ = self.run_muster(
            "--standalone", "--no-python", "/bin/sh", "-c",
            # The kernel's own words, of a program that changes nothing of it.
            "exec grep -E '^Sig(Ign|Blk)' /proc/self/status", preexec_fn=spoil, expect=0)
        masks = {line.split(":")[0]: int(line.split(":")[1], 16) for line in out.splitlines()}

        def has(mask, name):
            return bool(masks[mask] >> (getattr(signal, name) - 1) & 1)

        ignored = {name for name in names if has("SigIgn", name)}
        self.assertEqual(ignored, {"SIGHUP", "SIGUSR1", "SIGWINCH"})

    def test_background_job_of_a_shell(self):
        """It ignores SIGINT and SIGQUIT for what it starts so; kill -INT ends muster still."""
        process = self.start("--standalone", "--no-python", "/bin/sh", "-c",
                             "echo x >> ready; exec sleep 1000",
                             preexec_fn=lambda: [signal.signal(n, signal.SIG_IGN)
                                                 for n in (signal.SIGINT, signal.SIGQUIT)])
        self.ready(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 1)
        self.assertIn("received SIGINT", self.read("err"))

    def test_a_signal_to_all_of_musters_processes_counts_once(self):
        """As systemd and `pkill muster` send it: still graceful, not the second that kills."""
        process = self.start("--standalone", "--no-python", "/bin/sh", "-c",
                             "trap 'echo graceful; sleep 0.2; exit 0' TERM; echo x >> ready; "
                             "while :; do sleep 0.01; done")
        self.ready(1)
        shim = shim_of(process.pid)
        for pid in (shim, process.pid):
            os.kill(pid, signal.SIGTERM)
        self.assertEqual(process.wait(60), 1)
        self.assertIn("graceful", self.read("out"))
        self.assertNotIn("again", self.read("err"))


if __name__ == "__main__":
    sys.exit(main())
