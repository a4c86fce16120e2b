#!/usr/bin/env python3
"""Checks docs/log_events.md: each event that the programs log stands in one of its tables, and each
event of the tables is logged.

An event is the first word of a line of the log, followed by fields: `round_complete run=`.
"""
import pathlib
import re
import sys

FOLDERS = ("base", "rendezvous", "agent", "launcher")
LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
EVENT = re.compile(r"([a-z][a-z0-9]*(?:_[a-z0-9]+)*) [a-z_]+=")
# These literals are the reason of another event, and no event.
NO_EVENTS = {"limit"}


def literals(text):
    """The text's string literals, with adjacent ones joined."""
    for found in LITERALS.findall(text):
        yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found))


def listed(page):
    """The events of the page's tables, as (line number, event)."""
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("| `"):
            for event in re.findall(r"`(\w+)`", line.split(" | ")[0]):
                yield number, event


def main(root):
    logged, texts = {}, set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.*")):
            if path.suffix not in (".cc", ".h"):
                continue
            for text in literals(path.read_text()):
                texts.add(re.match(r"\w*", text)[0])
                event = EVENT.match(text)
                if event and event[1] not in NO_EVENTS:
                    logged.setdefault(event[1], path.relative_to(root))
    known = list(listed((root / "docs/log_events.md").read_text()))
    found = [f"docs/log_events.md:{number}: nothing logs {event}" for number, event in known if event not in texts]
    found += [f"{path}: docs/log_events.md does not list {event}"
              for event, path in sorted(logged.items()) if event not in {event for _, event in known}]
    print("\n".join(found) or f"log_events: all {len(known)} are listed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
