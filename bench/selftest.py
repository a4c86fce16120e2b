#!/usr/bin/env python3
"""Tests of the bench itself. No test depends on how long anything takes.

    python3 bench/selftest.py
"""
import io
import json
import pathlib
import sys
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from muster_bench import docs, interleave, lines, model, table  # noqa: E402
from selftest_goodput import GoodputTest, StepsTest  # noqa: E402, F401
from selftest_nodes import (CurveTest, MusterdTest, PeersTest, RecoveryTest,  # noqa: E402, F401
                            RendezvousTest, TlsTest)
from selftest_programs import CommandTest, RunTest, StoreTest  # noqa: E402, F401 (for unittest)


def row(name="x.ms", better="lower", target=None, why=None, **samples):
    quantity = model.Quantity(name, "ms", "what it is", better, target)
    return model.Row(quantity, {role: samples.get(role, []) for role in model.ROLES}, why or {})


class StatisticsTest(unittest.TestCase):
    def test_the_median_and_the_spread_are_of_that_columns_samples(self):
        one = row(muster=[3.0, 1.0, 2.0], peer=[10.0, 20.0])
        self.assertEqual(one.medians(), {"muster": 2.0, "peer": 15.0, "limit": None})
        self.assertEqual(one.spread("muster"), (1.0, 3.0))
        self.assertIsNone(one.spread("limit"))

    def test_the_ratio_says_how_many_times_better_muster_is(self):
        self.assertEqual(row(muster=[2.0], peer=[8.0]).ratio(), 4.0)
        self.assertEqual(row(better="higher", muster=[8.0], peer=[2.0]).ratio(), 4.0)
        self.assertIsNone(row(muster=[2.0]).ratio())
        self.assertIsNone(row(muster=[0.0], peer=[2.0]).ratio())

    def test_a_target_is_met_missed_or_not_known(self):
        below = model.Target(10)
        self.assertTrue(row(target=below, muster=[9.9]).met())
        self.assertFalse(row(target=below, muster=[10.0]).met())
        self.assertIsNone(row(target=below).met())
        near = model.Target(0.95, of="limit", or_equal=True)
        self.assertTrue(row(better="higher", target=near, muster=[95.0], limit=[100.0]).met())
        self.assertFalse(row(better="higher", target=near, muster=[94.0], limit=[100.0]).met())
        self.assertIsNone(row(better="higher", target=near, muster=[94.0]).met())

    def test_merging_replaces_rows_by_name_and_keeps_the_order(self):
        older = [row("a", muster=[1.0]), row("b", muster=[1.0])]
        merged = model.merge(older, [row("c"), row("a", muster=[7.0])])
        self.assertEqual([one.quantity.name for one in merged], ["a", "b", "c"])
        self.assertEqual(merged[0].median("muster"), 7.0)


class InterleaveTest(unittest.TestCase):
    def contender(self, role, log, values=(1.0,), **more):
        supply = iter(values * 100)

        def sample():
            log.append(role)
            value = next(supply)
            if value is None:
                raise model.MeasureError("fell over")
            return {"x.ms": value}
        return interleave.Contender(role, sample, **more)

    def test_all_are_measured_in_turn(self):
        log = []
        contenders = [self.contender(role, log) for role in model.ROLES]
        interleave.interleave([row().quantity], contenders, 2)
        self.assertEqual(log, ["muster", "peer", "limit"] * 2)

    def test_the_quick_ones_may_go_several_times_in_each_round(self):
        log = []
        contenders = [self.contender("muster", log, per_round=2), self.contender("peer", log)]
        interleave.interleave([row().quantity], contenders, 2)
        self.assertEqual(log, ["muster", "muster", "peer"] * 2)

    def test_a_missing_program_leaves_its_column_empty_and_says_why(self):
        contenders = [interleave.Contender("muster", None, why_not="no such thing"),
                      self.contender("peer", [])]
        [result] = interleave.interleave([row().quantity], contenders, 3)
        self.assertEqual(result.medians(), {"muster": None, "peer": 1.0, "limit": None})
        self.assertEqual(result.why, {"muster": "no such thing"})

    def test_one_that_fails_loses_its_column_and_the_others_go_on(self):
        log = []
        contenders = [self.contender("muster", log, values=(1.0, None)),
                      self.contender("peer", log)]
        [result] = interleave.interleave([row().quantity], contenders, 3)
        self.assertEqual(log, ["muster", "peer", "muster", "peer", "peer"])
        self.assertEqual(result.samples, {"muster": [], "peer": [1.0] * 3})
        self.assertEqual(result.why, {"muster": "failed: fell over"})

    def test_a_quantity_that_a_contender_never_returns_is_empty_with_a_reason(self):
        other = model.Quantity("y.ms", "ms", "another")
        rows = interleave.interleave([row().quantity, other], [self.contender("peer", [])], 1)
        self.assertEqual(rows[1].why, {"peer": "does not have this"})


