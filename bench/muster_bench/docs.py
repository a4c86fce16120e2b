"""Writes the generated part of docs/performance.md."""
from .programs import ROOT

PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- bench/run --update-docs: begin -->"
END = "<!-- bench/run --update-docs: end -->"


def replace_between_markers(text, generated):
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} lacks the lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n{generated.rstrip()}\n{END}{after}"


def update(generated, page=PAGE):
    page.write_text(replace_between_markers(page.read_text(), generated))
