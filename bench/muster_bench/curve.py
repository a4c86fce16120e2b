"""Draws the curve of docs/performance.md as SVG: nodes against seconds, on logarithmic axes."""
import dataclasses
import math
import re
from xml.sax.saxutils import escape

from .model import LIMIT, MUSTER, PEER
from .programs import ROOT

PICTURE = ROOT / "docs" / "pictures" / "rendezvous.svg"
WIDTH, HEIGHT = 880, 470
LEFT, RIGHT, TOP, BOTTOM = 64, 270, 46, 52
LABEL_APART = 17  # The smallest distance of two labels, in pixels.


@dataclasses.dataclass(frozen=True)
class Series:
    label: str
    measured: str  # The end of the quantity's name: rendezvous.NODES.<measured>.
    role: str
    colour: str
    dashes: str = ""


SERIES = (
    Series("torchrun: restart", "restart_s", PEER, "#c0392b"),
    Series("torchrun: join", "join_s", PEER, "#c0392b", "6 4"),
    Series("torch's nodes at musterd: restart", "torch_restart_s", MUSTER, "#b9770e"),
    Series("torch's nodes at musterd: join", "torch_join_s", MUSTER, "#b9770e", "6 4"),
    Series("muster: join", "join_s", MUSTER, "#1f618d", "6 4"),
    Series("muster: restart", "restart_s", MUSTER, "#1f618d"),
    Series("limit: connects, a message each way", "join_s", LIMIT, "#7f8c8d", "2 3"),
)


def points(rows, series):
    """Returns [(nodes, seconds)], sorted by nodes, without those that have no sample."""
    found = []
    for row in rows:
        match = re.fullmatch(rf"rendezvous\.(\d+)\.{series.measured}", row.quantity.name)
        seconds = row.median(series.role) if match else None
        if seconds:
            found.append((int(match[1]), seconds))
    return sorted(found)


class Axes:
    """Converts values to pixels. The axes span whole decades of seconds and all node numbers."""

    def __init__(self, lines):
        nodes = [node for line in lines for node, _ in line]
        seconds = [value for line in lines for _, value in line]
        self.nodes = (min(nodes), max(nodes))
        self.decades = range(math.floor(math.log10(min(seconds))),
                             math.ceil(math.log10(max(seconds))) + 1)

    def x(self, nodes):
        low, high = (math.log(edge) for edge in self.nodes)
        return LEFT + (math.log(nodes) - low) / (high - low or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, seconds):
        low, high = self.decades[0], self.decades[-1]
        part = (math.log10(seconds) - low) / (high - low or 1)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def grid(axes, nodes):
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for exponent in axes.decades:
        y = axes.y(10.0 ** exponent)
        yield (f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        name = f"{10 ** exponent} s" if exponent >= 0 else f"{10.0 ** exponent:.{-exponent}f} s"
        yield text(LEFT - 8, y + 4, name, text_anchor="end")
    for count in nodes:
        x = axes.x(count)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>'
        yield text(x, bottom + 18, f"{count:,}", text_anchor="middle")
    yield text((LEFT + right) / 2, bottom + 38, "nodes", text_anchor="middle")


def curve(axes, series, line):
    dashes = f' stroke-dasharray="{series.dashes}"' if series.dashes else ""
    path = " ".join(f"{axes.x(nodes):.1f},{axes.y(seconds):.1f}" for nodes, seconds in line)
    yield (f'<polyline points="{path}" fill="none" stroke="{series.colour}" '
           f'stroke-width="2"{dashes}/>')
    for nodes, seconds in line:
        yield (f'<circle cx="{axes.x(nodes):.1f}" cy="{axes.y(seconds):.1f}" r="3" '
               f'fill="{series.colour}"/>')


def labels(axes, drawn):
    """Draws the labels at the right edge.

    Each label is at the height of its line's last point, or lower where labels would overlap.
    """
    wanted = sorted(((axes.y(line[-1][1]), series, line[-1]) for series, line in drawn),
                    key=lambda one: one[0])
    placed = []
    for y, series, last in wanted:
        y = max(y, placed[-1][0] + LABEL_APART) if placed else y
        placed.append((y, series, last))
    x = WIDTH - RIGHT + 26
    for y, series, (nodes, seconds) in placed:
        yield (f'<polyline points="{axes.x(nodes) + 5:.1f},{axes.y(seconds):.1f} {x - 4},{y:.1f}" '
               f'fill="none" stroke="{series.colour}" stroke-width="0.6" opacity="0.6"/>')
        yield text(x, y + 4, series.label, fill=series.colour)


def draw(rows):
    """Returns the SVG, or None if the rows have no measurements of the rendezvous."""
    drawn = [(series, line) for series in SERIES if len(line := points(rows, series)) > 1]
    if not drawn:
        return None
    axes = Axes([line for _, line in drawn])
    nodes = sorted({node for _, line in drawn for node, _ in line})
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             '<title>Until the last node knows its rank</title>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
             text(LEFT, 24, "Until the last of N nodes knows its rank: all join at once; one fails "
                  "and all join again", font_size=14),
             *grid(axes, nodes)]
    for series, line in drawn:
        parts += curve(axes, series, line)
    return "\n".join([*parts, *labels(axes, drawn), "</svg>"]) + "\n"


def update(rows, picture=PICTURE):
    svg = draw(rows)
    if svg is not None:
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(svg)
