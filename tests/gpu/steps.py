"""Runs steps one after the other, each within its bound, and writes the results after each of them.

A step is a function that runs in a process of its own. At its bound, the runner kills that process and all its
descendants, and goes on with the next step. So the results are complete up to the step that runs, however the
program ends.
"""
import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import traceback
import typing

PASSED, FAILED, TIMED_OUT, SKIPPED, NOT_REACHED = "passed", "failed", "timed out", "skipped", "not reached"
LEAST_S = 3  # A step is not begun with less time than this.
KILL_S = 5  # How long descendants may take to die of SIGKILL.
DETAIL_MAX = 600  # Characters of a check's detail in the results. The log has all of it.
PR_SET_CHILD_SUBREAPER = 36
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StepFailed(Exception):
    """The step cannot go on. The text says why."""


class Skip(Exception):
    """This machine lacks what the step needs. The text names it."""


class Stopped(BaseException):
    """A signal has asked this program to end."""


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    title: str
    limit_s: float
    run: typing.Callable
    needs: tuple = ()  # Names of conditions (see Runner.missing); without them the step is skipped.
    in_parent: bool = False  # Runs in the runner's own process: only for a step that bounds itself.


class Report:
    """What a step has found. The runner gets each entry at once, so a step that is killed keeps its entries."""

    def __init__(self, send):
        self._send = send

    def check(self, what, holds, detail=""):
        """Records whether something holds. A step without a check does not pass."""
        detail = str(detail)
        print(f"    {'ok' if holds else 'WRONG'}: {what}{': ' + detail if detail else ''}", flush=True)
        self._send({"check": {"what": what, "ok": bool(holds), "detail": detail[-DETAIL_MAX:]}})
        return bool(holds)

    def figure(self, name, value):
        print(f"    {name}: {value}", flush=True)
        self._send({"figure": [name, value]})


def descendants(pid):
    """The processes below `pid`, from /proc."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            text = pathlib.Path("/proc", entry, "stat").read_text()
            children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def become_subreaper():
    """Orphans below this process become its children, so that descendants() finds them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_all(spared=()):
    """Kills all descendants of this process, except the processes `spared` and what is below them. Returns those that
    do not die."""
    deadline = time.monotonic() + KILL_S
    while True:
        kept = set(spared).union(*(descendants(pid) for pid in spared))
        alive = []
        for pid in set(descendants(os.getpid())) - kept:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    continue
            if os.path.exists(f"/proc/{pid}"):
                alive.append(pid)
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.02)


def run_command(words, limit_s, environment=None, expect=0, folder=None):
    """Runs a command and prints it with its output. Returns its output. `expect`: its exit status, or None for any."""
    shown = " ".join(map(str, words))
    print(f"  $ {shown}", flush=True)
    begin = time.monotonic()
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder,
                          stderr=subprocess.STDOUT, env=None if environment is None else {**os.environ, **environment},
                          start_new_session=True) as child:
        try:
            output = child.communicate(timeout=limit_s)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            for pid in [child.pid, *descendants(child.pid)]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            output = ""
            with contextlib.suppress(subprocess.TimeoutExpired):  # A process that left them may hold the pipe.
                output = child.communicate(timeout=2)[0].decode(errors="replace")
            print(indented(output), flush=True)
            raise StepFailed(f"not done within {limit_s:g} s: {shown}") from None
    print(f"{indented(output)}  status {child.returncode} after {time.monotonic() - begin:.1f} s", flush=True)
    if expect is not None and child.returncode != expect:
        raise StepFailed(f"status {child.returncode}, expected {expect}: {shown}: {output[-DETAIL_MAX:]}")
    return output


def indented(text):
    return "".join(f"  | {line}\n" for line in text.splitlines())


