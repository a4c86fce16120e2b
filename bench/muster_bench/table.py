"""Formats the rows as a table and as JSON."""
import json

from .model import MUSTER, PEER, ROLES, Row

HEAD = ("what", "muster", "torchrun", "ratio", "limit", "unit", "target", "samples", "meaning")


def number(value):
    """Formats a number with about three significant digits and no exponent."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"


def ratio_text(row):
    ratio = row.ratio()
    return "" if ratio is None else f"{number(ratio)}×"


def target_text(row):
    target = row.quantity.target
    if target is None:
        return ""
    verdict = {True: " met", False: " MISSED", None: ""}[row.met()]
    return target.text(row.quantity.better) + verdict


def samples_text(row):
    counts = [len(row.samples.get(role, [])) for role in ROLES]
    return "/".join(str(count) if count else "–" for count in counts)


def cells(row):
    return (row.quantity.name, *(number(row.median(role)) for role in (MUSTER, PEER)),
            ratio_text(row), number(row.median("limit")), row.quantity.unit, target_text(row),
            samples_text(row), row.quantity.what)


def columns(lines, left=(0, 6, 8)):
    """Aligns the cells. The columns in `left` are aligned to the left, all others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) if i in left else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]


def empty_columns(rows):
    """Returns the reasons for empty columns, each once, with the names of its rows."""
    reasons = {}
    for row in rows:
        for role, why in row.why.items():
            reasons.setdefault((role, why), []).append(row.quantity.name)
    whole = len(rows)
    return [f"{role} empty: {why}" + ("" if len(names) == whole else f" ({', '.join(names)})")
            for (role, why), names in reasons.items()]


def spreads(rows):
    lines = [("what", *(f"{role} min .. median .. max" for role in ROLES), "unit")]
    for row in rows:
        texts = []
        for role in ROLES:
            spread = row.spread(role)
            texts.append("" if spread is None else " .. ".join(
                number(value) for value in (spread[0], row.median(role), spread[1])))
        lines.append((row.quantity.name, *texts, row.quantity.unit))
    return columns(lines, left=(0, 4))


def plain(rows, verbose=False):
    """Returns the table for a terminal, with medians. The ratio says how much better muster is."""
    lines = columns([HEAD] + [cells(row) for row in rows])
    lines += ["", *empty_columns(rows)]
    lines += [f"{row.quantity.name}: {note}" for row in rows for note in row.notes]
    if verbose:
        lines += ["", *spreads(rows)]
    return "\n".join(lines).rstrip() + "\n"


def markdown(rows):
    """Returns the table of docs/performance.md: the rows with a target, and the spread of two columns."""
    rows = [row for row in rows if row.quantity.target]
    def spread(row, role):
        found = row.spread(role)
        return "" if found is None else f"{number(found[0])}–{number(found[1])}"
    head = ("what", "name", "muster", "min–max", "torchrun", "min–max", "ratio", "limit", "unit",
            "target", "samples")
    lines = [head, ("---", "---", *["---:"] * 6, "---", "---", "---:")]
    for row in rows:
        lines.append((row.quantity.what, f"`{row.quantity.name}`",
                      number(row.median(MUSTER)), spread(row, MUSTER),
                      number(row.median(PEER)), spread(row, PEER), ratio_text(row),
                      number(row.median("limit")), row.quantity.unit, target_text(row),
                      samples_text(row)))
    text = ["| " + " | ".join(line) + " |" for line in lines]
    text += ["", *(f"- {line}" for line in empty_columns(rows))]
    text += [f"- `{row.quantity.name}`: {note}" for row in rows for note in row.notes]
    return "\n".join(text).rstrip() + "\n"


def write_json(rows, file):
    file.write(json.dumps([row.to_json() for row in rows], indent=1, ensure_ascii=False) + "\n")


def read_json(file):
    return [Row.from_json(record) for record in json.load(file)]
