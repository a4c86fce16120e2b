#!/usr/bin/env python3
"""Mutated pickles: muster refuses a pickle, or serves a text that CPython unpickles to the same value, and that names only
allowed names.

    pickle_differential.py PICKLE_BATCH GOLDENS [--inputs N] [--seed S] [--processes P]

PICKLE_BATCH (pickle_batch.cc) reads each pickle and writes it again. CPython's own C unpickler is the reference, with a
find_class() that records every name and makes stand-ins for torch's two classes, so torch is not needed. An error is
printed with its seed.
P processes share the inputs: the first uses seed S, the next one S + 1, and so on.
"""
import argparse
import base64
import concurrent.futures
import datetime
import io
import pathlib
import pickle
import pickletools
import random
import struct
import subprocess
import sys

MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
INPUTS_AT_ONCE = 500
NO_MORE = struct.pack("<I", 0xffffffff)  # In place of a length: now the program answers.
TELLS_EVERY = 250_000  # Inputs, in each process.
MAX_SEED_CHARACTERS = 12_000  # Bytes of base64: larger ones are slow, and have nothing that a small one lacks.


class _RendezvousState:
    pass


class _NodeDesc:
    """Hashed and compared as torch's frozen dataclass is."""

    def __hash__(self):
        return hash((self.addr, self.pid, self.local_id))

    def __eq__(self, other):
        return (self.addr, self.pid, self.local_id) == (other.addr, other.pid, other.local_id)


ALLOWED = {(MODULE, "_RendezvousState"): _RendezvousState, (MODULE, "_NodeDesc"): _NodeDesc,
           ("datetime", "datetime"): datetime.datetime, ("datetime", "timezone"): datetime.timezone,
           ("datetime", "timedelta"): datetime.timedelta, ("builtins", "set"): set}
SERVED = set(ALLOWED) - {("builtins", "set")}  # The encoder writes sets and bytes of protocol 4.


class Unpickler(pickle.Unpickler):
    def __init__(self, data):
        super().__init__(io.BytesIO(data))
        self.names = set()

    def find_class(self, module, name):
        self.names.add((module, name))
        if (module, name) in (("__builtin__", "set"), ("_codecs", "encode")):
            return super().find_class(module, name)  # Which renames, or not, by the pickle's protocol.
        return ALLOWED[(module, name)]


