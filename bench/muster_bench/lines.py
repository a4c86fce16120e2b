"""Checks a launcher's output: every byte of its workers is there, in order and with a prefix."""
import dataclasses
import re

from .model import MeasureError

# torchrun's default prefix. It is never part of a worker's line, because the workers print digits.
PREFIX = re.compile(rb"\[default(\d+)\]:")
CHUNK_BYTES = 1 << 20


@dataclasses.dataclass
class Seen:
    """The part of one worker's stream that was read: its length, and whether it was correct."""
    expected: "Numbers"
    good: bool = True
    size: int = 0

    def feed(self, data):
        self.good = self.good and self.expected.take(len(data)) == data
        self.size += len(data)


class Numbers:
    """The output of print_lines: the numbers 1 to count, one per line, made piece by piece."""
    STEP = 100_000

    def __init__(self, count):
        self._left = iter(range(1, count + 1, self.STEP))
        self._count = count
        self._ready = b""

    def take(self, size):
        """Returns the next `size` bytes, or fewer at the end."""
        while len(self._ready) < size:
            start = next(self._left, None)
            if start is None:
                break
            end = min(start + self.STEP, self._count + 1)
            self._ready += b"".join(b"%d\n" % number for number in range(start, end))
        taken, self._ready = self._ready[:size], self._ready[size:]
        return taken

    @staticmethod
    def size(count):
        """Returns the number of bytes of all lines."""
        return sum((min(10 ** digits, count + 1) - 10 ** (digits - 1)) * (digits + 1)
                   for digits in range(1, len(str(count)) + 1))


def chunks(file):
    """Yields the file in pieces that end at the end of a line."""
    rest = b""
    while data := file.read(CHUNK_BYTES):
        whole, newline, rest_of_it = (rest + data).rpartition(b"\n")
        if not newline:
            rest = rest_of_it
            continue
        rest = rest_of_it
        yield whole + newline
    if rest:
        yield rest


def check_prefixed(file, workers, count):
    """Reads a console with the lines of `workers` workers, and returns the number of torn lines.

    A torn line has a prefix in its middle, where two streams meet. A missing or wrong byte raises
    MeasureError.
    """
    seen = [Seen(Numbers(count)) for _ in range(workers)]
    torn = 0
    for chunk in chunks(file):
        before, *parts = PREFIX.split(chunk)
        if before:
            raise MeasureError(f"a line without prefix: {before[:80]!r}")
        streams = [bytearray() for _ in range(workers)]
        for rank, text in zip(parts[::2], parts[1::2]):
            if int(rank) >= workers:
                raise MeasureError(f"a prefix of no worker: {rank!r}")
            streams[int(rank)] += text
        torn += len(parts) // 2 - chunk.count(b"\n")
        for one, stream in zip(seen, streams):
            one.feed(bytes(stream))
    require_all(seen, count)
    return torn


def check_plain(file, count):
    """Checks that a worker's log file has its lines and nothing else."""
    seen = Seen(Numbers(count))
    for chunk in chunks(file):
        seen.feed(chunk)
    require_all([seen], count)


def require_all(seen, count):
    expected = Numbers.size(count)
    for rank, one in enumerate(seen):
        if one.size != expected:
            raise MeasureError(f"worker {rank}: {one.size} bytes arrived of {expected}")
        if not one.good:
            raise MeasureError(f"worker {rank}: all bytes arrived, but not in order")
