"""Checks what a launcher made of its workers' lines: every byte there, in order, prefixed."""
import dataclasses
import re

from .model import MeasureError

# torchrun's default prefix. A worker of ours prints digits only: it is never part of a line.
PREFIX = re.compile(rb"\[default(\d+)\]:")
CHUNK_BYTES = 1 << 20


@dataclasses.dataclass
class Seen:
    """One worker's stream as far as it was found: its length, and whether it was as expected."""
    expected: "Numbers"
    good: bool = True
    size: int = 0

    def take(self, data):
        self.good = self.good and self.expected.take(len(data)) == data
        self.size += len(data)


class Numbers:
    """What print_lines prints: 1 to count, a line each; made a piece at a time."""
    STEP = 100_000

    def __init__(self, count):
        self._left = iter(range(1, count + 1, self.STEP))
        self._count = count
        self._ready = b""

    def take(self, size):
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
        return sum((min(10 ** digits, count + 1) - 10 ** (digits - 1)) * (digits + 1)
                   for digits in range(1, len(str(count)) + 1))


def chunks(file):
    """Pieces that end with a line."""
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
    """Reads a console with the lines of `workers` workers, and returns how many lines were torn:
    a prefix in the middle of a line, where two streams met. A missing or a wrong byte raises.
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
            one.take(bytes(stream))
    require_all(seen, count)
    return torn


def check_plain(file, count):
    """Reads one worker's log file: nothing but its lines."""
    seen = Seen(Numbers(count))
    for chunk in chunks(file):
        seen.take(chunk)
    require_all([seen], count)


def require_all(seen, count):
    expected = Numbers.size(count)
    for rank, one in enumerate(seen):
        if one.size != expected:
            raise MeasureError(f"worker {rank}: {one.size} bytes arrived of {expected}")
        if not one.good:
            raise MeasureError(f"worker {rank}: all bytes arrived, but not in order")
