"""How many generated cases a test takes: all, or the share of which MUSTER_SEEDS speaks, as the simulations do."""
import os

SEEDS_OF_ALL = 2000


def sample(count):
    """`count` without MUSTER_SEEDS=N, else N two-thousandths of it; never more than `count`."""
    seeds = os.environ.get("MUSTER_SEEDS", "")
    if not seeds.isdigit():
        return count
    return max(1, count * min(int(seeds), SEEDS_OF_ALL) // SEEDS_OF_ALL)