class Runner:
    """Plays the steps. `results` is what the JSON file has: a dict that the caller may add to."""

    def __init__(self, steps, folder, limit_s, results, missing=lambda need: "", spared=lambda: (), write_table=None,
                 clock=time.monotonic):
        self.steps, self.folder, self.limit_s, self.results = steps, pathlib.Path(folder), limit_s, results
        self.missing, self.spared, self.write_table, self.clock = missing, spared, write_table, clock
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begin = clock()
        results["complete"] = False
        results["limit_s"] = limit_s
        results["steps"] = [{"name": step.name, "title": step.title, "limit_s": step.limit_s, "result": NOT_REACHED,
                             "why": "", "seconds": 0.0, "figures": {}, "checks": []} for step in steps]

    def elapsed(self):
        return self.clock() - self.begin

    def play(self):
        """Returns whether no step has failed. A signal ends it; then nothing that it started is left, except `spared`."""
        become_subreaper()
        before = {number: signal.signal(number, self.stop) for number in STOP_SIGNALS}
        try:
            return self.play_all()
        except Stopped:
            kill_all(self.spared())
            raise
        finally:
            for number, action in before.items():
                signal.signal(number, action)

    @staticmethod
    def stop(number, _frame):
        raise Stopped(f"stopped by {signal.Signals(number).name}")

    def play_all(self):
        self.write()
        for step, entry in zip(self.steps, self.results["steps"], strict=True):
            self.play_one(step, entry)
            self.write()
        self.results["complete"] = True
        self.results["seconds"] = round(self.elapsed(), 1)
        self.write()
        return all(entry["result"] in (PASSED, SKIPPED) for entry in self.results["steps"])

    def play_one(self, step, entry):
        limit_s = min(step.limit_s, self.limit_s - self.elapsed())
        lacking = next(filter(None, (self.missing(need) for need in step.needs)), "")
        if lacking:
            entry.update(result=SKIPPED, why=lacking)
        elif limit_s < LEAST_S:
            entry.update(result=SKIPPED, why="no time is left")
        else:
            print(f"== {step.name}: {step.title} (at most {limit_s:.0f} s)", flush=True)
            begin = self.clock()
            run = self.run_here if step.in_parent else self.run_apart
            result, why = run(step, entry, limit_s)
            if result == PASSED and not entry["checks"]:
                result, why = FAILED, "the step has checked nothing"
            elif result == PASSED and not all(check["ok"] for check in entry["checks"]):
                wrong = [check for check in entry["checks"] if not check["ok"]]
                result, why = FAILED, "; ".join(f"wrong: {check['what']}" for check in wrong)
            entry.update(result=result, why=why, seconds=round(self.clock() - begin, 1))
            if left := kill_all(self.spared()):
                entry["why"] = f"{entry['why']} (processes that cannot be killed: {left})".strip()
        print(f"== {step.name}: {entry['result']}{': ' + entry['why'] if entry['why'] else ''}", flush=True)

    @staticmethod
    def take(entry, message):
        if "check" in message:
            entry["checks"].append(message["check"])
        elif "figure" in message:
            name, value = message["figure"]
            entry["figures"][name] = value

    def run_here(self, step, entry, limit_s):
        try:
            step.run(Report(lambda message: self.take(entry, message)), limit_s)
        except Skip as reason:
            return SKIPPED, str(reason)
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            return FAILED, text_of(error)
        return PASSED, ""

    def run_apart(self, step, entry, limit_s):
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self.run_child(step, writer, limit_s)
        os.close(writer)
        deadline, text, outcome = time.monotonic() + limit_s, b"", None
        while outcome is None:
            if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                outcome = TIMED_OUT, f"not done within {limit_s:.0f} s"
                break
            chunk = os.read(reader, 65536)
            if not chunk:  # The child has ended without a last word.
                outcome = FAILED, "the step's process has died"
                break
            *lines, text = (text + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.take(entry, message)
                if "end" in message:
                    outcome = tuple(message["end"])
        os.close(reader)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(child, 0)
        return outcome

    @staticmethod
    def run_child(step, writer, limit_s):
        """Never returns."""
        end = [FAILED, "the step's process has died"]
        try:
            os.setsid()
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)

            def send(message):
                os.write(writer, json.dumps(message).encode() + b"\n")
            try:
                step.run(Report(send), limit_s)
                end = [PASSED, ""]
            except Skip as reason:
                end = [SKIPPED, str(reason)]
            except BaseException as error:  # pylint: disable=broad-except
                traceback.print_exc()
                end = [FAILED, text_of(error)]
            sys.stdout.flush()
            sys.stderr.flush()
            send({"end": end})
        finally:
            os._exit(0)

    def write(self):
        """Replaces the files in one step: a reader finds the old or the new one."""
        counts = {}
        for entry in self.results["steps"]:
            counts[entry["result"]] = counts.get(entry["result"], 0) + 1
        self.results["summary"] = counts
        replace(self.folder / "gpu.json", json.dumps(self.results, indent=1) + "\n")
        if self.write_table is not None:
            replace(self.folder / "gpu.md", self.write_table(self.results))


def text_of(error):
    text = str(error) or type(error).__name__
    return (text if isinstance(error, StepFailed) else f"{type(error).__name__}: {text}")[:DETAIL_MAX]


def replace(path, text):
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
