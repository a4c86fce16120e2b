#!/usr/bin/env python3
"""Checks the table of promises in docs/security.md: each promise names tests, and each named test
exists.

Each row of a table under "| promise | test |" must name a test; tests that other sentences name are
checked as well. A test is named by its ctest name (`e2e.tls`), optionally followed by classes
(Nodes) and by its methods or parts of their names (`sighup`). A Catch2 test is named by its whole
name, as in unit "tls: the text is not readable on the wire".
"""
import pathlib
import re
import sys

SUITE = re.compile(r"(?:e2e|attack)\.\w+|http_server")
CASE = re.compile(r'TEST_CASE\w*\((?:\w+,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)')
# unit "a name", "a name"; `a ctest name or a method`; Class
PART = re.compile(r'unit ("[^"]+"(?:, "[^"]+")*)|`([^`]+)`|(\b[A-Z][A-Za-z0-9]*\b)')


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


def problems(text, tests):
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        inside = bool(cells) and (inside or cells == ["promise", "test"])
        if not inside or cells == ["promise", "test"] or set(line) <= set("|- "):
            continue
        named = list(references(cells[-1]))
        if not named:
            yield number, f"names no test: {line}"
        for kind, name, suite in named:
            if not is_there(tests, kind, name, suite):
                yield number, f"there is no {kind} {name}" + (f" in {suite}" if suite else "")


def main(root):
    tests = Tests(root / "tests")
    text = (root / "docs/security.md").read_text()
    found = [f"docs/security.md:{number}: {what}" for number, what in problems(text, tests)]
    for kind, name, suite in references(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if kind in ("suite", "unit") and not is_there(tests, kind, name, suite):
            found.append(f"docs/security.md: there is no {kind} {name}")
    print("\n".join(sorted(set(found))) or "promises: each one names tests that are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
