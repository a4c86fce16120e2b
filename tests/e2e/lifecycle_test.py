#!/usr/bin/env python3
"""Tests one node with shell workers: start, monitoring, restart, stop and report."""
import json
import os
import re
import signal
import subprocess
import sys

from support import MUSTER, PATIENCE_S, MusterTest, main, wait_for

WORLD = ["RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE",
         "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
         "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE", "NODE_RANK"]


class Success(MusterTest):
    def test_every_worker_runs_once_with_its_place_in_the_world(self):
        script = self.script("show.sh", "#!/bin/sh\nenv > env.$LOCAL_RANK\n")
        self.run_muster("--standalone", "--nproc-per-node=3", "--max-restarts=2", "--no-python",
                        script, expect=0)
        for rank in range(3):
            env = dict(line.split("=", 1) for line in self.read(f"env.{rank}").splitlines())
            self.assertEqual([env[name] for name in WORLD],
                             [str(rank), str(rank), "0", str(rank), "default", "3", "3", "1", "3",
                              "0", "2", "True", "0"])
            self.assertEqual(env["OMP_NUM_THREADS"], "1")
            self.assertTrue(env["TORCHELASTIC_RUN_ID"])
            self.assertGreater(int(env["MASTER_PORT"]), 0)

    def test_the_worker_has_our_stdin_directory_and_streams(self):
        (self.dir / "in").write_text("from stdin\n")
        with open(self.dir / "in") as stdin:
            _, out, err = self.run_muster("--standalone", "--no-python", "/bin/sh", "-c",
                                          "read line; echo $line; pwd; echo to stderr >&2",
                                          stdin=stdin, expect=0)
        self.assertEqual(out, f"from stdin\n{self.dir}\n")
        self.assertIn("to stderr\n", err)

    def test_python_script_with_arguments(self):
        script = self.script("args.py", "import sys; print(sys.argv[1:], flush=True)\n")
        _, out, _ = self.run_muster("--standalone", script, "-r", "--nnodes", "7", "a b",
                                    "${local_rank}", expect=0)
        self.assertEqual(out, "['-r', '--nnodes', '7', 'a b', '0']\n")

    def test_module(self):
        self.script("a_module.py", "import sys; print(__name__, sys.argv[1:])\n")
        _, out, _ = self.run_muster("--standalone", "-m", "a_module", "x", expect=0,
                                    env={"PYTHONPATH": str(self.dir)})
        self.assertEqual(out, "__main__ ['x']\n")

    def test_nothing_stays_in_the_temporary_directory(self):
        script = self.script("where.sh", "#!/bin/sh\necho $TORCHELASTIC_ERROR_FILE\n")
        for flags in ([], ["-t1"]):
            with self.subTest(flags=flags):
                _, out, _ = self.run_muster("--standalone", *flags, "--no-python", script,
                                            expect=0)
                path = re.search(r"(/.*)/attempt_0/0/error.json", out)[1]
                self.assertFalse(os.path.exists(os.path.dirname(path)), path)
                self.assertEqual(os.listdir(self.dir / "tmp"), [])

    def test_two_jobs_at_once_do_not_collide(self):
        script = self.script("port.sh", "#!/bin/sh\necho $MASTER_PORT >> ready\nread line\n")
        jobs = [subprocess.Popen([MUSTER, "--standalone", "--no-python", str(script)],
                                 stdin=subprocess.PIPE, env=self.environment(), cwd=self.dir)
                for _ in range(2)]
        self.ready(2)
        self.assertEqual(len(set(self.read("ready").split())), 2)
        for job in jobs:
            job.communicate(b"\n", 60)
            self.assertEqual(job.returncode, 0)


