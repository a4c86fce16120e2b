"""Draws the steps of `bench/run goodput` as SVG: time against the step that a job was at."""
import dataclasses

from .curve import LABEL_APART, text
from .model import LIMIT, MUSTER, PEER
from .programs import ROOT

PICTURE = ROOT / "docs" / "pictures" / "goodput.svg"
WIDTH, HEIGHT = 880, 470
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 64, 52
MINUTE_S = 60
LINES = 6  # About so many lines of the grid.


@dataclasses.dataclass(frozen=True)
class Series:
    label: str
    colour: str
    dashes: str = ""


SERIES = {
    "whole": Series("without failures", "#7f8c8d", "2 3"),
    MUSTER: Series("muster --warm", "#1f618d"),
    LIMIT: Series("muster", "#b9770e"),
    PEER: Series("torchrun", "#c0392b"),
}
LABELS = {
    "exception": "exception", "worker_kill": "worker killed", "agent_kill": "agent killed",
    "node_lost": "node lost", "hang": "hang", "host_kill": "host killed",
}


class Axes:
    """Converts values to pixels."""

    def __init__(self, end_s, steps):
        self.end_s, self.steps = end_s, steps

    def x(self, at_s):
        return LEFT + at_s / self.end_s * (WIDTH - LEFT - RIGHT)

    def y(self, step):
        return HEIGHT - BOTTOM - step / self.steps * (HEIGHT - TOP - BOTTOM)


def apart(largest):
    """Returns a distance of grid lines: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if power * factor * LINES >= largest:
                return power * factor
        power *= 10


def grid(axes):
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for step in range(0, axes.steps + 1, apart(axes.steps)):
        y = axes.y(step)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(LEFT - 8, y + 4, f"{step:,}", text_anchor="end")
    minutes = axes.end_s / MINUTE_S
    for minute in range(0, int(minutes) + 1, apart(minutes)):
        yield text(axes.x(minute * MINUTE_S), bottom + 18, str(minute), text_anchor="middle")
    yield text((LEFT + right) / 2, bottom + 38, "minutes", text_anchor="middle")
    yield text(LEFT - 8, TOP - 12, "step", text_anchor="end")


def failures(axes, drawing):
    for at_s, kind in drawing["failures"]:
        x = axes.x(at_s)
        yield (f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#aaa" '
               'stroke-dasharray="4 3"/>')
        yield text(x, TOP - 8, LABELS[kind], text_anchor="middle", fill="#555")


def label_of(row, name):
    share = row.median(name)
    return SERIES[name].label + ("" if share is None else f": {share:.0f} %")


def draw(rows):
    """Returns the SVG, or None if the rows have no measurement of the steps."""
    row = next((row for row in rows if row.quantity.name == "goodput.share"), None)
    if row is None or not row.drawing:
        return None
    drawing = row.drawing
    drawn = [(label_of(row, name), series, drawing["lines"][name]) for name, series in SERIES.items()
             if name in drawing["lines"]]
    axes = Axes(drawing["end"], max(step for _, _, line in drawn for _, step in line) or 1)
    title = "The step of a job of two nodes that is met by six failures"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f"<title>{title}</title>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
             text(LEFT, 24, title, font_size=14), *grid(axes), *failures(axes, drawing)]
    below = 0.0
    for label, series, line in sorted(drawn, key=lambda one: -one[2][-1][1]):
        dashes = f' stroke-dasharray="{series.dashes}"' if series.dashes else ""
        path = " ".join(f"{axes.x(second):.1f},{axes.y(step):.1f}" for second, step in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{series.colour}" '
                     f'stroke-width="2"{dashes}/>')
        below = max(axes.y(line[-1][1]), below + LABEL_APART)
        parts.append(text(WIDTH - RIGHT + 10, below + 4, label, fill=series.colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def update(rows, picture=PICTURE):
    svg = draw(rows)
    if svg is not None:
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(svg)
