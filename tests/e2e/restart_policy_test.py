#!/usr/bin/env python3
"""Tests of --restart-policy: budgets by cause, attempts without progress, and the exit status of a job that gets no further."""
import json
import signal

from native_peer import Interpreter
from nodes import NodesTest
from support import MusterTest, main, wait_for

SENTENCE = "attempts ended before any progress: a further restart would hardly get further"

# Tells the steps of this attempt, as STEPS has them by attempt, and fails.
TELLER = """import json, os, socket, sys
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
os.write(1, f"attempt {attempt}\\n".encode())
steps = json.loads(os.environ["STEPS"])
if attempt >= len(steps): sys.exit(0)
for step in steps[attempt]:
    if "STEP_FILE" in os.environ:
        with open(os.environ["STEP_FILE"], "w") as f: f.write(f"{step}\\n")
        continue
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
    for message in ({"type": "hello", "local_rank": int(os.environ["LOCAL_RANK"])}, {"type": "progress", "step": step}):
        channel.sendall(json.dumps(message).encode() + b"\\n")
    channel.close()
sys.exit(3)
"""

# The rank 1 stands still in each attempt, but gets one step further before.
HANGER = """import json, os, socket, sys, threading
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
os.write(1, f"attempt {attempt}\\n".encode())
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
for message in ({"type": "hello", "local_rank": 0}, {"type": "progress", "step": attempt + 1}, {"type": "progress_end"}):
    channel.sendall(json.dumps(message).encode() + b"\\n")
if os.environ.get("FAILS_IN") == str(attempt): sys.exit(3)
threading.Event().wait()
"""

# Gets one step further in each attempt. Then its file timer runs out.
TIMED = HANGER.replace("if os.environ.get", """import time
with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as pipe:
    pipe.write(json.dumps({"version": 1, "pid": os.getpid(), "scope_id": "step", "expiration_time": time.time(),
                           "signal": 9}) + "\\n")
if os.environ.get""")


class RestartPolicy(MusterTest):
    def play(self, text, *options, expect, steps=(), **env):
        script = self.script("worker.py", text)
        report = self.dir / "report.json"
        report.unlink(missing_ok=True)
        _, out, err = self.run_muster("--standalone", "--exit-code=propagate", f"--failure-report={report}", *options,
                                      str(script), env={"STEPS": json.dumps(steps), **env}, expect=expect)
        self.assert_nothing_left()
        self.report = json.loads(report.read_text()) if report.exists() else None
        return out.count("attempt "), err

    def test_a_job_that_fails_at_once_is_ended_at_the_third_attempt(self):
        attempts, err = self.play(TELLER, "--restart-policy=failures=9", expect=70, steps=[[]] * 20)
        self.assertEqual(attempts, 3)
        self.assertIn("the last 3 " + SENTENCE, err)
        self.assertIn("waiting for 1 s before the restart (--restart-policy)", err)
        self.assertIn("waiting for 2 s before the restart (--restart-policy)", err)
        self.assertIn("the last 3 " + SENTENCE, self.report["advice"])
        self.assertEqual(len(self.report["earlier_attempts"]), 2)

    def test_steps_beyond_those_before_keep_the_job_going(self):
        # The second attempt repeats what the first one did, and costs double: 1 + 2 + 1 + 1 = 5.
        steps = [[1, 2], [1, 2], [2, 3], [4]]
        attempts, err = self.play(TELLER, "--restart-policy=failures=5", expect=0, steps=steps)
        self.assertEqual(attempts, 5)

    def test_a_budget_that_is_used_up_ends_the_job_with_the_failures_status(self):
        attempts, err = self.play(TELLER, "--restart-policy=failures=2", expect=3, steps=[[1], [2], [3], [4]])
        self.assertEqual(attempts, 3)
        self.assertNotIn(SENTENCE, err)
        self.assertIsNone(self.report["advice"])

    def test_the_progress_file_says_how_far_the_job_is(self):
        file = str(self.dir / "step")
        options = ("--restart-policy=failures=20", f"--progress-file={file}")
        attempts, err = self.play(TELLER, *options, expect=0, steps=[[1], [2], [3], [4]], STEP_FILE=file)
        self.assertEqual(attempts, 5)
        attempts, err = self.play(TELLER, *options, expect=70, steps=[[4]] * 9, STEP_FILE=file)
        self.assertEqual(attempts, 3)

    def test_without_the_option_the_sentence_is_there_and_restarts_are_torchruns(self):
        attempts, err = self.play(TELLER, "--max-restarts=3", expect=3, steps=[[]] * 9)
        self.assertEqual(attempts, 4)
        self.assertIn("the last 4 " + SENTENCE, err)
        self.assertIn("the last 4 " + SENTENCE, self.report["advice"])
        self.assertNotIn("before the restart", err)
        attempts, err = self.play(TELLER, "--max-restarts=3", expect=3, steps=[[1], [2], [3], [4]])
        self.assertNotIn(SENTENCE, err)

    def test_hangs_have_a_budget_of_their_own(self):
        options = ("--hang-timeout=3", "--restart-policy=failures=1,hangs=1")
        attempts, err = self.play(HANGER, *options, expect=128 + signal.SIGABRT, FAILS_IN="1")
        self.assertEqual(attempts, 3)  # A hang, a failure, and a hang too many.

    def test_an_expired_file_timer_is_a_hang(self):
        options = ("--restart-policy=failures=0,hangs=2",)
        attempts, err = self.play(TIMED, *options, expect=128 + signal.SIGKILL, TORCHELASTIC_ENABLE_FILE_TIMER="1")
        self.assertEqual(attempts, 3)
        self.assertEqual(err.count('timer "step" of local rank 0'), 3, err)
        # Without a budget of hangs the same is a failure.
        attempts, err = self.play(TIMED, "--restart-policy=failures=1", expect=128 + signal.SIGKILL,
                                  TORCHELASTIC_ENABLE_FILE_TIMER="1")
        self.assertEqual(attempts, 2)

    def test_wrong_values(self):
        for options, text in [
                (("--restart-policy=failure=3",), '--restart-policy has "failure": did you mean failures?'),
                (("--restart-policy=hangs=x",), "hangs needs a whole number"),
                (("--restart-policy=failures=3", "--max-restarts=4"), "both are the budget of failures"),
                (("--progress-file=",), "--progress-file is empty")]:
            with self.subTest(text):
                _, _, err = self.run_muster(*options, "x.py", expect=1)
                self.assertIn(text, err)


