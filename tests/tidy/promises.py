#!/usr/bin/env python3
"""Checks the promises of docs/security.md: each promise has a number, tests/tidy/promises.md names its
tests, and each named test exists. Tests that other sentences of docs/security.md name are checked as
well.

A test is named by its ctest name (`e2e.tls`), optionally followed by classes (Nodes) and by its
methods or parts of their names (`sighup`). A Catch2 test is named by its whole name, as in
unit "tls: the text is not readable on the wire".
"""
import pathlib
import re
import sys

DOCUMENT = "docs/security.md"
LIST = "tests/tidy/promises.md"
SUITE = re.compile(r"(?:e2e|attack)\.\w+|http_server")
CASE = re.compile(r'TEST_CASE\w*\((?:\w+,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)')
# unit "a name", "a name"; `a ctest name or a method`; Class
PART = re.compile(r'unit ("[^"]+"(?:, "[^"]+")*)|`([^`]+)`|(\b[A-Z][A-Za-z0-9]*\b)')
PROMISE = re.compile(r"\| ([A-Z]\d+) \| (.+) \|")


class Tests:
    def __init__(self, folder):
        self.cmake = "\n".join(path.read_text() for path in folder.rglob("CMakeLists.txt"))
        self.scripts = {path.stem.removesuffix("_test"): path.read_text() for path in folder.rglob("*_test.py")}
        self.units = {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)) for path in folder.rglob("*.cc")
                      for literals in CASE.findall(path.read_text())}

    def script(self, suite):
        """The text of a Python test, by its ctest name; None if ctest runs no such test."""
        kind, _, name = suite.rpartition(".")
        name = {"": "http", "attack": f"{name}_attack"}.get(kind, name)
        known = re.search(rf"\b{suite.rpartition('.')[2]}\b", self.cmake)
        return self.scripts.get(name) if known else None


def references(text):
    """(kind, name, suite) of all tests that a text names."""
    suite = None
    for units, code, word in PART.findall(" ".join(text.split())):
        if units:
            yield from (("unit", name, None) for name in re.findall(r'"([^"]+)"', units))
        elif SUITE.fullmatch(code):
            suite = code
            yield "suite", code, None
        elif suite and code:
            yield "method", code, suite
        elif suite and word:
            yield "class", word, suite


def is_there(tests, kind, name, suite):
    if kind == "unit":
        return name in tests.units
    script = tests.script(suite or name)
    if script is None or kind == "suite":
        return script is not None
    pattern = rf"^class {name}\b" if kind == "class" else rf"^ +def \w*{re.escape(name)}"
    return re.search(pattern, script, re.MULTILINE) is not None


def rows(text):
    """(line, number of the promise, the rest of the row) of each row of a table of promises."""
    for line, row in enumerate(text.splitlines(), 1):
        if match := PROMISE.fullmatch(row):
            yield line, *match.groups()


def unnumbered(text):
    """The rows of the tables of promises that have no number."""
    inside = False
    for line, row in enumerate(text.splitlines(), 1):
        inside = row == "| | promise |" or (inside and row.startswith("|"))
        if inside and row != "| | promise |" and not set(row) <= set("|- ") and not PROMISE.fullmatch(row):
            yield line, row


def problems(document, test_list, tests):
    promised = [number for _, number, _ in rows(document)]
    listed = [number for _, number, _ in rows(test_list)]
    if not promised:
        yield f"{DOCUMENT}: there are no promises"
    for line, row in unnumbered(document):
        yield f"{DOCUMENT}:{line}: a promise without a number: {row}"
    for numbers, place in ((promised, DOCUMENT), (listed, LIST)):
        for number in {number for number in numbers if numbers.count(number) > 1}:
            yield f"{place}: {number} stands there twice"
    for number in sorted(set(promised) ^ set(listed)):
        yield f"{number} stands in {DOCUMENT if number in promised else LIST} only"
    for line, number, cell in rows(test_list):
        named = list(references(cell))
        if not named:
            yield f"{LIST}:{line}: {number} names no test: {cell}"
        for kind, name, suite in named:
            if not is_there(tests, kind, name, suite):
                yield f"{LIST}:{line}: there is no {kind} {name}" + (f" in {suite}" if suite else "")
    for kind, name, suite in references(re.sub(r"```.*?```", "", document, flags=re.DOTALL)):
        if kind in ("suite", "unit") and not is_there(tests, kind, name, suite):
            yield f"{DOCUMENT}: there is no {kind} {name}"


def main(root):
    tests = Tests(root / "tests")
    document, test_list = ((root / name).read_text() for name in (DOCUMENT, LIST))
    found = sorted(set(problems(document, test_list, tests)))
    print("\n".join(found) or "promises: each one names tests that are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
