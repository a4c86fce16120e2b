"""What a family gets to measure with: the programs, how often, and where to say what happens."""
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
    say: typing.Callable[[str], None]
    quick: bool = False
    repetitions: int | None = None  # Rounds, instead of each family's own number.
    chance: random.Random = dataclasses.field(default_factory=lambda: random.Random(1))

    def rounds(self, usual):
        if self.repetitions is not None:
            return self.repetitions
        return 1 if self.quick else usual

    def per_round(self, usual):
        """More than one sample each round, of what takes milliseconds: the median gets steadier."""
        return 1 if self.quick else usual

    def settle_s(self):
        """How long a job runs before it is disturbed. By chance, so that a launcher that looks
        every so often is met at any point of its period."""
        return self.chance.uniform(0.15, 0.35)

    def launchers(self, count, worker, *, options=(), restarts=0):
        """{role: command line that starts `count` workers, or the reason that there is none}.

        `worker` is [Program, argument...]. muster and torchrun get the very same words.
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
        """A Contender for each command line; `sample` takes the line."""
        return [
            Contender(role, None, why_not=words) if isinstance(words, str) else
            Contender(role, functools.partial(sample, words),
                      per_round=1 if role == PEER else self.per_round(fast))
            for role, words in lines.items()
        ]


def line(program, words):
    return [program.path, *map(str, words)] if program else program.why_not
