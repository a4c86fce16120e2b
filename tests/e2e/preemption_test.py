#!/usr/bin/env python3
"""Tests notices on one node: how muster learns that its node goes, what the workers are told, and how the job ends."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from support import PATIENCE_S, SOURCE, MusterTest, agent_of, main, shim_of, wait_for

# Each worker writes what it is told into told.RANK, and does with it what its argument says.
WORKER = """
import json, os, signal, sys, time
import muster_worker
rank, how = os.environ["RANK"], sys.argv[1]
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    how = "waits"
def write(name, text=""):
    with open(name + "." + rank + ".new", "w") as file:
        file.write(text)
    os.rename(name + "." + rank + ".new", name + "." + rank)
def on_term(number, frame):
    write("terminated")
    sys.exit(0)
if how == "ignores":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "catches":
    signal.signal(signal.SIGTERM, on_term)
if "itself" in sys.argv:
    muster_worker.ends_itself()
with open("ready", "a") as file:
    file.write(rank + "\\n")
last = None
while True:
    notice = muster_worker.notice()
    if notice and notice != last:
        last = notice
        write("told", json.dumps({**notice._asdict(), "left": notice.seconds_left()}))
        if how == "saves":
            write("saved")
            muster_worker.saved()
            sys.exit(0)
        if how == "answers":
            muster_worker.saved()
            write("answered")
        if how == "finishes":
            sys.exit(0)
        if how == "fails" and rank == "0":
            muster_worker.saved()
            sys.exit(3)
    time.sleep(0.02)
"""


# What the example of docs/preemption.md leaves out, for one rank.
AROUND_THE_EXAMPLE = """
import pathlib, sys, time
first, steps, any_rank_has, barrier = 0, int(sys.argv[1]), bool, lambda: None
def train(step):
    with open("ready", "a") as file:
        file.write("0\\n" if step == 0 else "")
    time.sleep(0.005)
def save(step):
    pathlib.Path("saved").write_text(str(step))
