"""Decides how many generated cases a test runs: all, or the share that MUSTER_SEEDS=N% names, as in
the simulations."""
import os


def sample(count):
    """`count` without MUSTER_SEEDS=N%. With it N percent of `count`, but at least one and at most
    `count`."""
    share = os.environ.get("MUSTER_SEEDS", "").removesuffix("%")
    if not share.isdigit() or not os.environ["MUSTER_SEEDS"].endswith("%"):
        return count
    return max(1, count * min(int(share), 100) // 100)
