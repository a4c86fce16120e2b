"""Builds the SDK and plays the checks that need a GPU. run.sh of the GPU bundle calls it (docs/gpu.md)."""
import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import sys
import tempfile

import checks
import probes
from steps import PASSED, SKIPPED, Runner, Stopped, kill_all

LIMIT_S = 480
LOG_END_S = 5


def arguments(bundle):
    parser = argparse.ArgumentParser(
        prog="run.sh", description="Builds muster's SDK and plays the checks that need a GPU, in at most eight minutes.",
        epilog="Writes gpu.json, gpu.log, gpu.md (a table), build.log and stacks.txt. Exit status 1 if a check has failed. "
        "Without a GPU, the checks that need one are skipped and the table says so.")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT") or bundle.parent / "gpu-results",
                        help="the folder of the results (default: $OUT, or gpu-results beside the bundle)")
    parser.add_argument("--build", type=pathlib.Path, metavar="FOLDER",
                        help="compile in this folder and keep it: the next run compiles only what has changed "
                        "(default: a temporary folder)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compile N files at a time")
    parser.add_argument("--rehearse", action="store_true",
                        help="the CPU and Gloo in place of the GPU and NCCL: tests the checks themselves")
    parser.add_argument("--patience", type=float, default=1, metavar="FACTOR",
                        help="multiply each bound, for a machine with few cores")
    parser.add_argument("--only", action="append", metavar="CHECK",
                        help="play this check, and what it needs; may be given again (default: all)")
    parser.add_argument("--list", action="store_true", help="print the checks with their bounds, and end")
    options = parser.parse_args()
    names = [step.name for step in checks.plan(checks.Place(bundle, bundle, bundle))]
    for name in options.only or ():
        if name not in names:
            parser.error(f"--only {name}: expected one of {', '.join(names)}")
    return options


def table(results):
    """The results as a table in Markdown."""
    facts = next((entry["figures"] for entry in results["steps"] if entry["name"] == "machine"), {})
    lines = ["A REHEARSAL ON THE CPU: no figure here is of a GPU.", ""] if results["rehearsal"] else []
    lines += [f"{results['began']}, muster {results['bundle'].get('commit', '?')}: {facts.get('gpu', 'no GPU')}, "
              f"driver {facts.get('driver', '-')}, torch {facts.get('torch', '?')}, NCCL {facts.get('nccl') or '-'}, "
              f"{facts.get('cores', '?')} cores, {facts.get('processor', '?')}", "",
              "| check | result | seconds | figures |", "| --- | --- | ---: | --- |"]
    for entry in results["steps"]:
        figures = "" if entry["name"] == "machine" else ", ".join(
            f"{name} {value}" for name, value in entry["figures"].items() if isinstance(value, (int, float)))
        result = entry["result"] if entry["result"] == PASSED else f"{entry['result']}: {entry['why']}".rstrip(": ")
        cells = (entry["title"], result, f"{entry['seconds']:.1f}", figures)
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


class Conditions:
    """What steps may need. Each answer is empty, or the reason why a step cannot run."""

    def __init__(self, place, results):
        self.place, self.results = place, results

    def figures(self):
        return next(entry["figures"] for entry in self.results["steps"] if entry["name"] == "machine")

    def missing(self, need):
        if need == "torch":
            return "" if importlib.util.find_spec("torch") else "no torch"
        if need == "gpu":
            return "" if self.place.rehearses or self.has_gpu() else "no GPU"
        return "" if self.place.built(need).exists() else f"{need} is not built"

    def has_gpu(self):
        if "gpus_of_torch" in self.figures():
            return self.figures()["gpus_of_torch"] > 0
        try:  # The first step has not got so far.
            return self.place.gpu().count > 0
        except probes.NoGpu:
            return False


def log_everything(path):
    """From now on, all output of this process and its children goes into the log, and to where it went before."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.setsid()  # Not among the step's processes: it ends when the last writer does.
        with open(path, "ab", buffering=0) as log:
            while chunk := os.read(reader, 65536):
                log.write(chunk)
                with contextlib.suppress(OSError):  # Nobody may read it any more.
                    os.write(1, chunk)
        os._exit(0)
    os.close(reader)
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    os.close(writer)
    return child


def main():
    bundle = pathlib.Path(__file__).resolve().parents[3]
    options = arguments(bundle)
    place = checks.Place(bundle, bundle / "build", options.out.absolute(), options.rehearse, options.patience)
    limit_s = place.wait_s(LIMIT_S)
    steps = checks.chosen(checks.plan(place), options.only)
    if options.list:
        for step in steps:
            print(f"{step.limit_s:5.0f} s  {step.name:18} {step.title}")
        print(f"{checks.longest_s(steps):5.0f} s in all at most (the build runs beside the checks before it); the limit is {limit_s:.0f} s")
        return 0
    place.build = pathlib.Path(options.build.absolute() if options.build else tempfile.mkdtemp(prefix="muster-gpu-"))
    place.build.mkdir(parents=True, exist_ok=True)
    place.out.mkdir(parents=True, exist_ok=True)
    logger = log_everything(place.out / "gpu.log")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # A core file of a process that uses CUDA takes minutes.
    # cmake and ninja may be beside python3 only, in an environment that is not active.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", "/usr/bin:/bin"), os.path.dirname(sys.executable)])
    os.environ["PYTHON_EXEC"] = sys.executable
    for program in (bundle / "bin").iterdir():  # A copy may have lost this mode.
        with contextlib.suppress(OSError):
            program.chmod(0o755)
    if place.rehearses:
        os.environ["MUSTER_REHEARSE"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # The threads of torch wait for each other on a busy machine.
    torch = importlib.util.find_spec("torch")
    manifest = bundle / "manifest.json"
    results = {"bundle": json.loads(manifest.read_text()) if manifest.exists() else {}, "rehearsal": place.rehearses,
               "began": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ"),
               "longest_s": checks.longest_s(steps)}
    print(f"run.sh: results go to {place.out}; all takes {checks.longest_s(steps):.0f} s at most", flush=True)
    build = None
    if "build" in [step.name for step in steps] and torch is not None and torch.submodule_search_locations:
        build = checks.Build(place, torch.submodule_search_locations[0], place.wait_s(checks.BUILD_S), options.jobs)
    steps = checks.chosen(checks.plan(place, build), options.only)
    conditions = Conditions(place, results)
    spared = [logger] + ([build.process.pid] if build else [])
    runner = Runner(steps, place.out, limit_s, results, conditions.missing, lambda: spared, table)
    try:
        passed = runner.play()
    except Stopped as reason:
        kill_all([logger])
        print(f"run.sh: {reason}; the results are complete up to the step that ran", flush=True)
        return 1
    finally:
        shutil.rmtree(place.jobs() if options.build else place.build, ignore_errors=True)
    counts = ", ".join(f"{count} {result}" for result, count in sorted(results["summary"].items()))
    print(f"run.sh: {counts}; {results['seconds']:.0f} s in all; the table is {place.out / 'gpu.md'}", flush=True)
    skipped = {entry["why"] for entry in results["steps"] if entry["result"] == SKIPPED}
    if skipped:
        print(f"run.sh: not everything ran: {', '.join(sorted(skipped))}", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    # The log is complete once this process ends. A process that cannot be killed may keep it from that.
    probes.seconds_until(lambda: os.waitpid(logger, os.WNOHANG)[0] == logger, LOG_END_S, pause_s=0.02)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