"""


class PreemptionTest(MusterTest):
    def job(self, how, *options, workers=2, **popen):
        script = self.script("worker.py", WORKER)
        env = {"PYTHONPATH": str(SOURCE / "worker_sdk/python")}
        process = self.start("--standalone", f"--nproc-per-node={workers}", *options, "--no-python", sys.executable,
                             script, *how.split(), env=env, **popen)
        self.ready(workers)
        return process

    def told(self, rank=0):
        return json.loads(wait_for(lambda: self.read(f"told.{rank}"), "a worker to be told"))

    def ends(self, process, code):
        self.assertEqual(process.wait(PATIENCE_S), code, self.read("err"))
        self.assert_nothing_left()


class Signals(PreemptionTest):
    SIGNALS = "--notice-signals=SIGUSR1@600"

    def test_all_workers_save_and_the_job_ends_long_before_the_deadline(self):
        for code, options in ((1, ()), (75, ("--exit-code=propagate",))):
            with self.subTest(code):
                for name in ("told.0", "told.1", "saved.0", "saved.1", "ready"):
                    (self.dir / name).unlink(missing_ok=True)
                process = self.job("saves itself", self.SIGNALS, *options, f"--failure-report={self.dir}/report.json")
                process.send_signal(signal.SIGUSR1)
                self.ends(process, code)
                for rank in (0, 1):
                    told = self.told(rank)
                    self.assertEqual((told["reason"], told["doomed"], told["doomed_ranks"], told["follow"], told["id"]),
                                     ("SIGUSR1", True, [[0, 1]], "stop", 1))
                    # 30 s of the 600 s are for the stop.
                    self.assertTrue(500 < told["left"] <= 570, told)
                    self.assertTrue((self.dir / f"saved.{rank}").exists())
                err = self.read("err")
                self.assertIn("notice: this node goes in 600 s (SIGUSR1)", err)
                self.assertIn("the job was stopped because of a notice", err)
                self.assertNotIn("closing signal", err)  # Nobody was signalled.
                report = json.loads(self.read("report.json"))
                self.assertEqual(report["ended_by"], "preempted")
                self.assertIn("SIGUSR1", report["reason"])

    def test_the_example_of_the_page(self):
        page = (SOURCE / "docs/preemption.md").read_text()
        example = self.script("example.py", AROUND_THE_EXAMPLE + page.split("```python\n")[1].split("```")[0])
        env = {"PYTHONPATH": str(SOURCE / "worker_sdk/python")}
        alone = subprocess.run([sys.executable, example, "3"], env=env, cwd=self.dir, timeout=PATIENCE_S, check=False)
        self.assertEqual((alone.returncode, self.read("saved")), (0, ""))
        (self.dir / "ready").unlink()
        process = self.start("--standalone", self.SIGNALS, "--exit-code=propagate", "--no-python", sys.executable, example,
                             1_000_000, env=env)
        self.ready(1)
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 75)
        self.assertRegex(self.read("saved"), r"^\d+$")
        self.assertNotIn("closing signal", self.read("err"))

    def test_a_signal_that_every_process_of_the_job_gets(self):
        process = self.job("saves", self.SIGNALS, "--exit-code=propagate", start_new_session=True)
        for pid in sorted(self.token.processes()):
            with contextlib.suppress(ProcessLookupError):  # The first signal may have ended the workers already.
                os.kill(pid, signal.SIGUSR1)
        self.ends(process, 75)
        self.assertEqual(self.told()["id"], 1)
        self.assertEqual(self.read("err").count("notice: this node goes"), 1)

    def test_a_worker_that_has_answered_and_lives_is_stopped_when_all_have_answered(self):
        process = self.job("answers", self.SIGNALS, "--exit-code=propagate")
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 75)
        self.assertEqual(self.read("err").count("closing signal SIGTERM"), 2, self.read("err"))

    def test_a_worker_that_promised_to_end_itself_and_lives_is_stopped_later(self):
        process = self.job("answers itself", self.SIGNALS, "--exit-code=propagate", "--shutdown-timeout=3")
        began = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 75)
        self.assertGreaterEqual(time.monotonic() - began, 2.7)  # Nine tenths of the time for the stop.
        self.assertEqual(self.read("err").count("closing signal SIGTERM"), 2, self.read("err"))

    def test_a_worker_that_does_not_end_after_sigterm_is_killed(self):
        process = self.job("ignores", "--notice-signals=SIGUSR1@2", "--exit-code=propagate", "--shutdown-timeout=1")
        began = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 75)
        self.assertGreaterEqual(time.monotonic() - began, 2)  # One until the deadline, and one for the stop.

    def test_workers_ignore_the_signal_of_a_notice(self):
        process = self.job("waits", self.SIGNALS)
        for words in ("workers", "muster"):
            for pid, command in self.token.processes().items():
                if command.startswith(sys.executable) == (words == "workers"):
                    os.kill(pid, signal.SIGUSR1)
        self.told()
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)

    def test_at_the_deadline_workers_that_have_not_answered_are_stopped(self):
        # Half of the 4 s are the workers': the stop could take all of them.
        process = self.job("catches", "--notice-signals=SIGUSR1@4", "--exit-code=propagate")
        began = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        self.assertLessEqual(self.told()["left"], 2)
        self.ends(process, 75)
        self.assertGreaterEqual(time.monotonic() - began, 2)
        for rank in (0, 1):
            self.assertTrue((self.dir / f"terminated.{rank}").exists())

    def test_a_worker_that_ends_without_an_answer_has_finished(self):
        process = self.job("finishes", self.SIGNALS, "--exit-code=propagate")
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 0)

    def test_a_worker_that_fails_after_its_answer_has_failed(self):
        process = self.job("fails", self.SIGNALS, "--exit-code=propagate")
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 3)

    def test_a_notice_survives_a_restart_of_the_workers(self):
        process = self.job("fails", self.SIGNALS, "--max-restarts=1")
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: len(self.read("ready").split()) == 4, "the restart")
        for rank in (0, 1):  # The new workers are told, too.
            wait_for(lambda: self.told(rank)["id"] > 1, "the new worker to be told")
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)

    def test_the_earliest_notice_counts(self):
        process = self.job("waits", "--notice-signals=SIGUSR1@600,SIGALRM@100", "--shutdown-timeout=0")
        process.send_signal(signal.SIGUSR1)
        first = self.told()
        process.send_signal(signal.SIGALRM)
        wait_for(lambda: self.told()["id"] == 2, "the second notice")
        second = self.told()
        self.assertEqual((first["reason"], second["reason"]), ("SIGUSR1", "SIGALRM"))
        self.assertTrue(90 < second["left"] <= 100, second)
        process.send_signal(signal.SIGUSR1)  # It changes nothing.
        time.sleep(0.5)
        self.assertEqual(self.told()["id"], 2)
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)

    def test_a_signal_that_ends_the_job_does_so_during_a_notice(self):
        process = self.job("waits itself", self.SIGNALS, "--shutdown-timeout=3", "--exit-code=propagate")
        process.send_signal(signal.SIGUSR1)
        self.told()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: self.told()["reason"] == "SIGTERM", "the stop's own notice")
        self.assertLessEqual(self.told()["left"], 2.7)
        self.ends(process, 128 + signal.SIGTERM)

    def test_a_worker_that_waits_after_its_answer_does_not_hang(self):
        process = self.job("answers", "--notice-signals=SIGUSR1@12", "--shutdown-timeout=0", "--hang-timeout=2",
                           "--exit-code=propagate", workers=1)
        # Without the other worker's answer nobody stops this one.
        self.assertEqual(process.poll(), None)
        process.send_signal(signal.SIGUSR1)
        self.ends(process, 75)


class Programs(PreemptionTest):
    def test_a_line_is_the_notice(self):
        process = self.job("saves", "--notice-from=while ! [ -e goes ]; do sleep 0.05; done; "
                           "echo 600 spot instance i-1; sleep 1000", "--exit-code=propagate")
        self.assertEqual(self.read("told.0"), "")
        (self.dir / "goes").touch()
        self.ends(process, 75)  # The program has ended, too.
        self.assertEqual(self.told()["reason"], "spot instance i-1")

    def test_further_lines_are_further_notices_and_its_stderr_is_musters(self):
        process = self.job("waits", "--notice-from=echo 600 first; while ! [ -e goes ]; do sleep 0.05; done; "
                           "echo its own words >&2; echo 100; sleep 1000", "--shutdown-timeout=0")
        self.assertEqual(self.told()["reason"], "first")
        (self.dir / "goes").touch()
        wait_for(lambda: self.told()["id"] == 2, "the second notice")
        self.assertTrue(90 < self.told()["left"] <= 100, self.told())
        self.assertEqual(self.told()["reason"], "")
        self.assertIn("\nits own words\n", self.read("err"))
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)

    def test_the_end_with_status_0_is_the_notice(self):
        process = self.job("saves", "--notice-from=while ! [ -e goes ]; do sleep 0.05; done", "--notice-seconds=300",
                           "--exit-code=propagate")
        (self.dir / "goes").touch()
        self.ends(process, 75)
        told = self.told()
        self.assertEqual(told["reason"], "the program of --notice-from")
        self.assertTrue(200 < told["left"] <= 270, told)

    def test_a_program_that_fails_is_started_again(self):
        program = self.script("program.sh", "#!/bin/sh\necho x >> runs\n[ $(wc -l < runs) -lt 3 ] && exit 7\n"
                                            "echo 600 third\nsleep 1000\n")
        process = self.job("saves", f"--notice-from={program}", "--exit-code=propagate")
        self.ends(process, 75)
        self.assertEqual(self.told()["reason"], "third")
        err = self.read("err")
        self.assertIn("its program exited with 7: starting it again in 1 s", err)
        self.assertIn("its program exited with 7: starting it again in 2 s", err)

    def test_what_is_no_notice_is_named_and_does_nothing(self):
        process = self.job("waits", "--notice-from=echo hello; echo 5s; echo 1e9 x; "
                           "yes | head -c 100000; touch printed; sleep 1000")
        wait_for(lambda: (self.dir / "printed").exists(), "the output")
        wait_for(lambda: "further such lines are not shown" in self.read("err"), "the warning")
        err = self.read("err")
        self.assertEqual(err.count("is no notice"), 3, err)
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)

    def test_the_program_gets_time_to_clean_up_at_the_jobs_end(self):
        # The shell waits for its child: it runs its trap when that has ended.
        program = self.script("program.py", f"#!{sys.executable}\nimport signal, sys, time\n"
                              "def end(*_):\n    open('cleaned', 'w')\n    sys.exit(0)\n"
                              "signal.signal(signal.SIGTERM, end)\nopen('runs', 'w')\ntime.sleep(1000)\n")
        process = self.job("saves", f"--notice-from={program}")
        wait_for(lambda: (self.dir / "runs").exists(), "the program")
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)
        self.assertTrue((self.dir / "cleaned").exists())

    def test_a_program_that_ignores_sigterm_is_killed(self):
        process = self.job("waits", "--notice-from=trap '' TERM; touch runs; while true; do sleep 1; done")
        wait_for(lambda: (self.dir / "runs").exists(), "the program")
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)

    def test_the_program_is_killed_with_any_process_of_muster(self):
        for name, victim in (("agent", agent_of), ("shim", shim_of), ("front", lambda pid: pid)):
            with self.subTest(name):
                (self.dir / "ready").unlink(missing_ok=True)
                process = self.job("waits", f"--notice-from=sleep {self.token.sleep}; true")
                wait_for(lambda: any(self.token.sleep in words for words in self.token.processes().values()), "the program")
                os.kill(victim(process.pid), signal.SIGKILL)
                self.assertEqual(process.wait(PATIENCE_S), -signal.SIGKILL if name == "front" else 1)
                self.assert_nothing_left()

    def test_a_program_that_is_not_there(self):
        process = self.job("waits", "--notice-from=/no/such/program")
        wait_for(lambda: "its program exited with 127: starting it again in 1 s" in self.read("err"), "the warning")
        process.send_signal(signal.SIGTERM)
        self.ends(process, 1)


class Options(MusterTest):
    def test_the_plan_shows_them(self):
        _, out, _ = self.run_muster("--standalone", "--dry-run", "--notice-signals=SIGUSR1@90,SIGALRM",
                                    "--notice-from=watch it", "--notice-seconds=45", "--no-python", "true", expect=0)
        self.assertRegex(out, r"notices +SIGUSR1 \(90 s\) SIGALRM \(45 s\)")
        self.assertRegex(out, r"notice from +watch it, 45 s if it ends and names no time")
        self.assertRegex(out, r"passed on +none")

    def test_values_that_are_refused(self):
        for words, what in ((["--notice-signals=SIGTERM@5"], "SIGTERM"), (["--notice-signals=SIGUSR1@x"], "'SIGUSR1@x'"),
                            (["--notice-seconds=-1"], "--notice-seconds")):
            code, _, err = self.run_muster("--standalone", *words, "--no-python", "true")
            self.assertEqual(code, 1, err)
            self.assertIn(what, err)


if __name__ == "__main__":
    main()