class Logs(MusterTest):
    SAY = "#!/bin/sh\necho out $LOCAL_RANK\necho err $LOCAL_RANK >&2\n"

    def logs(self):
        return {str(path.relative_to(self.dir / "logs")).split("/", 1)[1]: path.read_text()
                for path in (self.dir / "logs").rglob("*.log")}

    def test_redirect_to_files_in_the_documented_layout(self):
        script = self.script("say.sh", self.SAY)
        _, out, _ = self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs", "-r3",
                                    "--no-python", script, expect=0)
        self.assertEqual(out, "")
        self.assertEqual(self.logs(), {
            f"attempt_0/{rank}/{name}.log": f"{text} {rank}\n"
            for rank in range(2) for name, text in (("stdout", "out"), ("stderr", "err"))})

    def test_tee_prefixes_whole_lines(self):
        script = self.script("say.sh", self.SAY)
        _, out, err = self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs",
                                      "-t3", "--role=trainer", "--no-python", script, expect=0)
        self.assertEqual(sorted(out.splitlines()), ["[trainer0]:out 0", "[trainer1]:out 1"])
        for rank in range(2):
            self.assertIn(f"[trainer{rank}]:err {rank}\n", err)
        self.assertEqual(self.logs()["attempt_0/1/stdout.log"], "out 1\n")

    def test_tee_of_one_rank_redirect_of_the_other(self):
        script = self.script("say.sh", self.SAY)
        _, out, _ = self.run_muster("--standalone", "--nproc-per-node=2", "--log-dir=logs",
                                    "-t", "0:1", "-r", "1:1", "--no-python", script, expect=0)
        self.assertEqual(out, "[default0]:out 0\n")
        self.assertEqual(sorted(self.logs()), ["attempt_0/0/stdout.log", "attempt_0/1/stdout.log"])

    def test_partial_lines_are_not_glued_together(self):
        # An unfinished line is shown after 250 ms without output, and a line of the other rank would end it. So each
        # rank prints alone, and stays until the other one has printed.
        script = self.script("partial.sh", "#!/bin/sh\nuntil [ -e go.$RANK ]; do sleep 0.01; done\n"
                                           "printf a; printf b; printf 'c\\nd'\n"
                                           "until [ -e end ]; do sleep 0.01; done\n")
        process = self.start("--standalone", "--nproc-per-node=2", "-t1", "--no-python", script)
        shown = []
        for rank in (1, 0):
            (self.dir / f"go.{rank}").touch()
            shown += [f"[default{rank}]:abc", f"[default{rank}]:d"]
            wait_for(lambda: self.read("out").splitlines() == shown, f"the lines of rank {rank}")
        (self.dir / "end").touch()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.read("out").splitlines(), shown)

    def test_partial_lines_of_two_ranks_at_once_are_not_mixed(self):
        script = self.script("partial.sh", "#!/bin/sh\nprintf a; printf b; printf 'c\\nd'\n")
        _, out, _ = self.run_muster("--standalone", "--nproc-per-node=2", "-t1", "--no-python",
                                    script, expect=0)
        for rank in range(2):
            prefix = f"[default{rank}]:"
            own = [line.removeprefix(prefix) for line in out.splitlines() if line.startswith(prefix)]
            self.assertEqual("".join(own), "abcd", out)
            self.assertEqual(own[-1], "d", out)

    def test_a_lot_of_output_arrives_whole_and_in_order(self):
        # Each write has a few whole lines and fits into a pipe at once, so no line is cut even if
        # the worker is slow.
        script = self.script("many.py", "#!/usr/bin/env python3\nimport os\n"
                                        "for n in range(1, 200001, 500):\n"
                                        "    text = ''.join(f'{i}\\n' for i in range(n, n + 500))\n"
                                        "    os.write(1, text.encode())\n")
        _, out, _ = self.run_muster("--standalone", "--nproc-per-node=2", "-t1", "--no-python",
                                    script, expect=0)
        lines = out.splitlines()
        for rank in range(2):
            prefix = f"[default{rank}]:"
            own = [line[len(prefix):] for line in lines if line.startswith(prefix)]
            self.assertEqual(own, [str(n) for n in range(1, 200001)])
        self.assertEqual(len(lines), 400000)

    def test_attempts_keep_their_files(self):
        script = self.script("fail.sh", "#!/bin/sh\necho attempt $TORCHELASTIC_RESTART_COUNT\n"
                                        "[ $TORCHELASTIC_RESTART_COUNT = 1 ]\n")
        self.run_muster("--standalone", "--max-restarts=1", "--log-dir=logs", "-r1", "--no-python",
                        script, expect=0)
        self.assertEqual(self.logs(), {"attempt_0/0/stdout.log": "attempt 0\n",
                                       "attempt_1/0/stdout.log": "attempt 1\n"})


