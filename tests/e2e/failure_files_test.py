#!/usr/bin/env python3
"""Tests what muster writes to stderr and to files if a job does not end with success."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

from nodes import NodesTest
from support import MUSTER, PATIENCE_S, MusterTest, main, wait_for

# Reports that it runs and then waits for a signal, with or without a handler.
WAIT = "#!/bin/sh\n{trap}\necho x >> ready\nwhile :; do sleep 1000 & wait $!; done\n"
SIGNALLED = r"torch\.distributed\.elastic\.multiprocessing\.api\.SignalException: " \
            r"Process {pid} got signal: 15"


class Files(MusterTest):
    """The launcher's own error file, and --failure-report."""

    def run_both(self, *args, **more):
        (self.dir / "own.json").unlink(missing_ok=True)
        (self.dir / "report.json").unlink(missing_ok=True)
        return self.run_muster("--failure-report=report.json", *args,
                               env={"TORCHELASTIC_ERROR_FILE": str(self.dir / "own.json")}, **more)

    def own(self):
        """The message in the launcher's own error file, which every torchrun-like parent can read."""
        message = json.loads(self.read("own.json"))["message"]
        self.assertGreater(int(message["extraInfo"]["timestamp"]), 1_700_000_000)
        self.assertTrue(message["extraInfo"]["py_callstack"])
        return message["message"]

    def test_a_wrong_value_of_an_option(self):
        self.run_both("--nproc-per-node", "x", "prog", expect=1)
        self.assertRegex(self.own(), "^ValueError: --nproc-per-node")
        report = json.loads(self.read("report.json"))
        self.assertEqual((report["ended_by"], report["failures"]), ("refused", []))
        self.assertIn("--nproc-per-node", report["reason"])

    def test_usage_errors_and_dry_runs_write_nothing(self):
        self.run_both("--no-such-option", "prog", expect=2)
        self.run_both("--dry-run", "--nproc-per-node", "x", "prog", expect=1)
        self.assertEqual(self.read("own.json") + self.read("report.json"), "")

    def test_a_program_that_is_not_there(self):
        self.run_both("--standalone", "--no-python", "no-such-program", expect=1)
        self.assertRegex(self.own(), "^OSError: .*no-such-program")
        self.assertEqual(json.loads(self.read("report.json"))["ended_by"], "start_failed")

    def test_a_log_directory_that_cannot_be_made(self):
        (self.dir / "file").write_text("")
        self.run_both("--standalone", "--log-dir=file/logs", "--no-python", "true", expect=1)
        self.assertIn("--log-dir", self.own())

    def test_a_rendezvous_that_fails(self):
        self.run_both("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
                      "--rdzv-conf=join_timeout=1,read_timeout=1", "--rdzv-id=x",
                      "--no-python", "true", expect=1)
        self.assertRegex(self.own(), "^RendezvousError: ")
        self.assertEqual(json.loads(self.read("report.json"))["ended_by"], "rendezvous_failed")

    def test_a_signal(self):
        process = self.start("--standalone", "--nproc-per-node=2", "--failure-report=report.json",
                             "--no-python", self.script("wait.sh", WAIT.format(trap="")),
                             env={"TORCHELASTIC_ERROR_FILE": str(self.dir / "own.json")})
        self.ready(2)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.own(), f"SignalException: Process {process.pid} got signal: 15")
        report = json.loads(self.read("report.json"))
        self.assertEqual(report["ended_by"], "signalled")
        self.assertIsNone(report["first_failure"])
        self.assertEqual([one["victim"] for one in report["failures"]], [True, True])

    def test_a_workers_failure_and_success(self):
        self.run_both("--standalone", "--no-python", "sh", "-c", "exit 3", expect=1)
        self.assertEqual(json.loads(self.read("own.json"))["message"]["errorCode"], 3)
        self.assertEqual(json.loads(self.read("report.json"))["ended_by"], "worker_failed")
        self.run_both("--standalone", "--no-python", "true", expect=0)
        self.assertEqual(self.read("own.json") + self.read("report.json"), "")

    def test_muster_launch_writes_no_error_file(self):
        # torch.distributed.launch does not record errors of its main function either.
        link = self.dir / "muster-launch"
        link.symlink_to(MUSTER)
        for args in (["--use-env", "--no-python", "false"], ["--nproc-per-node", "x", "prog"]):
            done = subprocess.run(
                [link, *args], cwd=self.dir, timeout=60, check=False, capture_output=True,
                env=self.environment(TORCHELASTIC_ERROR_FILE=str(self.dir / "own.json")))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertFalse((self.dir / "own.json").exists())

    def test_a_fifo_and_a_link_at_the_path_of_the_report_are_kept(self):
        os.mkfifo(self.dir / "fifo")
        (self.dir / "target").write_text("old")
        (self.dir / "link").symlink_to("target")
        reader = os.open(self.dir / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fail = ("--no-python", "sh", "-c", "exit 3")
        self.run_muster("--standalone", "--failure-report=fifo", *fail, expect=1)
        self.assertIn(b'"exitcode": 3', os.read(reader, 65536))
        self.run_muster("--standalone", "--failure-report=link", *fail, expect=1)
        self.assertTrue((self.dir / "link").is_symlink())
        self.assertIn('"exitcode": 3', self.read("target"))
        # The file behind the link must not be replaced: its content would be lost.
        _, out, _ = self.run_muster("--standalone", "--failure-report=/dev/stdout", "--no-python",
                                    "sh", "-c", "echo first; exit 3", expect=1)
        self.assertTrue(out.startswith("first\n{\n"), out)

    def test_a_mount_point_is_written_in_place(self):
        (self.dir / "inside").write_text("")
        (self.dir / "log").write_text("")
        script = self.script("mount.sh", f"#!/bin/sh\nmount --bind log inside || exit 77\n"
                             f"{MUSTER} --standalone --failure-report=inside --no-python false\n")
        done = subprocess.run(["unshare", "-m", str(script)], cwd=self.dir, timeout=60, check=False,
                              env=self.environment(), capture_output=True)
        if done.returncode != 1 or b"muster" not in done.stderr + done.stdout:
            self.skipTest(f"no mounts here: {done}")
        self.assertIn('"exitcode": 1', self.read("log"))


class Lines(MusterTest):
    def stopped(self, *args, trap="", count=2):
        process = self.start("--standalone", f"--nproc-per-node={count}", *args, "--no-python",
                             self.script("wait.sh", WAIT.format(trap=trap)))
        self.ready(count)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        return process.pid, self.read("err")

    def test_a_signal_in_torchruns_words(self):
        pid, err = self.stopped()
        self.assertIn("] Received 15 death signal", err)
        self.assertEqual(len(re.findall(r"\] Sending process \d+ closing signal SIGTERM\n", err)),
                         2, err)
        self.assertNotIn("forcefully", err)
        self.assertRegex(err.splitlines()[-1], SIGNALLED.format(pid=pid))

    def test_workers_that_do_not_listen(self):
        _, err = self.stopped("--shutdown-timeout=1", trap="trap '' TERM")
        self.assertEqual(len(re.findall(
            r"\] Unable to shutdown process \d+ via 15, forcefully exiting via 9\n", err)), 2, err)

    def test_many_workers_share_a_line(self):
        _, err = self.stopped(count=11)
        self.assertEqual(len(re.findall(r"Sending process \d+ closing signal SIGTERM\n", err)), 8)
        self.assertEqual(err.count("Sending 3 more processes closing signal SIGTERM\n"), 1, err)

    def test_a_line_names_the_worker_that_is_stopped_after_a_failure(self):
        script = self.script("fail.sh", "#!/bin/sh\n[ $RANK = 0 ] && exit 3\nexec sleep 1000\n")
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--no-python", script,
                                    expect=1)
        pid = re.search(r"exitcode  : -15 \(pid: (\d+)\)", err)[1]
        self.assertIn(f"Sending process {pid} closing signal SIGTERM\n", err)

    def test_info_shows_the_launch_and_each_round(self):
        args = ("--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python", "sh", "-c",
                "exit 3")
        _, _, err = self.run_muster(*args, expect=1)
        self.assertNotIn("Rendezvous", err)
        _, _, err = self.run_muster(*args, env={"LOGLEVEL": "INFO"}, expect=1)
        for line in ("Starting elastic_operator with launch configs:", "  nproc_per_node           : 2",
                     "[default] Rendezvous'ing worker group",
                     "[default] Rendezvous complete for workers. Result:", "  restart_count=1",
                     "  local_ranks=[0, 1]", "  global_world_sizes=[2, 2]",
                     "[default] Worker group FAILED. 1/1 attempts left; will restart worker group",
                     "[default] Stopping worker group"):
            self.assertRegex(err, r"(?m)^I\d{4} [\d:.]+ \d+ muster\] " + re.escape(line) + "$")
        self.assertNotIn("worker_started", err)
        _, _, err = self.run_muster("--standalone", "--no-python", "true",
                                    env={"LOGLEVEL": "INFO"}, expect=0)
        self.assertIn("[default] worker group successfully finished.", err)
        self.assertIn("Done waiting for other agents. Elapsed: ", err)

    def test_debug_shows_each_worker(self):
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-r3",
                                    "--no-python", "sh", "-c", "exit 0",
                                    env={"LOGLEVEL": "DEBUG"}, expect=0)
        for rank in range(2):
            self.assertRegex(err, rf'worker_started local_rank={rank} rank={rank} pid=\d+ '
                                  rf'command="sh \(and 2 arguments\)" stdout=\S+/{rank}/stdout.log '
                                  rf'stderr=\S+/{rank}/stderr.log error_file=\S+/{rank}/error.json')
            self.assertRegex(err, rf"worker_ended local_rank={rank} .* exitcode=0")

    def test_a_workers_last_line_comes_before_our_line_about_its_end(self):
        for size in [1] * 30 + [20000] * 10:
            process = subprocess.run(
                [MUSTER, "--standalone", "--no-python", "sh", "-c",
                 f"seq 1 {size} >&2; echo last words >&2; exit 3"], cwd=self.dir, timeout=60,
                env=self.environment(), check=False, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            err = process.stderr.decode()
            self.assertLess(err.index("\nlast words\n"), err.index("failed (exitcode: 3)"), err)
            self.assertEqual(err.count("failed (exitcode: 3)"), 1)

    def test_the_program_is_named_as_it_was_given(self):
        _, _, err = self.run_muster("--standalone", "--no-python", "sh", "-c", "exit 3", expect=1)
        self.assertRegex(err, r"\(pid: \d+\) of binary: sh\n")

    def test_every_zero_of_a_script_is_a_success(self):
        for code in ("0.0", "None", "False"):
            script = self.script("ends.py", f"import sys\nsys.exit({code})\n")
            self.run_muster("--standalone", "--run-path", script, expect=0)

    def test_run_path_shows_no_frame_of_muster_for_a_syntax_error(self):
        script = self.script("wrong.py", "x = = 1\n")
        _, _, err = self.run_muster("--standalone", "--run-path", script, expect=1)
        self.assertIn("SyntaxError: invalid syntax", err)
        self.assertIn(f'File "{script}", line 1', err)
        for frame in ("<string>", "runpy"):
            self.assertNotIn(frame, err)

    def test_run_path_shows_the_first_failure_alone(self):
        script = self.script("one.py", "import os, time\n"
                             "if os.environ['RANK'] == '0': raise ValueError('boom')\n"
                             "time.sleep(1000)\n")
        _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--run-path", script,
                                    expect=1)
        self.assertIn("Failures:\n  <NO_OTHER_FAILURES>\n", err)
        self.assertEqual(err.count("exitcode  :"), 1)


