#!/usr/bin/env python3
"""The step runner of the GPU checks: bounds, what goes on after a failure, and the results after each step."""
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import checks  # noqa: E402  # pylint: disable=wrong-import-position
import play  # noqa: E402  # pylint: disable=wrong-import-position
import probes  # noqa: E402  # pylint: disable=wrong-import-position
from steps import (FAILED, NOT_REACHED, PASSED, SKIPPED, TIMED_OUT, Runner, Skip, Step,  # noqa: E402  # pylint: disable=wrong-import-position
                   Stopped, StepFailed, descendants, run_command)

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def holds(report, _limit_s):
    report.check("one is one", True)
    report.figure("size", 17)


def is_alive(pid):
    """A zombie is not alive."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class RunnerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-steps-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.results = {"bundle": {"commit": "abc"}, "rehearsal": False, "began": "2026-11-28 10:00:00Z"}

    def play(self, *steps, limit_s=60, **options):
        runner = Runner(steps, self.folder, limit_s, self.results, write_table=play.table, **options)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.passed = runner.play()
        return json.loads((self.folder / "gpu.json").read_text())

    def results_of(self, *steps, **options):
        return [entry["result"] for entry in self.play(*steps, **options)["steps"]]


class Outcomes(RunnerTest):
    def test_a_step_that_holds_passes_with_its_figures(self):
        [entry] = self.play(Step("a", "A", 10, holds))["steps"]
        self.assertEqual(entry["result"], PASSED)
        self.assertEqual(entry["figures"], {"size": 17})
        self.assertEqual(entry["checks"], [{"what": "one is one", "ok": True, "detail": ""}])
        self.assertTrue(self.passed)

    def test_the_next_step_runs_whatever_came_out(self):
        def raises(_report, _limit_s):
            raise StepFailed("the GPU has left")

        def wrong(report, _limit_s):
            report.check("two is one", False, 2)
            report.check("one is one", True)

        def dies(_report, _limit_s):
            os.kill(os.getpid(), signal.SIGSEGV)

        def ends(_report, _limit_s):
            sys.exit(0)

        def nothing(_report, _limit_s):
            pass

        steps = [Step(run.__name__, run.__name__, 20, run) for run in (raises, wrong, dies, ends, nothing, holds)]
        entries = self.play(*steps)["steps"]
        self.assertEqual([entry["result"] for entry in entries], [FAILED] * 5 + [PASSED])
        self.assertEqual(entries[0]["why"], "the GPU has left")
        self.assertIn("two is one", entries[1]["why"])
        self.assertEqual(entries[1]["checks"][0]["detail"], "2")
        self.assertIn("died", entries[2]["why"])
        self.assertIn("checked nothing", entries[4]["why"])
        self.assertFalse(self.passed)

    def test_a_step_in_the_runners_own_process_may_fail(self):
        def raises(_report, _limit_s):
            raise OSError("no space")

        self.assertEqual(self.results_of(Step("a", "A", 9, raises, in_parent=True), Step("b", "B", 9, holds, in_parent=True)),
                         [FAILED, PASSED])

    def test_what_is_missing_skips_the_steps_that_need_it(self):
        def skips(_report, _limit_s):
            raise Skip("no second GPU")

        missing = {"gpu": "no GPU", "torch": ""}.get
        entries = self.play(Step("a", "A", 9, holds, ("torch", "gpu")), Step("b", "B", 9, holds, ("torch",)),
                            Step("c", "C", 9, skips), missing=missing)["steps"]
        self.assertEqual([(entry["result"], entry["why"]) for entry in entries],
                         [(SKIPPED, "no GPU"), (PASSED, ""), (SKIPPED, "no second GPU")])
        self.assertTrue(self.passed)


class Bounds(RunnerTest):
    def test_a_step_and_all_its_processes_end_at_its_bound(self):
        pids = self.folder / "pids"

        def hangs(report, _limit_s):
            report.check("it began", True)
            # One in the step's session, and one that has left it and ignores signals.
            first = subprocess.Popen(["sleep", "1000"])
            second = subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 1000 & wait; sleep 1000"],
                                      start_new_session=True)
            probes.seconds_until(lambda: len(descendants(os.getpid())) >= 3, 20)
            pids.write_text(f"{first.pid} {second.pid} " + " ".join(map(str, descendants(second.pid))))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(1)

        begin = time.monotonic()
        entries = self.play(Step("a", "A", 3, hangs), Step("b", "B", 20, holds))["steps"]
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual([entry["result"] for entry in entries], [TIMED_OUT, PASSED])
        self.assertEqual(entries[0]["checks"], [{"what": "it began", "ok": True, "detail": ""}])  # Kept.
        started = list(map(int, pids.read_text().split()))
        self.assertEqual(len(started), 3)
        self.assertEqual([pid for pid in started if is_alive(pid)], [])

    def test_processes_that_a_step_leaves_end_but_not_the_build(self):
        build = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], start_new_session=True)
        probes.seconds_until(lambda: descendants(build.pid), 20)
        builders = [build.pid, *descendants(build.pid)]
        pids = self.folder / "pids"

        def leaves(report, _limit_s):
            report.check("it began", True)
            # Its parent ends at once, so it becomes an orphan in a session of its own.
            run_command(["sh", "-c", f"setsid sleep 1000 >/dev/null 2>&1 & echo $! > {pids}"], 20)

        try:
            self.assertEqual(self.results_of(Step("a", "A", 20, leaves), spared=lambda: [build.pid]), [PASSED])
            self.assertFalse(is_alive(int(pids.read_text())))
            self.assertEqual([pid for pid in builders if not is_alive(pid)], [])
        finally:
            for pid in builders:
                os.kill(pid, signal.SIGKILL)
            build.wait()

    def test_all_steps_together_end_in_time(self):
        now = [100.0]

        def takes_25_s(report, limit_s):
            now[0] += 25
            report.check("in time", True)
            report.figure("limit_s", limit_s)

        steps = [Step(name, name, 30, takes_25_s, in_parent=True) for name in "abcd"]
        entries = self.play(*steps, limit_s=52, clock=lambda: now[0])["steps"]
        self.assertEqual([entry["result"] for entry in entries], [PASSED, PASSED, SKIPPED, SKIPPED])
        self.assertEqual([entry["figures"].get("limit_s") for entry in entries], [30, 27, None, None])
        self.assertEqual(entries[2]["why"], "no time is left")

    def test_a_signal_ends_the_run_and_what_it_started(self):
        pids = self.folder / "pids"

        def hangs(report, _limit_s):
            report.check("it began", True)
            pids.write_text(str(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid))
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(1000)

        with self.assertRaisesRegex(Stopped, "SIGTERM"):
            self.play(Step("a", "A", 10, holds), Step("b", "B", 100, hangs), Step("c", "C", 10, holds))
        self.assertFalse(is_alive(int(pids.read_text())))
        results = json.loads((self.folder / "gpu.json").read_text())
        self.assertEqual([entry["result"] for entry in results["steps"]], [PASSED, NOT_REACHED, NOT_REACHED])
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_a_command_has_a_bound_and_a_status(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(run_command(["sh", "-c", "echo out; echo err >&2"], 20), "out\nerr\n")
            self.assertEqual(run_command(["sh", "-c", "exit 3"], 20, expect=None), "")
            with self.assertRaisesRegex(StepFailed, "status 3, expected 0"):
                run_command(["sh", "-c", "exit 3"], 20)
            with self.assertRaisesRegex(StepFailed, "not done within 0.3 s"):
                run_command(["sh", "-c", "echo before; sleep 1000 & wait"], 0.3)
        self.assertIn("before", said.getvalue())


class Results(RunnerTest):
    def test_a_run_that_is_cut_off_leaves_what_it_had(self):
        seen = []

        def looks(report, _limit_s):
            report.check("looked", True)
            seen.append(json.loads((self.folder / "gpu.json").read_text()))

        final = self.play(Step("a", "A", 10, holds), Step("b", "B", 10, looks, in_parent=True), Step("c", "C", 10, holds))
        self.assertEqual([entry["result"] for entry in seen[0]["steps"]], [PASSED, NOT_REACHED, NOT_REACHED])
        self.assertFalse(seen[0]["complete"])
        self.assertTrue(final["complete"])
        self.assertEqual(final["summary"], {PASSED: 3})

    def test_the_table_has_a_row_for_each_step(self):
        self.play(Step("a", "A | B", 10, holds), Step("c", "C", 10, holds, ("gpu",)), missing=lambda need: "no GPU")
        text = (self.folder / "gpu.md").read_text()
        self.assertIn("| A / B | passed | ", text)
        self.assertIn("| size 17 |", text)
        self.assertIn("| C | skipped: no GPU | ", text)
        self.assertNotIn("REHEARSAL", text)
        self.results["rehearsal"] = True
        self.assertTrue(play.table(self.results).startswith("A REHEARSAL ON THE CPU"))


class Plan(unittest.TestCase):
    def test_everything_ends_within_eight_minutes(self):
        place = checks.Place(SOURCE, SOURCE, SOURCE)
        steps = checks.plan(place)
        self.assertLessEqual(checks.longest_s(steps), play.LIMIT_S)
        self.assertEqual(play.LIMIT_S, 480)
        self.assertEqual(len({step.name for step in steps}), len(steps))
        for step in steps:
            self.assertGreater(step.limit_s, 0, step.name)

    def test_what_needs_no_gpu_runs_without_one(self):
        names = {step.name for step in checks.plan(checks.Place(SOURCE, SOURCE, SOURCE)) if "gpu" not in step.needs}
        self.assertEqual(names, {"machine", "launch", "doctor", "worker_counts", "numa", "store", "build", "sdk_cpu"})

    def test_only_some_steps_and_what_they_need(self):
        steps = checks.plan(checks.Place(SOURCE, SOURCE, SOURCE))
        names = lambda only: [step.name for step in checks.chosen(steps, only)]  # noqa: E731
        self.assertEqual(names(["hang"]), ["machine", "hang"])
        self.assertEqual(names(["digits_cpp", "numa"]), ["machine", "numa", "build", "digits_cpp"])
        self.assertEqual(names(None), [step.name for step in steps])
        self.assertEqual(checks.longest_s(checks.chosen(steps, ["hang"])), 110)

    def test_cuda_headers_of_the_compiler_come_first(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name).resolve()
            for path in ("bin/nvcc", "include/crt/host_config.h", "targets/x86_64-linux/include/cccl/nv/target"):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).touch(mode=0o755)
            (root / "include/cccl").mkdir()  # Has none of them.
            with unittest.mock.patch.dict(os.environ, PATH=f"{root}/bin"):
                found = probes.cuda_header_folders()
            self.assertEqual(found[:2], [f"{root}/include", f"{root}/targets/x86_64-linux/include/cccl"])

    def test_lists_of_cpus(self):
        self.assertEqual(probes.cpus_in("0-3,8,10-11\n"), {0, 1, 2, 3, 8, 10, 11})
        self.assertEqual(probes.cpus_in("\n"), set())


if __name__ == "__main__":
    unittest.main()
