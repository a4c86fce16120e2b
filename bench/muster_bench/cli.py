"""The command line of bench/run."""
import argparse
import contextlib
import datetime
import math
import resource
import sys

from . import curve, docs, families, goodput_curve, programs, table
from .context import Bench
from .model import merge


def parser(names):
    parse = argparse.ArgumentParser(
        prog="bench/run",
        description="Measures muster, torchrun and the physical limit side by side, and prints "
                    "one table of medians. What is not there is left empty.")
    parse.add_argument("name", nargs="*", metavar="NAME",
                       help=f"families to measure (default: all): {', '.join(names)}")
    parse.add_argument("--list", action="store_true", help="say what there is to measure, and end")
    parse.add_argument("--json", metavar="FILE", help="write the result as JSON ('-': stdout)")
    parse.add_argument("--repetitions", type=int, metavar="N",
                       help="rounds, instead of each family's own number")
    parse.add_argument("--minutes", type=float, metavar="N",
                       help="goodput: how long each of its four jobs runs (default: 10)")
    parse.add_argument("--quick", action="store_true", help="one round, one sample each")
    parse.add_argument("--verbose", action="store_true",
                       help="every sample as it comes, and each column's min and max")
    parse.add_argument("--muster", metavar="PATH", help="default: build/release/bin/muster")
    parse.add_argument("--musterd", metavar="PATH", help="default: musterd beside muster")
    parse.add_argument("--torchrun", metavar="PATH", help="default: .venv/bin/torchrun")
    parse.add_argument("--nvrx", metavar="PYTHON",
                       help="again: a Python that has nvidia-resiliency-ext and torch (default: the one "
                            "beside torchrun)")
    parse.add_argument("--native", metavar="DIR", help="default: build/release/bench")
    parse.add_argument("--from", metavar="FILE", action="append", default=[], dest="earlier",
                       help="results of an earlier --json, which this run adds to; with no NAME "
                            "nothing is measured")
    parse.add_argument("--update-docs", action="store_true",
                       help="put the table into docs/performance.md, and draw its pictures")
    parse.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    return parse


def selected(parse, arguments, known):
    unknown = [name for name in arguments.name if name not in known]
    if unknown:
        parse.error(f"no family '{unknown[0]}' (there are: {', '.join(known)})")
    if arguments.repetitions is not None and arguments.repetitions < 1:
        parse.error("--repetitions: at least 1")
    if arguments.minutes is not None and not 0 < arguments.minutes < math.inf:
        parse.error("--minutes: more than 0")
    if arguments.earlier and not arguments.name:
        return []
    return [name for name in known if name in (arguments.name or known)]


def raise_descriptor_limit():
    """Allows 10,000 connections, each a descriptor, here and in the programs that this starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure(names, known, bench):
    rows = []
    for name in names:
        bench.say(f"{name}: {known[name].ABOUT}")
        rows += known[name].measure(bench)
    return rows


def heading(found):
    """Returns the line above the table: date, machine, version of torch."""
    torch = programs.torch_version(found) or "not there"
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return f"{today}; {programs.machine()}; torch {torch}"


def main(words=None):
    known = families.load()
    parse = parser(list(known))
    arguments = parse.parse_args(words)
    if arguments.list:
        print("\n".join(f"{name:<10} {module.ABOUT}" for name, module in known.items()))
        return 0
    names = selected(parse, arguments, list(known))
    try:
        found = programs.find(arguments.muster, arguments.musterd, arguments.torchrun,
                              arguments.native, arguments.nvrx)
        earlier = []
        for path in arguments.earlier:
            with open(path) as file:
                earlier = merge(earlier, table.read_json(file))
    except (OSError, KeyError, ValueError) as error:
        parse.error(str(error))
    raise_descriptor_limit()

    def say(text):
        if arguments.verbose or not text.startswith(" "):
            print(text, file=sys.stderr, flush=True)

    bench = Bench(found, say, quick=arguments.quick, repetitions=arguments.repetitions,
                  minutes=arguments.minutes)
    measured = measure(names, known, bench)
    rows = merge(earlier, measured)
    print(heading(found), table.plain(rows, arguments.verbose), sep="\n\n",
          file=sys.stderr if arguments.json == "-" else sys.stdout)
    if arguments.json:
        with contextlib.ExitStack() as stack:
            file = sys.stdout if arguments.json == "-" else \
                stack.enter_context(open(arguments.json, "w"))
            table.write_json(rows, file)
    if arguments.update_docs:
        docs.update(f"{heading(found)}\n\n{table.markdown(rows)}")
        curve.update(rows)
        goodput_curve.update(rows)
    broken = any(why.startswith("failed:") for row in measured for why in row.why.values())
    missed = arguments.check and any(row.met() is False for row in rows)
    return 1 if broken or missed else 0
