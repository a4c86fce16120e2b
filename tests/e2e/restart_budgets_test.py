#!/usr/bin/env python3
"""Tests the budgets of --restart-policy in jobs at a musterd: it is killed between two failures and goes on with the
counts, people see them, and a job with a torchrun node is not ended for attempts of which nothing is known."""
import json

from http_test import HttpTest
from mixed import TORCHRUN, have_torch
from musterctl_test import CtlTest
from nodes import TORCH_PYTHON
from restart_policy_test import SENTENCE
from support import PATIENCE_S, main


class Budgets(CtlTest):
    launchers = {"t": TORCHRUN}
    policy = "--restart-policy=failures=4,nodes=2"

    def start_musterd(self):
        self.http_options = [*HttpTest.http_options, f"--state-dir={self.dir / 'state'}"]
        super().start_musterd()

    def restart_musterd(self):
        log = self.read("err.musterd")
        self.musterd.kill()
        self.musterd.wait()
        self.start_musterd()
        return log

    def costs(self):
        """What the budgets have paid, and the attempts in a row without progress."""
        run = json.loads(self.ctl("status", "job", "--json"))
        used = {name: budget["used"] for name, budget in run["restart_budgets"].items() if budget}
        return used, run["attempts_without_progress"]

    def test_a_musterd_that_is_killed_between_failures_goes_on_with_the_counts(self):
        for tag in "ab":
            self.node(tag, "2", self.policy)
        self.round_of(2)
        self.tell("exit.a", "3")  # It has told no step, and is young: no progress. This costs two.
        self.round_of(2, after=2)
        self.assertEqual(self.costs(), ({"failures": 2, "nodes": 0}, 1))
        log = self.restart_musterd()
        self.assertIn(' restarts=1 budgets="failures 2/4, nodes 0/2" without_progress=1\n', log)
        self.run_is("running")
        self.assertEqual(self.costs(), ({"failures": 2, "nodes": 0}, 1))
        # This musterd does not know when the attempt began: it is not held against the job, and costs one.
        self.tell("exit.b", "3")
        self.round_of(2, after=4)
        self.assertEqual(self.costs(), ({"failures": 3, "nodes": 0}, 0))
        self.restart_musterd()
        self.run_is("running")
        self.tell("exit.a", "3")
        self.round_of(2, after=6)
        self.assertEqual(self.costs(), ({"failures": 4, "nodes": 0}, 0))
        for command in ("status", "why"):
            self.assertIn("budgets of --restart-policy: failures 4/4 (used up), nodes 0/2\n", self.ctl(command, "job"))
        self.restart_musterd()
        self.run_is("running")
        self.tell("exit.b", "3")
        self.ends(a=1, b=1)
        self.run_is("failed")
        said = "the budget of failures (--restart-policy failures=4) is used up"
        self.assertIn(said, self.ctl("why", "job"))
        self.assertNotIn(SENTENCE, self.ctl("why", "job"))
        self.restart_musterd()  # Also one that has not seen the end.
        self.assertIn(said, self.ctl("why", "job"))

    def test_a_job_that_gets_no_further_is_ended_and_why_says_it(self):
        for tag in "ab":
            self.node(tag, "2", "--restart-policy=failures=9", "--exit-code=propagate")
        for attempt in range(3):
            self.round_of(2, after=2 * attempt)
            self.tell("exit.b", "3")
        self.ends(a=70, b=70)
        self.run_is("failed")
        why = self.ctl("why", "job")
        self.assertIn("the last 3 " + SENTENCE, why)
        self.assertIn("budgets of --restart-policy: failures 4/9\nattempts in a row that ended before any progress: 3\n", why)
        self.assertRegex(self.read("err.musterd"), r"run_ended run=job succeeded=false hopeless=true who=")
        self.assertIn("\nmuster_runs_hopeless_total 1\n", self.ask("/metrics")[2])

    def test_a_job_with_a_torchrun_node_is_not_ended_for_what_nobody_tells(self):
        if not have_torch():
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")
        self.node("a", "2", self.policy)
        self.node("t", "2", "--max-restarts=4")
        for attempt in range(5):  # Young attempts without a step: two fewer would have ended a job of muster nodes.
            self.round_of(2, after=2 * attempt, nodes="at")
            self.assertEqual(self.costs(), ({"failures": attempt, "nodes": 0}, 0))
            self.tell("exit.a", "3")
        self.ends(a=1)
        self.run_is("failed")
        self.assertIn("the budget of failures (--restart-policy failures=4) is used up", self.ctl("why", "job"))
        self.nodes["t"].terminate()
        self.nodes["t"].wait(PATIENCE_S)


if __name__ == "__main__":
    main()
