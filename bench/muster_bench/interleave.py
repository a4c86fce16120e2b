"""The order of the samples: A B C A B C …, so that a slow minute of the machine affects all."""
import dataclasses
import typing

from .model import MeasureError, Row


@dataclasses.dataclass(frozen=True)
class Contender:
    """A column of the table. `sample()` measures once and returns {quantity name: value}."""
    role: str
    sample: typing.Callable[[], dict[str, float]] | None
    why_not: str = ""  # The reason if `sample` is None.
    per_round: int = 1  # Samples in a row per round: more if a sample takes milliseconds.


def schedule(contenders, rounds):
    """Returns the order of the samples: each round has every contender, in the same order."""
    present = [contender for contender in contenders if contender.sample is not None]
    return [contender for _ in range(rounds) for contender in present
            for _ in range(contender.per_round)]


def interleave(quantities, contenders, rounds, say=lambda text: None):
    """Measures all contenders, and returns a Row for each quantity.

    If a contender fails, its column becomes empty, and its earlier samples are dropped, because a
    partial column is not comparable with full ones. The other contenders go on.
    """
    rows = {quantity.name: Row(quantity, {contender.role: [] for contender in contenders})
            for quantity in quantities}
    for contender in contenders:
        if contender.sample is None:
            for row in rows.values():
                row.why[contender.role] = contender.why_not
    failed = {}
    for contender in schedule(contenders, rounds):
        if contender.role in failed:
            continue
        try:
            measured = contender.sample()
        except MeasureError as error:
            failed[contender.role] = f"{error.kind}: {error}"
            say(f"  {contender.role} {failed[contender.role]}")
            continue
        for name, value in measured.items():
            rows[name].samples[contender.role].append(value)
        say(f"  {contender.role}: " +
            ", ".join(f"{name} {value:.4g}" for name, value in measured.items()))
    for role, reason in failed.items():
        for row in rows.values():
            row.samples[role] = []
            row.why[role] = reason
    for row in rows.values():
        for contender in contenders:
            if contender.sample and not row.samples[contender.role]:
                row.why.setdefault(contender.role, "does not have this")
    return list(rows.values())
