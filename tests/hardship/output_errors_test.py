#!/usr/bin/env python3
"""A console whose writes fail with EIO for a while, or for good. FAILING_WRITES_LIB names tests/support/failing_writes.cc, built."""
import errno
import os
import re
import subprocess
import sys
import threading

from hardship import HardshipTest, skip_all
from support import MUSTER, PATIENCE_S, main, wait_for

LIBRARY = os.environ.get("FAILING_WRITES_LIB", "")
# Prints lines to the stream of which the test breaks the console, in three parts.
WORKER = """#!/bin/sh
exec 3< gate.0 4< gate.1
echo first >&{stream}; echo 0 >> ready
read line <&3
seq 1 {lines} >&{stream}; echo 1 >> ready
read line <&4
echo last >&{stream}
exit {code}
"""
SOME = 1000
TOO_MANY = 400_000  # Lines: 2.7 MB, and a failing console keeps 1 MiB.
GAP = re.compile(r"^\[muster: (\d+) bytes are missing here: they could not be written\]\n", re.M)
LOSS = re.compile(r"^\[muster: \d+ bytes could not be shown on stderr\]\n", re.M)


def printed(lines):
    return "first\n" + "".join(f"{number}\n" for number in range(1, lines + 1)) + "last\n"


class FailingConsole(HardshipTest):
    def begin(self, stream, kind, lines, code=0):
        """Muster with this stream, 1 or 2, on a console that fails while the file `broken` exists."""
        self.gates = [self.gate(f"gate.{number}") for number in range(2)]
        worker = self.script("worker.sh", WORKER.format(stream=stream, lines=lines, code=code))
        if kind == "file":
            console = open(self.dir / "console", "wb")
            name = str(self.dir / "console")
        else:
            read_end, write_end = os.pipe()
            console = os.fdopen(write_end, "wb")
            name = f"pipe:[{os.fstat(write_end).st_ino}]"
            threading.Thread(target=self.copy, args=(read_end,), daemon=True).start()
        env = self.environment(LD_PRELOAD=LIBRARY, FAILING_WRITES="100000", FAILING_WRITES_PATH=name,
                               FAILING_WRITES_ERRNO=str(errno.EIO), FAILING_WRITES_WHILE=str(self.dir / "broken"),
                               OMP_NUM_THREADS="1")
        with console, open(self.dir / "other", "wb") as other:
            streams = {"stdout": console, "stderr": other} if stream == 1 else {"stdout": other, "stderr": console}
            process = subprocess.Popen([MUSTER, "--standalone", "--no-python", "--tee=3", "--log-dir=logs",
                                        "--failure-report=report.json", worker],
                                       stdin=subprocess.DEVNULL, cwd=self.dir, env=env, **streams)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.ready(1)
        wait_for(lambda: "first" in self.read("console"), "the first line")
        return process

    def copy(self, read_end):
        self.copied = threading.Event()
        with open(self.dir / "console", "wb", buffering=0) as file:
            while chunk := os.read(read_end, 65536):
                file.write(chunk)
        os.close(read_end)
        self.copied.set()

    def break_and_print(self):
        (self.dir / "broken").touch()
        self.gates[0].open()
        self.ready(2)

    def end(self, process, kind):
        self.gates[1].open()
        code = self.end_of(process)
        if kind == "pipe":
            self.assertTrue(self.copied.wait(PATIENCE_S))
        return code

    def shown(self):
        """What the console has of the worker's lines, without the prefix, and with muster's lines about gaps."""
        return re.sub(r"^\[default0\]:", "", self.read("console"), flags=re.M)

    def log(self, stream):
        return next((self.dir / "logs").rglob("stdout.log" if stream == 1 else "stderr.log")).read_text()

    def each(self):
        for stream in (1, 2):
            for kind in ("file", "pipe"):
                for name in ("ready", "broken", "console", "gate.0", "gate.1", "report.json"):
                    (self.dir / name).unlink(missing_ok=True)
                subprocess.run(["rm", "-rf", self.dir / "logs"], check=True)
                yield stream, kind

    def test_a_console_that_works_again_has_missed_nothing(self):
        for stream, kind in self.each():
            process = self.begin(stream, kind, SOME)
            self.break_and_print()
            if stream == 1:
                wait_for(lambda: "descriptor 1 cannot be written (Input/output error)" in self.read("other"),
                         "a line about the console")
            wait_for(lambda: self.log(stream).endswith(f"\n{SOME}\n"), "the lines in the log file")
            self.assertNotIn(f"\n{SOME}\n", self.shown())
            (self.dir / "broken").unlink()
            self.assertEqual(self.end(process, kind), 0)
            lines = [line for line in self.shown().splitlines(keepends=True) if "muster]" not in line]
            self.assertEqual("".join(lines), printed(SOME))

    def test_the_bytes_that_a_failing_console_loses_are_counted(self):
        for stream, kind in self.each():
            process = self.begin(stream, kind, TOO_MANY)
            self.break_and_print()
            (self.dir / "broken").unlink()
            self.assertEqual(self.end(process, kind), 0)
            self.assertEqual(self.log(stream), printed(TOO_MANY))
            shown = [line for line in self.read("console").splitlines(keepends=True) if "muster]" not in line]
            text = "".join(shown)
            missing = sum(map(int, GAP.findall(text)))
            self.assertGreater(missing, 0)
            text = GAP.sub("", text)
            expected = printed(TOO_MANY)
            whole = len(expected) + expected.count("\n") * len("[default0]:")
            if stream == 1:
                self.assertEqual(len(text) + missing, whole)
                self.assertEqual(self.read("other").count(f"[muster: {missing} bytes could not be shown on stdout]"), 1)
            else:  # Lines of muster's own may be missing, too.
                self.assertEqual(len(LOSS.findall(text)), 1)
                text = LOSS.sub("", text)
            self.assertTrue(text.endswith("[default0]:last\n"), text[-100:])

    def test_a_console_that_stays_broken_ends_no_job(self):
        for stream, kind in self.each():
            process = self.begin(stream, kind, SOME, code=3)
            self.break_and_print()
            self.assertEqual(self.end(process, kind), 1)
            self.assertEqual(self.report()["failures"][0]["exitcode"], 3)
            self.assertEqual(self.log(stream), printed(SOME))
            if stream == 1:
                lost = sum(len(f"[default0]:{line}\n") for line in printed(SOME).split()) - len("[default0]:first\n")
                self.assertEqual(self.read("other").count(f"[muster: {lost} bytes could not be shown on stdout]"), 1)
                self.assertIn("ChildFailedError", self.read("other"))


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        skip_all(f"FAILING_WRITES_LIB={LIBRARY} is not there")
    sys.exit(main())