class Failure(MusterTest):
    def test_restarts_up_to_the_limit_then_fails_with_1(self):
        script = self.script("fail.sh", "#!/bin/sh\necho $TORCHELASTIC_RESTART_COUNT >> counts\n"
                                        "exit 7\n")
        _, _, err = self.run_muster("--standalone", "--max-restarts=2", "--no-python", script,
                                    expect=1)
        self.assertEqual(self.read("counts").split(), ["0", "1", "2"])
        self.assertIn("exitcode  : 7 (pid: ", err)

    def test_a_restart_that_works_is_a_success(self):
        script = self.script("once.sh", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ]\n")
        self.run_muster("--standalone", "--max-restarts=3", "--nproc-per-node=2", "--no-python",
                        script, expect=0)

    def test_the_summary_names_the_first_failure_and_its_last_stderr_lines(self):
        script = self.script("second.sh", """#!/bin/sh
[ $LOCAL_RANK = 0 ] && exec sleep 1000
echo 'the reason why' >&2
exit 3
""")
        for flags in ([], ["-r", "2"], ["-t", "2"]):
            with self.subTest(flags=flags):
                _, _, err = self.run_muster("--standalone", "--nproc-per-node=2", *flags,
                                            "--no-python", script, expect=1)
                root = err.split("Root Cause (first observed failure):")[1]
                self.assertRegex(root, r"rank      : 1 \(local_rank: 1\)\n"
                                       r"  exitcode  : 3 \(pid: \d+\)")
                self.assertIn("the reason why", root)
                self.assertIn("second.sh FAILED", err)
                others = err.split("Failures:")[1].split("Root Cause")[0]
                self.assertIn("rank      : 0 (local_rank: 0)", others)
                self.assertIn("(SIGTERM)", others)

    def test_the_summary_leaves_frames_of_c_plus_plus_out(self):
        """torch writes dozens of them behind the cause."""
        frames = "".join(f"frame #{i}: c10::function_{i}() + 0x80 (0x7f00 in libtorch.so)\n" for i in range(60))
        (self.dir / "lines").write_text("the reason why\n" + frames + "after the frames\n")
        _, _, err = self.run_muster("--standalone", "--no-python", "sh", "-c", "cat lines >&2; exit 3", expect=1)
        report = err.split("Root Cause")[1]
        self.assertIn("the reason why", report)
        self.assertIn("after the frames", report)
        self.assertNotIn("frame #", report)

    def test_the_summary_shows_the_error_file(self):
        script = self.script("record.py", """
import json, os, sys
json.dump({"message": {"message": "ValueError: boom", "extraInfo": {
    "py_callstack": "Traceback: line one\\nline two", "timestamp": "1795252105"}}},
    open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
sys.exit(1)
""")
        _, _, err = self.run_muster("--standalone", script, expect=1)
        self.assertIn("traceback : Traceback: line one\n  line two", err)
        path = re.search(r"error_file: (\S+)", err)[1]
        self.assertTrue(os.path.exists(path), "the error file must stay after a failure")

    def test_a_torn_error_file_does_not_stop_a_restart(self):
        script = self.script("torn.sh", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n"
                                        "printf '{\"message\": {\"mess' > $TORCHELASTIC_ERROR_FILE\n"
                                        "exit 1\n")
        self.run_muster("--standalone", "--max-restarts=1", "--no-python", script, expect=0)

    def test_death_by_signal_is_shown_by_name(self):
        _, _, err = self.run_muster("--standalone", "--no-python", "/bin/sh", "-c",
                                    "kill -SEGV $$$$", expect=1)
        self.assertRegex(err, r"exitcode  : -11 \(pid: \d+\)  \(SIGSEGV\)")

    def test_a_program_that_is_not_there_fails_at_once(self):
        _, _, err = self.run_muster("--standalone", "--max-restarts=5", "--no-python",
                                    "./not-there", expect=1)
        self.assertIn("./not-there", err)
        self.assertIn("No such file or directory", err)
        self.assertNotIn("restart", err.lower().replace("--max-restarts", ""))

    def test_a_program_that_may_not_be_executed_fails_at_once(self):
        self.script("plain.sh", "exit 0\n").chmod(0o644)
        _, _, err = self.run_muster("--standalone", "--no-python", "./plain.sh", expect=1)
        self.assertIn("Permission denied", err)

    def test_a_bad_interpreter_fails_at_once(self):
        self.script("bad.sh", "#!/not/there\n")
        _, _, err = self.run_muster("--standalone", "--max-restarts=5", "--no-python", "./bad.sh",
                                    expect=1)
        self.assertIn("bad.sh", err)

    def test_failure_report_as_json(self):
        self.run_muster("--standalone", "--failure-report=report.json", "--no-python", "/bin/sh",
                        "-c", "exit 9", expect=1)
        report = json.loads(self.read("report.json"))
        self.assertIn("9", json.dumps(report))

    def failures(self, *args):
        """{rank: its entry in the failure report} of a job that fails."""
        self.run_muster("--standalone", "--failure-report=report.json", *args, expect=1)
        return {one["rank"]: one for one in json.loads(self.read("report.json"))["failures"]}

    def test_workers_that_fail_at_the_same_time_are_no_victims(self):
        for _ in range(10):
            for one in self.failures("--nproc-per-node=4", "--no-python", "/bin/sh", "-c",
                                     "exit 200").values():
                # Workers that were still alive were killed by the signal. Workers with an exit code
                # ended by themselves.
                self.assertEqual(one["victim"], one["signal"] == "SIGTERM", one)
                self.assertIn(one["exitcode"], (200, -15))

    def test_a_worker_that_crashes_by_itself_is_no_victim(self):
        for _ in range(10):
            found = self.failures("--nproc-per-node=2", "--no-python", "/bin/sh", "-c",
                                  "[ $RANK = 0 ] && exit 3; kill -SEGV $$$$")
            self.assertFalse(found[0]["victim"] and found[1]["victim"])
            self.assertEqual(found[1]["victim"], found[1]["signal"] == "SIGTERM", found[1])

    def test_a_worker_that_ends_in_its_handler_of_sigterm_is_a_victim(self):
        # Not sys.exit(): Python drops an exception of a handler that runs while a file object is finalized.
        script = self.script("handler.py", """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(int(sys.argv[1])))
open("ready", "a").write("x\\n")
while len(open("ready").read()) < 4 or os.environ["RANK"] == "1":
    time.sleep(0.002)
sys.exit(9)
""")
        for code in ("77", "9"):
            (self.dir / "ready").unlink(missing_ok=True)
            found = self.failures("--nproc-per-node=2", script, code)
            self.assertEqual([found[r]["victim"] for r in (0, 1)], [False, True], found)
            self.assertEqual(found[1]["exitcode"], int(code))

    def test_exit_code_propagate(self):
        for line, code in (("exit 9", 9), ("kill -TERM $$$$", 128 + 15)):
            self.run_muster("--standalone", "--exit-code=propagate", "--no-python", "/bin/sh",
                            "-c", line, expect=code)


