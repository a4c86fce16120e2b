#!/usr/bin/env python3
"""Tests that the failure summary and the failure report have the first cause of each earlier
attempt, for every end of a job."""
import json
import os
import re
import signal
import sys

from support import PATIENCE_S, MusterTest, agent_of, main

# Rank 1 fails in each attempt with another text and another exit code. In attempt 1 it writes an
# error file. Attempt 3 waits.
WORKER = """#!/bin/sh
n=$TORCHELASTIC_RESTART_COUNT
[ $RANK = 0 ] && exec sleep 1000
echo "words of attempt $n" >&2
[ $n = 1 ] && echo '{"message": "the file of attempt 1"}' > $TORCHELASTIC_ERROR_FILE
[ $n = 2 ] && kill -9 $$
[ $n = 3 ] && echo $n >> ready && exec sleep 1000
exit $((10 + n))
"""
LINE = re.compile(r"^  attempt (\d+): rank 1 \(local_rank: 1\), exitcode: (-?\d+)(?: \((\w+)\))?(?:: (.*))?$", re.M)


class EarlierAttempts(MusterTest):
    def begin(self, restarts):
        return self.start("--standalone", "--no-python", "--nproc-per-node=2", f"--max-restarts={restarts}",
                          "--failure-report=report.json", self.script("worker.sh", WORKER))

    def report(self):
        return json.loads(self.read("report.json"))

    def lines(self):
        """The lines of the summary: (attempt, exit code, signal, cause)."""
        heading, _, rest = self.read("err").partition("Earlier attempts (the first cause of each):\n")
        self.assertTrue(rest, heading)
        return [match.groups() for match in LINE.finditer(rest)]

    def records(self):
        return [(one["attempt"], one["rank"], one["exitcode"], one["signal"], one["cause"])
                for one in self.report()["earlier_attempts"]]

    def test_the_summary_and_the_report_have_each_cause(self):
        process = self.begin(restarts=2)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.lines(), [("0", "10", None, "words of attempt 0"),
                                        ("1", "11", None, "the file of attempt 1")])
        self.assertEqual(self.records(), [(0, 1, 10, None, "words of attempt 0"),
                                          (1, 1, 11, None, "the file of attempt 1")])
        last = self.report()["failures"][0]  # The last failure's text is complete.
        self.assertEqual((last["rank"], last["exitcode"], last["signal"]), (1, -9, "SIGKILL"))
        self.assertEqual(last["stderr_tail"], "words of attempt 2\n")
        self.assertRegex(self.read("err"), r"(?s)Root Cause.*exitcode  : -9 .*words of attempt 2.*Earlier attempts")

    def test_a_success_has_no_report(self):
        script = self.script("worker.sh", "#!/bin/sh\nexit $((TORCHELASTIC_RESTART_COUNT == 0))\n")
        self.run_muster("--standalone", "--no-python", "--max-restarts=1", "--failure-report=report.json", script,
                        expect=0)
        self.assertNotIn("Earlier attempts", self.read("err"))
        self.assertFalse((self.dir / "report.json").exists())

    def test_after_a_signal(self):
        process = self.begin(restarts=3)
        self.ready(1)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.report()["ended_by"], "signalled")
        self.assertEqual(self.records(), [(0, 1, 10, None, "words of attempt 0"),
                                          (1, 1, 11, None, "the file of attempt 1"),
                                          (2, 1, -9, "SIGKILL", "words of attempt 2")])
        self.assertEqual([line[:3] for line in self.lines()],
                         [("0", "10", None), ("1", "11", None), ("2", "-9", "SIGKILL")])

    def test_after_the_agent_was_killed(self):
        """The shim knows ranks, exit codes and times. Only the agent had read the workers' texts."""
        process = self.begin(restarts=3)
        self.ready(1)
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.report()["ended_by"], "agent_lost")
        self.assertEqual(self.records(), [(0, 1, 10, None, ""), (1, 1, 11, None, ""), (2, 1, -9, "SIGKILL", "")])
        for one in self.report()["earlier_attempts"]:
            self.assertNotIn("1970", one["died"])
        self.assertEqual(self.lines(), [("0", "10", None, None), ("1", "11", None, None), ("2", "-9", "SIGKILL", None)])
        self.assertEqual([one["exitcode"] for one in self.report()["failures"]], [-15, -15])
        self.assert_nothing_left()

    def test_many_attempts(self):
        script = self.script("worker.sh", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 30 ] && echo x > ready && "
                                          "exec sleep 1000\nexit 1\n")
        process = self.start("--standalone", "--no-python", "--max-restarts=30", "--failure-report=report.json", script)
        self.ready(1)
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        report = self.report()
        self.assertEqual([one["attempt"] for one in report["earlier_attempts"]], [*range(10), *range(20, 30)])
        self.assertEqual(report["earlier_attempts_left_out"], 10)
        self.assertIn("\n  (and 10 more)\n", self.read("err"))


if __name__ == "__main__":
    sys.exit(main())
