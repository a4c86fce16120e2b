"""The arithmetic of `bench/run goodput`: from the log of the steps to what the job has kept."""
import bisect
import dataclasses

from .model import MeasureError

STANDS_STILL_S = 1.0  # A busy machine makes some steps longer than usual.


@dataclasses.dataclass(frozen=True)
class Step:
    at_s: float  # When it was done, since the job's first step.
    number: int  # From 1. A number comes again when the job went back to its checkpoint.


def read_steps(text):
    """Returns the steps of a log, in their order. The last line may be incomplete."""
    words = [line.split() for line in text.rpartition("\n")[0].splitlines()]
    steps = [Step((int(at) - int(words[0][0])) / 1e9, int(number)) for at, number in words]
    highest = 0
    for step in steps:
        if not 1 <= step.number <= highest + 1:
            raise MeasureError(f"step {step.number} came after {highest} steps")
        highest = max(highest, step.number)
    return steps


def kept(steps):
    """Returns how many steps the job has done, each counted once."""
    return max((step.number for step in steps), default=0)


def done_again(steps):
    return len(steps) - kept(steps)


def share(steps, whole):
    """Returns the kept steps as percent of those of a job without failures."""
    if not kept(whole):
        raise MeasureError("the job without failures has done no step")
    return 100 * kept(steps) / kept(whole)


def pause_s(steps, at_s, next_s, end_s):
    """Returns the longest time without a step that began after a failure at `at_s`, and before the
    next failure at `next_s`. A job that has stood still until its end has done so for at least this
    time.

    Returns None if the job stood still already when the failure came.
    """
    times = [step.at_s for step in steps]
    last = bisect.bisect_right(times, at_s) - 1
    if last < 0 or at_s - times[last] > STANDS_STILL_S:
        return None
    points = [*times[last:], end_s]
    return max(later - earlier for earlier, later in zip(points, points[1:]) if earlier < next_s)


def progress(steps, end_s):
    """Returns [second, the step that the job was at], for each whole second."""
    times = [step.at_s for step in steps]
    found = []
    for second in range(int(end_s) + 1):
        index = bisect.bisect_right(times, second)
        found.append([second, steps[index - 1].number if index else 0])
    return found