class Phases(NodesTest):
    """Sends a signal in every phase of a job. The limits are generous because the machine may be
    busy."""

    def answers(self, tag, code):
        begun = time.monotonic()
        self.nodes[tag].terminate()
        self.ends(**{tag: code})
        # Without the signal the node would end only at the join timeout or with the other node.
        self.assertLess(time.monotonic() - begun, 30)

    def test_in_the_rendezvous(self):
        self.node("a", 2)
        wait_for(lambda: self.port_is_open(), "the store")
        self.answers("a", -signal.SIGTERM)

    def port_is_open(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def test_while_the_host_is_not_there(self):
        self.node("a", 2, "--rdzv-conf=is_host=false,join_timeout=300",
                  env={"LOGLEVEL": "INFO"})
        wait_for(lambda: "Rendezvous'ing" in self.read("err.a"), "the rendezvous")
        self.answers("a", -signal.SIGTERM)

    def test_while_it_waits_for_the_others_to_finish(self):
        self.node("a", 2)
        self.node("b", 2, env={"LOGLEVEL": "INFO"})
        self.round_of(2)
        self.tell("finish.b")
        wait_for(lambda: "Waiting for other agents" in self.read("err.b"), "the wait")
        self.answers("b", 1)
        err = self.read("err.b")
        self.assertIn("Received 15 death signal", err)
        self.assertIn("Received 15 death signal (SIGTERM): the other nodes are not waited for", err)
        self.assertRegex(err.splitlines()[-1],
                         SIGNALLED.format(pid=self.nodes["b"].pid))
        self.tell("finish")
        self.nodes["a"].wait(PATIENCE_S)  # The exit code is success, or a failure if b was the host.


if __name__ == "__main__":
    sys.exit(main())