def same(value, depth=0):
    """A value as something that can be compared: the state with its defaults, a time as its instant."""
    if depth > 40:
        raise RecursionError
    if isinstance(value, _RendezvousState):
        content = {"redundancy_list": set(), **vars(value)}
        return "state", {key: same(item, depth + 1) for key, item in content.items()}
    if isinstance(value, _NodeDesc):
        return "node", value.addr, value.pid, value.local_id, len(vars(value))
    if isinstance(value, datetime.datetime):
        return "time", (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(microseconds=1)
    if isinstance(value, dict):
        return "dict", [(same(key, depth + 1), same(item, depth + 1)) for key, item in value.items()]
    if isinstance(value, set):
        return "set", sorted(repr(same(item, depth + 1)) for item in value)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [same(item, depth + 1) for item in value]
    return type(value).__name__, value


class Mutator:
    """Changes whole operations, so that many results can still be read; now and then bytes."""

    PUTS = (b"\x94", b"q%c", b"r%c\0\0\0")
    GETS = (b"h%c", b"j%c\0\0\0")
    SHORT = (b"0", b"1", b"2", b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f", b"(", b"t", b"\x85", b"\x86", b"\x87", b"R",
             b"\x81", b"\x93", b"b", b"a", b"e", b"s", b"u", b"\x90", b"\x91", b"K\1", b"J\xff\xff\xff\xff", b"\x8a\1\x80",
             b"\x8c\1x", b"C\1x", b"\x94", b"\x80\4", b"\x80\2", b"cbuiltins\nset\n", b"c__builtin__\nset\n", b"cdatetime\ntimedelta\n",
             b"c_codecs\nencode\n", b"cposix\ngetcwd\n", b"\x8c\x0d__reduce_ex__", b"\x8c\x0c__setstate__", b"\x8c\1x", b"\x8c\4addr")

    def __init__(self, seeds, seed):
        self.random = random.Random(seed)
        self.seeds = [self.operations(data) for data in seeds]

    @staticmethod
    def operations(data):
        places = [place for _, _, place in pickletools.genops(data)] + [len(data)]
        parts = [data[a:b] for a, b in zip(places, places[1:])]
        return [part for part in parts if part[:1] != b"\x95"]  # Frames would be wrong after any change.

    def next(self):
        choose = self.random
        parts = list(choose.choice(self.seeds))
        for _ in range(choose.choice((1, 1, 1, 2, 2, 3, 5))):
            self.change(parts)
        data = b"".join(parts)
        if choose.random() < 0.05 and data:
            place = choose.randrange(len(data))
            data = data[:place] + bytes([choose.randrange(256)]) + data[place + 1:]
        return data

    def change(self, parts):
        choose = self.random
        at = choose.randrange(1, len(parts))
        kind = choose.randrange(9)
        memo = self.some_memo_operation(parts) if kind < 4 else None
        if memo is not None:
            at = memo
            number = bytes([choose.randrange(64)])
            form = choose.choice(self.PUTS if parts[at][:1] in b"\x94qr" else self.GETS)
            parts[at] = form.replace(b"%c", number)
            if kind == 3:  # As is, but once more.
                parts.insert(at, parts[at])
        elif kind == 4:
            parts.insert(at, choose.choice(self.SHORT))
        elif kind == 5:
            parts[at] = choose.choice(self.SHORT)
        elif kind == 6 and len(parts) > 3:
            del parts[at]
        elif kind == 7:
            other = choose.randrange(1, len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        else:
            first = choose.randrange(1, len(parts))
            parts[at:at] = parts[first:first + choose.randrange(1, 12)]

    def some_memo_operation(self, parts):
        """The position of a memo operation; None if there are hardly any. Random tries cost less than a full search."""
        for _ in range(64):
            at = self.random.randrange(len(parts))
            if parts[at][:1] in b"\x94qrhj":
                return at
        return None


class Batch:
    """The program that is tested."""

    def __init__(self, program):
        self.program = program
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def answers(self, inputs):
        """The program's answer to each input. If the program ends early, the list is shorter."""
        try:
            for data in inputs:
                self.process.stdin.write(struct.pack("<I", len(data)) + data)
            self.process.stdin.write(NO_MORE)
            self.process.stdin.flush()
        except BrokenPipeError:
            return []
        served = []
        for _ in inputs:
            head = self.process.stdout.read(4)
            if len(head) != 4:
                break
            served.append(self.process.stdout.read(struct.unpack("<I", head)[0]))
        return served

    def which_ends_it(self, inputs):
        """The number of the input that ends the program, and how it ends."""
        for number, data in enumerate(inputs):
            alone = Batch(self.program)
            if len(alone.answers([data])) != 1:
                return number, alone.process.wait()
            alone.end()
        return None, self.process.wait()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def judge(given, served):
    """Compares the pickle `served`, which muster serves in place of `given`. Returns the difference; None: there is none."""
    ours = Unpickler(served)
    ours_value = ours.load()
    if not ours.names <= SERVED:
        return f"what is served names {ours.names - SERVED}"
    theirs = Unpickler(given)
    try:
        theirs_value = theirs.load()
    except Exception as error:  # noqa: BLE001: any at all
        return f"CPython refuses it: {type(error).__name__}: {error}"
    if same(ours_value) != same(theirs_value):
        return f"CPython: {same(theirs_value)}\nmuster:  {same(ours_value)}"
    return None


def run(program, seeds, inputs, seed):
    """Tests so many inputs. Returns the first error; None: there is none."""
    mutator = Mutator(seeds, seed)
    batch = Batch(program)
    done = accepted = unchanged = 0
    while done < inputs:
        given = [mutator.next() for _ in range(min(INPUTS_AT_ONCE, inputs - done))]
        answers = batch.answers(given)
        if len(answers) != len(given):
            number, status = batch.which_ends_it(given)
            if number is None:
                return f"inputs from {done} on of seed {seed}, together: the program has ended with {status}"
            return f"input {done + number} of seed {seed}: the program has ended with {status}: {given[number]!r}"
        for number, (data, served) in enumerate(zip(given, answers)):
            if not served:
                continue
            accepted += 1
            unchanged += served == data
            if wrong := judge(data, served):
                return f"input {done + number} of seed {seed}: {wrong}\n{data!r}"
        if (done + len(given)) // TELLS_EVERY > done // TELLS_EVERY:
            print(f"seed {seed}: {done + len(given)} inputs so far, {accepted} accepted", flush=True)
        done += len(given)
    batch.end()
    print(f"seed {seed}: {done} inputs from {len(seeds)} seeds, {accepted} accepted, {unchanged} unchanged", flush=True)
    if accepted < done // 100:
        return "hardly any input was accepted: the mutations say nothing"
    return None


def run_all(options, seeds):
    """Divides the inputs among the processes. Returns all errors; None: there are none."""
    share = -(-options.inputs // options.processes)
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        runs = [pool.submit(run, options.program, seeds, share, options.seed + i) for i in range(options.processes)]
        return "\n".join(filter(None, (one.result() for one in runs))) or None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    seeds = []
    for path in sorted(options.goldens.glob("golden/*.b64")):
        text = path.read_text()
        if len(text) < MAX_SEED_CHARACTERS and path.stem != "00_sentinel":
            seeds.append(base64.b64decode(text))
    if len(seeds) < 15:
        return "too few seeds"
    return run_all(options, seeds)


if __name__ == "__main__":
    sys.exit(main())
