"""The quantities that are measured, and their samples."""
import dataclasses
import statistics

MUSTER, PEER, LIMIT = "muster", "peer", "limit"
ROLES = (MUSTER, PEER, LIMIT)


class MeasureError(Exception):
    """A program that exists did not do what was asked. The text says what it did."""
    kind = "failed"


class TooSlow(MeasureError):
    """The program works, but not within the time limit. It has no number, but has not failed."""
    kind = "too slow"


class Incapable(MeasureError):
    """The program is not made for this. It has no number, but has not failed."""
    kind = "cannot"


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of muster's number: a bound, or a bound relative to another column."""
    bound: float
    of: str | None = None  # None: `bound` is the number; PEER or LIMIT: a multiple of that column.
    or_equal: bool = False

    def text(self, better):
        sign = {("lower", False): "<", ("lower", True): "≤"}.get((better, self.or_equal))
        sign = sign or ("≥" if self.or_equal else ">")
        return f"{sign} {self.bound:g}" + (f" × {self.of}" if self.of else "")

    def met(self, better, medians):
        """Returns True or False, or None if a column that the target needs is empty."""
        value = medians[MUSTER]
        base = medians[self.of] if self.of else 1.0
        if value is None or base is None:
            return None
        bound = self.bound * base
        if value == bound:
            return self.or_equal
        return value < bound if better == "lower" else value > bound


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One line of the table. `what` describes, for people, what is measured from when to when."""
    name: str
    unit: str
    what: str
    better: str = "lower"
    target: Target | None = None

    def __post_init__(self):
        assert self.better in ("lower", "higher"), self.better


@dataclasses.dataclass
class Row:
    """A quantity and all its samples. An empty list is an empty column. `why` has its reason."""
    quantity: Quantity
    samples: dict[str, list[float]]
    why: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    drawing: dict = dataclasses.field(default_factory=dict)  # What a picture needs besides.

    def median(self, role):
        values = self.samples.get(role)
        return statistics.median(values) if values else None

    def spread(self, role):
        values = self.samples.get(role)
        return (min(values), max(values)) if values else None

    def medians(self):
        return {role: self.median(role) for role in ROLES}

    def ratio(self):
        """Returns how many times better muster is than the peer, or None if one is missing."""
        muster, peer = self.median(MUSTER), self.median(PEER)
        if muster is None or peer is None:
            return None
        above, below = (peer, muster) if self.quantity.better == "lower" else (muster, peer)
        return above / below if below else None

    def met(self):
        target = self.quantity.target
        return target.met(self.quantity.better, self.medians()) if target else None

    def to_json(self):
        quantity = self.quantity
        target = quantity.target
        return {
            "name": quantity.name,
            **self.medians(),
            "unit": quantity.unit,
            "what": quantity.what,
            "better": quantity.better,
            "ratio": self.ratio(),
            "target": dataclasses.asdict(target) if target else None,
            "met": self.met(),
            "samples": {role: self.samples.get(role, []) for role in ROLES},
            "why_empty": self.why,
            "notes": self.notes,
            **({"drawing": self.drawing} if self.drawing else {}),
        }

    @classmethod
    def from_json(cls, record):
        target = Target(**record["target"]) if record.get("target") else None
        quantity = Quantity(record["name"], record["unit"], record["what"], record["better"],
                            target)
        return cls(quantity, dict(record["samples"]), dict(record["why_empty"]),
                   list(record["notes"]), dict(record.get("drawing", {})))


def merge(older, newer):
    """Returns the older rows in their order, then the new ones.

    A newer row replaces the older row of the same name.
    """
    fresh = {row.quantity.name: row for row in newer}
    kept = [fresh.pop(row.quantity.name, row) for row in older]
    return kept + [row for row in newer if row.quantity.name in fresh]
