"""The arguments of a family: the programs, the number of samples, and a function for progress."""
import dataclasses
import functools
import random
import typing

from .interleave import Contender
from .model import LIMIT, MUSTER, PEER
from .programs import Programs


@dataclasses.dataclass(frozen=True)
class Bench:
    programs: Programs
    say: typing.Callable[[str], None]  # Prints a line of progress.
    quick: bool = False
    repetitions: int | None = None  # The number of rounds, instead of each family's own number.
    minutes: float | None = None  # How long a job of `goodput` runs, instead of its own time.
    chance: random.Random = dataclasses.field(default_factory=lambda: random.Random(1))

    def rounds(self, usual):
        if self.repetitions is not None:
            return self.repetitions
        return 1 if self.quick else usual

    def per_round(self, usual):
        """The samples per round. A sample of milliseconds is taken more than once per round, which
        makes the median more stable."""
        return 1 if self.quick else usual

    def settle_s(self):
        """How long a job runs before the measured event. The time is random, because a launcher may
        poll, and the event should come at any point of its period."""
        return self.chance.uniform(0.15, 0.35)

    def launchers(self, count, worker, *, options=(), restarts=0):
        """Returns {role: command line that starts `count` workers, or why there is none}.

        `worker` is [Program, argument...]. muster and torchrun get the same arguments.
        """
        program, *arguments = worker
        if not program:
            return {role: program.why_not for role in (MUSTER, PEER, LIMIT)}
        words = ["--standalone", f"--nproc-per-node={count}", f"--max-restarts={restarts}",
                 *options, "--no-python", program.path, *arguments]
        bare = self.programs.native("bare_launcher")
        return {
            MUSTER: line(self.programs.muster, words),
            PEER: line(self.programs.torchrun, words),
            LIMIT: line(bare, ["--restarts", restarts, count, program.path, *arguments]),
        }

    def contenders(self, lines, sample, *, fast=1):
        """Returns a Contender for each command line. `sample` is called with the command line."""
        return [
            Contender(role, None, why_not=words) if isinstance(words, str) else
            Contender(role, functools.partial(sample, words),
                      per_round=1 if role == PEER else self.per_round(fast))
            for role, words in lines.items()
        ]


def line(program, words):
    """Returns the program's command line, or the reason (a string) why the program is missing."""
    return [program.path, *map(str, words)] if program else program.why_not
