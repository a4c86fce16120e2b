"""How many generated cases a test takes: all, or the share that MUSTER_SEEDS=N% names, as the simulations do."""
import os


def sample(count):
    """`count` without MUSTER_SEEDS=N%, else N percent of it, and one at least; never more than `count`."""
    share = os.environ.get("MUSTER_SEEDS", "").removesuffix("%")
    if not share.isdigit() or not os.environ["MUSTER_SEEDS"].endswith("%"):
        return count
    return max(1, count * min(int(share), 100) // 100)
