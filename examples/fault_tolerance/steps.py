"""Reads steps.csv, splits the steps where the job was restarted, and draws them as SVG."""

import dataclasses
import math
import pathlib
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 880, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 74, 52
COLOURS = {1: "#7d3c98", 2: "#b9770e", 3: "#1f618d"}  # Number of processes -> colour.
GAP = "#f2d7d5"  # The colour of the time without a step.
LINE_APART = 20  # Pixels between two lines of text.


@dataclasses.dataclass(frozen=True)
class Step:
    time: float  # When the step was finished, in seconds since the epoch.
    number: int
    processes: int
    loss: float


def read_steps(path: pathlib.Path) -> list[Step]:
    """Returns the steps in the order in which they were done.

    Leaves out the last line if it is incomplete, because a process may be writing it.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    return [Step(float(time), int(number), int(processes), float(loss))
            for time, number, processes, loss in (line.split(",") for line in lines)]


def stretches(steps: list[Step]) -> list[list[Step]]:
    """Splits the steps wherever the job continued from a snapshot, with other processes."""
    found: list[list[Step]] = []
    for step in steps:
        before = found[-1][-1] if found else None
        if before and step.number == before.number + 1 and step.processes == before.processes:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def text(x: float, y: float, words: str, **attributes: object) -> str:
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def tick(largest: float) -> float:
    """Returns the distance of two grid lines, for about six lines in all.

    The distance is 1, 2 or 5 times a power of ten.
    """
    raw = largest / 6
    power = 10 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)


class Axes:
    """Converts times and step numbers to pixels."""

    def __init__(self, steps: list[Step]) -> None:
        self.start = steps[0].time
        self.seconds = steps[-1].time - self.start
        self.steps = max(step.number for step in steps)

    def x(self, time: float) -> float:
        return LEFT + (time - self.start) / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, number: float) -> float:
        return HEIGHT - BOTTOM - number / self.steps * (HEIGHT - TOP - BOTTOM)


def grid(axes: Axes):
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for i in range(int(axes.steps / tick(axes.steps)) + 1):
        number = i * tick(axes.steps)
        y = axes.y(number)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(LEFT - 8, y + 4, f"{number:.0f}", text_anchor="end")
    for i in range(int(axes.seconds / tick(axes.seconds)) + 1):
        seconds = i * tick(axes.seconds)
        yield text(axes.x(axes.start + seconds), bottom + 18, f"{seconds:g} s", text_anchor="middle")
    yield text(LEFT - 8, TOP - 12, "step", text_anchor="end")


def gap(axes: Axes, before: Step, after: Step):
    left, right = axes.x(before.time), axes.x(after.time)
    yield (f'<rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
           f'height="{HEIGHT - TOP - BOTTOM}" fill="{GAP}"/>')


def gap_words(axes: Axes, before: Step, after: Step, row: int):
    again = before.number - after.number + 1
    words = f"{after.time - before.time:.1f} s without a step, {again} done again"
    # The text is at the bottom, because the line of the steps is higher after each gap.
    yield text(axes.x(before.time) + 6, HEIGHT - BOTTOM - 12 - row * LINE_APART, words,
               fill="#922b21")


def event(axes: Axes, time: float, words: str):
    x = axes.x(time)
    yield (f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" '
           f'stroke="#922b21" stroke-dasharray="4 3"/>')
    yield text(x, TOP - 14, words, text_anchor="middle", fill="#922b21")


def line(axes: Axes, steps: list[Step]):
    colour = COLOURS.get(steps[0].processes, "#333")
    path = " ".join(f"{axes.x(step.time):.1f},{axes.y(step.number):.1f}" for step in steps)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
    middle = steps[len(steps) // 2]
    yield text(axes.x(middle.time) - 8, axes.y(middle.number) - 6, f"{middle.processes} processes",
               text_anchor="end", fill=colour)


def draw(steps: list[Step], events: list[tuple[float, str]], title: str) -> str:
    """Returns the SVG. An event is a time and its label."""
    axes = Axes(steps)
    parts = stretches(steps)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f"<title>{escape(title)}</title>",
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
             text(LEFT, 24, title, font_size=14)]
    gaps = [(one[-1], other[0]) for one, other in zip(parts, parts[1:], strict=False)]
    for edges in gaps:
        lines += gap(axes, *edges)
    lines += grid(axes)
    for row, edges in enumerate(gaps):
        lines += gap_words(axes, *edges, row)
    for time, words in events:
        lines += event(axes, time, words)
    for part in parts:
        lines += line(axes, part)
    return "\n".join([*lines, "</svg>"]) + "\n"
