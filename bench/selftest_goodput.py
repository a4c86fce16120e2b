"""Tests of `bench/run goodput` without a job. bench/selftest.py runs them."""
import io
import unittest
import unittest.mock
import xml.etree.ElementTree

from muster_bench import context, families, goodput_curve, model, programs, steps, table

goodput = families.load()["goodput"]


def log(*numbers, begin_s=1.0, each_s=0.5):
    return [steps.Step(begin_s + index * each_s, number) for index, number in enumerate(numbers)]


class StepsTest(unittest.TestCase):
    def test_a_log_is_read_from_the_first_step_on_and_without_a_half_line(self):
        found = steps.read_steps("2000000000 1\n2500000000 2\n26")
        self.assertEqual(found, [steps.Step(0.0, 1), steps.Step(0.5, 2)])
        self.assertEqual(steps.read_steps(""), [])

    def test_a_job_may_go_back_but_not_leave_out_a_step(self):
        self.assertEqual(len(steps.read_steps("1 1\n2 2\n3 1\n4 2\n5 3\n")), 5)
        for text in ("1 2\n", "1 1\n2 3\n", "1 1\n2 0\n"):
            with self.subTest(text=text), self.assertRaises(model.MeasureError):
                steps.read_steps(text)

    def test_a_step_that_is_done_again_counts_once(self):
        one = log(1, 2, 3, 4, 3, 4, 5)
        self.assertEqual((steps.kept(one), steps.done_again(one)), (5, 2))
        self.assertEqual((steps.kept([]), steps.done_again([])), (0, 0))

    def test_the_share_is_of_the_job_without_failures(self):
        whole = log(*range(1, 21))
        self.assertEqual(steps.share(log(1, 2, 3, 2, 3, 4, 5), whole), 25.0)
        self.assertEqual(steps.share([], whole), 0.0)
        with self.assertRaises(model.MeasureError):
            steps.share(whole, [])

    def test_a_pause_is_the_longest_time_without_a_step_until_the_next_failure(self):
        one = log(1, 2, each_s=1) + log(2, 3, begin_s=7, each_s=1) + log(3, begin_s=20)
        self.assertEqual(steps.pause_s(one, 2.5, 9, 30), 12.0)  # The second pause began at 8.
        self.assertEqual(steps.pause_s(one, 2.5, 8, 30), 5.0)
        self.assertEqual(steps.pause_s(one, 1.5, 1.9, 30), 1.0)
        self.assertEqual(steps.pause_s(one, 20.5, 25, 30), 10.0)  # It has not ended: at least that.

    def test_a_failure_of_a_job_that_stands_still_has_no_pause(self):
        one = log(1, 2, each_s=1) + log(2, 3, begin_s=7, each_s=1)
        self.assertIsNone(steps.pause_s(one, 3.5, 9, 30))
        self.assertIsNone(steps.pause_s(one, 0.5, 9, 30))
        self.assertEqual(steps.pause_s(one, 3.0, 6, 30), 5.0)

    def test_the_progress_is_the_last_step_of_each_second_and_may_fall(self):
        self.assertEqual(steps.progress(log(1, 2, 3, 1, each_s=1), 5.5),
                         [[0, 0], [1, 1], [2, 2], [3, 3], [4, 1], [5, 1]])


class GoodputTest(unittest.TestCase):
    def test_each_kind_of_failure_comes_once_and_not_soon_after_another(self):
        for seed in range(100):
            failures = goodput.plan(seed, 600)
            self.assertEqual(sorted(one.kind for one in failures), sorted(goodput.KINDS))
            moments = [0, *(one.at_s for one in failures), 600]
            gaps = [later - earlier for earlier, later in zip(moments, moments[1:])]
            self.assertGreaterEqual(gaps[0], 20)
            self.assertGreaterEqual(min(gaps[1:-1]), 70)
            self.assertGreaterEqual(gaps[-1], 50)

    def test_all_launchers_meet_the_same_failures_and_another_round_others(self):
        self.assertEqual(goodput.plan(1, 180), goodput.plan(1, 180))
        self.assertNotEqual(goodput.plan(1, 180), goodput.plan(2, 180))

    def measured(self, *jobs, rounds=1):
        """Returns the rows, with these logs in place of jobs."""
        supply = iter(jobs)
        met = []

        def run(measurement, role, failures):
            met.append((role, len(failures)))
            return next(supply)
        known = dict.fromkeys(model.ROLES, goodput.Launch([], "", None))
        bench = context.Bench(programs.find(), lambda text: None, repetitions=rounds, minutes=1)
        with unittest.mock.patch.object(goodput, "launches", lambda *_: known), \
                unittest.mock.patch.object(goodput.Measurement, "_job", run):
            return goodput.measure(bench), met

    def test_one_job_without_failures_is_the_measure_of_all(self):
        whole = log(*range(1, 101))
        rows, met = self.measured(whole, log(*range(1, 91)), log(*range(1, 46)), log(*range(1, 61)))
        self.assertEqual(met, [("muster", 0), ("muster", 6), ("peer", 6), ("limit", 6)])
        self.assertEqual(rows[0].medians(), {"muster": 90.0, "peer": 45.0, "limit": 60.0})
        self.assertEqual(rows[0].ratio(), 2.0)
        self.assertEqual([row.quantity.name for row in rows[1:]],
                         [f"goodput.{kind}_s" for kind in goodput.KINDS])
        self.assertIn("without failures: 100 steps in 1 minutes", rows[0].notes)

    def test_a_failure_while_a_job_stands_still_leaves_its_row_empty_with_this_reason(self):
        whole = log(*range(1, 101))
        [first, *_] = goodput.plan(goodput.SEED, 60)
        # The first failure comes between the two steps.
        halted = [steps.Step(0, 1), steps.Step(first.at_s + 1, 2)]
        rows, _ = self.measured(whole, whole, halted, whole)
        found = {row.quantity.name: row for row in rows}
        self.assertGreater(first.at_s, steps.STANDS_STILL_S)
        self.assertEqual(found[f"goodput.{first.kind}_s"].why,
                         {"peer": "the failure came while the job stood still"})
        self.assertEqual(found["goodput.share"].why, {})

    def test_without_root_there_is_a_sentence(self):
        bench = context.Bench(programs.find(), lambda text: None)
        with unittest.mock.patch("os.geteuid", lambda: 1000):
            rows = goodput.measure(bench)
        for row in rows:
            self.assertEqual(set(row.why), set(model.ROLES))
            self.assertIn("needs root", row.why["muster"])
        self.assertIsNone(goodput_curve.draw(rows))

    def test_the_picture_has_a_line_for_each_job_and_survives_the_json(self):
        whole = log(*range(1, 101))
        rows, _ = self.measured(whole, whole[:90], whole[:45], whole[:60])
        file = io.StringIO()
        table.write_json(rows, file)
        file.seek(0)
        picture = xml.etree.ElementTree.fromstring(goodput_curve.draw(table.read_json(file)))
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(picture.findall(space + "polyline")), 4)
        words = [one.text for one in picture.findall(space + "text")]
        for label in ("without failures", "muster --warm: 90 %", "torchrun: 45 %", "muster: 60 %",
                      *goodput_curve.LABELS.values()):
            self.assertIn(label, words)
        self.assertEqual(set(goodput_curve.LABELS), set(goodput.KINDS))

    def test_lines_of_the_grid_are_round_numbers(self):
        self.assertEqual([goodput_curve.apart(largest) for largest in (0.5, 3, 10, 3600, 12000)],
                         [1, 1, 2, 1000, 2000])


if __name__ == "__main__":
    unittest.main()