class Usage(MusterTest):
    def test_bad_flags_exit_with_2(self):
        for flags in (["--no-such-flag", "x"], ["--max-restarts=two", "x"], ["--nproc", "2", "x"],
                      [], ["--standalone=1", "x"]):
            with self.subTest(flags=flags):
                _, _, err = self.run_muster(*flags, expect=2)
                self.assertIn("error:", err)

    def test_help_and_version(self):
        _, out, _ = self.run_muster("--help", expect=0)
        self.assertIn("--nproc-per-node", out)
        _, out, _ = self.run_muster("--version", expect=0)
        self.assertRegex(out, r"muster \d+\.\d+\.\d+")


class Signals(MusterTest):
    def test_each_handled_signal_goes_to_the_workers_and_ends_the_job_with_1(self):
        script = self.script("catch.py", """
import os, signal, sys, time
def caught(number, frame):
    with open("caught", "w") as f:
        f.write(signal.Signals(number).name)
    sys.exit(0)
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
    signal.signal(getattr(signal, name), caught)
open("ready", "w").write("x")
while True:
    time.sleep(0.05)  # Not signal.pause(): a signal that arrives just before that call would not end it.
""")
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
            with self.subTest(signal=name):
                for left in ("ready", "caught"):
                    (self.dir / left).unlink(missing_ok=True)
                process = self.start("--standalone", script)
                self.ready(1)
                process.send_signal(getattr(signal, name))
                self.assertEqual(process.wait(PATIENCE_S), 1)
                self.assertEqual(self.read("caught"), name)

    # A handler of a cluster's warning, for example, sends the launcher the signal that ends the job.
    def test_a_worker_that_signals_its_parent_ends_the_job(self):
        script = self.script("parent.sh", "#!/bin/sh\ntrap 'echo $RANK >> caught; exit 0' TERM\n"
                                          "echo x >> ready\n"
                                          "until [ $(wc -l < ready) = 2 ]; do sleep 0.01; done\n"
                                          "[ $RANK = 1 ] || kill -TERM $PPID\n"
                                          "while :; do sleep 1000 & wait $!; done\n")
        process = self.start("--standalone", "--nproc-per-node=2", "--no-python", script)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(sorted(self.read("caught").split()), ["0", "1"])

    def test_a_signal_to_the_launcher_and_the_workers_parent_at_once_is_one_event(self):
        script = self.script("slow.sh", "#!/bin/sh\ntrap 'sleep 2; echo saved > caught; exit 0' TERM\n"
                                        "echo $PPID > parent; echo x >> ready\n"
                                        "while :; do sleep 1000 & wait $!; done\n")
        process = self.start("--standalone", "--no-python", script)
        self.ready(1)
        os.kill(int(self.read("parent")), signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.read("caught"), "saved\n")

    def test_signals_to_handle_are_ours_to_choose(self):
        """SIGTSTP then is a signal like any other: it does not stop the job as ctrl-Z does."""
        for name, listed in (("USR1", "SIGUSR1"), ("TSTP", "SIGTERM,SIGTSTP")):
            with self.subTest(name):
                (self.dir / "ready").unlink(missing_ok=True)
                script = self.script("wait.sh", f"#!/bin/sh\ntrap 'echo {name} > caught; exit 0' {name}\n"
                                                "echo x >> ready\nwhile :; do sleep 1000 & wait $!; done\n")
                process = self.start("--standalone", f"--signals-to-handle={listed}", "--no-python", script)
                self.ready(1)
                process.send_signal(signal.Signals[f"SIG{name}"])
                self.assertEqual(process.wait(PATIENCE_S), 1)
                self.assertEqual(self.read("caught"), f"{name}\n")

    def test_sigtstp_that_is_to_be_handled_ends_muster_before_it_has_workers(self):
        process = self.start("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
                             "--signals-to-handle=SIGTERM,SIGTSTP", "--no-python", "true", env={"LOGLEVEL": "INFO"})
        wait_for(lambda: "Rendezvous'ing worker group" in self.read("err"), "the rendezvous")
        process.send_signal(signal.SIGTSTP)
        self.assertEqual(process.wait(PATIENCE_S), 128 + signal.SIGTSTP)

    def test_a_sigint_that_is_not_to_be_handled_stops_the_workers_first(self):
        script = self.script("save.sh", "#!/bin/sh\ntrap 'sleep 1; echo saved > caught; exit 0' TERM\n"
                                        "echo x >> ready\nwhile :; do sleep 1000 & wait $!; done\n")
        process = self.start("--standalone", "--signals-to-handle=SIGTERM", "--no-python", script)
        self.ready(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), -signal.SIGINT)
        self.assertEqual(self.read("caught"), "saved\n")

    def test_a_sigint_that_is_ignored_and_not_to_be_handled_has_no_effect(self):
        script = self.script("wait.sh", "#!/bin/sh\necho x >> ready\nread line < fifo\n")
        os.mkfifo(self.dir / "fifo")
        process = self.start("--standalone", "--signals-to-handle=SIGTERM", "--no-python", script,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.ready(1)
        process.send_signal(signal.SIGINT)
        with open(self.dir / "fifo", "w") as fifo:
            fifo.write("go\n")
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_nohup_keeps_the_job_alive(self):
        script = self.script("wait.sh", "#!/bin/sh\necho x >> ready\nread line < fifo\n")
        os.mkfifo(self.dir / "fifo")
        process = self.start("--standalone", "--no-python", script,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.ready(1)
        process.send_signal(signal.SIGHUP)
        with open(self.dir / "fifo", "w") as fifo:
            fifo.write("go\n")
        self.assertEqual(process.wait(PATIENCE_S), 0)


if __name__ == "__main__":
    sys.exit(main())