class TableTest(unittest.TestCase):
    ROWS = [row("start.2.first_ms", target=model.Target(10), muster=[5.0, 7.0], peer=[1200.0],
                limit=[1.25]),
            row("agent.memory_mb", why={"muster": "no program"}, peer=[230.4])]

    def test_the_json_is_a_list_of_objects_that_reads_back_the_same(self):
        file = io.StringIO()
        table.write_json(self.ROWS, file)
        records = json.loads(file.getvalue())
        self.assertEqual([{key: record[key] for key in ("name", "muster", "peer", "limit", "unit")}
                          for record in records],
                         [{"name": "start.2.first_ms", "muster": 6.0, "peer": 1200.0,
                           "limit": 1.25, "unit": "ms"},
                          {"name": "agent.memory_mb", "muster": None, "peer": 230.4,
                           "limit": None, "unit": "ms"}])
        file.seek(0)
        self.assertEqual(table.read_json(file), self.ROWS)

    def test_the_table_has_the_medians_the_ratio_and_why_a_column_is_empty(self):
        text = table.plain(self.ROWS)
        first = next(line for line in text.splitlines() if line.startswith("start.2.first_ms"))
        self.assertRegex(first, r"6\.00 +1,200 +200× +1\.25 +ms +< 10 met +2/1/1 +what it is")
        self.assertIn("muster empty: no program (agent.memory_mb)", text)
        self.assertIn("5.00 .. 6.00 .. 7.00", table.plain(self.ROWS, verbose=True))

    def test_the_markdown_has_the_rows_with_a_target_and_as_many_cells_in_every_line(self):
        rows = [line for line in table.markdown(self.ROWS).splitlines() if line.startswith("|")]
        wanted = [row.quantity.name for row in self.ROWS if row.quantity.target]
        self.assertLess(len(wanted), len(self.ROWS))
        self.assertEqual([line.split("`")[1] for line in rows[2:]], wanted)
        self.assertEqual(len({line.count("|") for line in rows}), 1)

    def test_numbers_keep_three_digits(self):
        texts = [table.number(value) for value in (None, 0.0123, 1.5, 15.26, 152.6, 123456.7)]
        self.assertEqual(texts, ["", "0.012", "1.50", "15.3", "153", "123,457"])

    def test_only_what_is_between_the_markers_is_replaced(self):
        page = f"above\n{docs.BEGIN}\nold\n{docs.END}\nbelow\n"
        once = docs.replace_between_markers(page, "new\n")
        self.assertEqual(once, f"above\n{docs.BEGIN}\nnew\n{docs.END}\nbelow\n")
        self.assertEqual(docs.replace_between_markers(once, "new\n"), once)
        with self.assertRaises(ValueError):
            docs.replace_between_markers("no markers", "new")

    def test_the_page_that_is_kept_has_the_markers(self):
        docs.replace_between_markers(docs.PAGE.read_text(), "new")


class LinesTest(unittest.TestCase):
    COUNT = 1200

    def console(self, change=lambda data: data, torn=False):
        text = b"".join(b"[default%d]:%d\n" % (rank, number)
                        for number in range(1, self.COUNT + 1) for rank in (0, 1))
        if torn:
            text = text.replace(b"[default0]:1000\n[default1]:1000\n",
                                b"[default0]:10[default1]:1000\n[default0]:00\n", 1)
        return io.BytesIO(change(text))

    def test_the_expected_size_is_that_of_the_lines(self):
        for count in (1, 9, 10, 99, 12345):
            everything = b"".join(b"%d\n" % number for number in range(1, count + 1))
            self.assertEqual(lines.Numbers.size(count), len(everything))
            self.assertEqual(lines.Numbers(count).take(len(everything) + 5), everything)

    def test_whole_lines_pass_whatever_the_chunks(self):
        for size in (7, 64, 1 << 20):
            with unittest.mock.patch.object(lines, "CHUNK_BYTES", size):
                self.assertEqual(lines.check_prefixed(self.console(), 2, self.COUNT), 0)

    def test_a_torn_line_is_counted(self):
        self.assertEqual(lines.check_prefixed(self.console(torn=True), 2, self.COUNT), 1)

    def test_a_missing_a_wrong_and_a_foreign_byte_are_found(self):
        for old, new in ((b"]:77\n", b"]:7\n"), (b"]:77\n", b"]:78\n"), (b"[default0]:1\n", b"1\n"),
                         (b"[default1]:9\n", b"[default2]:9\n")):
            with self.subTest(new=new), self.assertRaises(model.MeasureError):
                lines.check_prefixed(
                    self.console(lambda data: data.replace(old, new, 1)), 2, self.COUNT)

    def test_a_log_file_is_the_lines_and_nothing_else(self):
        good = b"".join(b"%d\n" % number for number in range(1, self.COUNT + 1))
        lines.check_plain(io.BytesIO(good), self.COUNT)
        for bad in (good[:-1], good + b"x", good.replace(b"\n", b" ", 1)):
            with self.assertRaises(model.MeasureError):
                lines.check_plain(io.BytesIO(bad), self.COUNT)


if __name__ == "__main__":
    unittest.main()