# Waits until it is told what to do: "step" (tell the next step), or "exit".
STEPPER = """
import json, os, socket, sys, time
folder, tag = os.environ["TEST_DIR"], os.environ["NODE_TAG"]
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
channel.sendall(b'{"type": "hello", "local_rank": 0}\\n')
def step(number):
    channel.sendall(json.dumps({"type": "progress", "step": number}).encode() + b"\\n")
"""


class RestartPolicyOfNodes(NodesTest):
    def setUp(self):
        super().setUp()
        text = self.worker.read_text()
        taken = """    if os.path.exists(f"{folder}/step.{tag}"):
        step(int(open(f"{folder}/step.{tag}").read()))
        os.unlink(f"{folder}/step.{tag}")
"""
        self.worker.write_text(STEPPER + text.replace("while True:\n", "while True:\n" + taken))

    def node(self, tag, nnodes, *extra, **more):
        return super().node(tag, nnodes, "--exit-code=propagate", *extra, **more)

    def host(self, tag, nnodes, *options):
        self.node(tag, nnodes, *options)
        wait_for(lambda: "waiting for the other nodes" in self.read(f"err.{tag}"), "the host to wait")

    def node_that_steps(self, tag, nnodes, *options):
        """A node whose messages to the host are seen: a step counts for what fails after the host knows it."""
        self.steps = set()
        def seen(message):
            if message["type"] == "progressed":
                self.steps.add(message.get("step"))
            return message
        between = Interpreter(self.port, to_host=seen, to_node=lambda message: message)
        self.addCleanup(between.close)
        self.node(tag, nnodes, "--rdzv-conf=is_host=false", f"--rdzv-endpoint=127.0.0.1:{between.port}", *options)

    def step(self, tag, number):
        self.tell(f"step.{tag}", str(number))
        wait_for(lambda: number in self.steps, f"{tag} to tell its step")

    def test_the_third_attempt_in_a_row_without_progress_ends_the_job_on_all_nodes(self):
        for tag in "ab":
            self.node(tag, 2, "--restart-policy=failures=9")
        for attempt in range(3):
            self.round_of(2, after=2 * attempt)
            self.tell("exit.b", "3")
        self.ends(a=70, b=70)
        for tag in "ab":
            self.assertIn("the last 3 " + SENTENCE, self.read(f"err.{tag}"))
        self.assertEqual(len(self.starts()), 6)
        self.assert_nothing_left()

    def test_progress_on_one_node_counts_for_a_failure_on_another(self):
        self.host("b", 2, "--restart-policy=failures=4")
        self.node_that_steps("a", 2, "--restart-policy=failures=4")
        for attempt in range(4):
            self.round_of(2, after=2 * attempt)
            self.step("a", 10 + attempt)
            self.tell("exit.b", "3")
        self.round_of(2, after=8)
        self.step("a", 20)
        self.tell("exit.b", "3")
        self.ends(a=1, b=3)
        self.assertIn("the budget of failures (--restart-policy failures=4) is used up", self.read("err.a"))
        self.assertNotIn(SENTENCE, self.read("err.b"))
        self.assert_nothing_left()

    def test_lost_nodes_have_a_budget(self):
        policy = "--restart-policy=nodes=1"
        self.host("h", 3, policy)
        self.node_that_steps("a", 3, policy)
        self.node("b", 3, policy)
        self.round_of(3, nodes="hab")
        self.step("a", 1)
        self.kill("b")
        self.node("c", 3, policy)
        self.round_of(3, after=3, nodes="hac")
        self.step("a", 2)
        self.kill("c")
        self.ends(h=1, a=1)
        self.assertIn("the budget of nodes (--restart-policy nodes=1) is used up", self.read("err.a"))

    def test_nodes_with_another_policy_are_refused(self):
        self.node("a", 2, "--restart-policy=hangs=1")
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a"), "a to wait")
        self.node("b", 2, "--restart-policy=hangs=2")
        self.ends(b=1)
        self.assertIn("--restart-policy=hangs=2", self.read("err.b"))


if __name__ == "__main__":
    main()
