"""Shared by the end-to-end tests: runs the real muster, finds what it has left, and waits with a
limit."""
import contextlib
import glob
import os
import pathlib
import pty
import random
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

MUSTER = os.environ.get("MUSTER_BIN", "muster")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))  # For all that imports this module.
# A limit, not an expectation: sanitizers and busy machines make everything slower.
PATIENCE_S = 120.0
MAY_SKIP = True  # False: a skipped test has failed. tests/hardship/hardship.py decides.


def wait_for(condition, what, bound_s=PATIENCE_S):
    """Returns condition()'s first true value; fails after `bound_s`."""
    begin = time.monotonic()
    while True:
        asked_at = time.monotonic()
        value = condition()
        if value:
            return value
        if time.monotonic() > begin + bound_s:
            raise AssertionError(f"waited {bound_s:.0f} s in vain for {what}")
        pause(begin, asked_at)


def pause(begin, asked_at):
    """Sleeps before the next check of a wait that began at `begin`. The last check began at `asked_at`.

    Many tests run side by side, and some checks read all of /proc. So the pause grows with the wait (to a twentieth of
    it), and a wait takes at most a fourth of a CPU."""
    now = time.monotonic()
    time.sleep(max(3 * (now - asked_at), min(0.05, max(0.002, (now - begin) / 20))))


def python_has_torch(python):
    """Whether this interpreter finds torch. Importing torch would take seconds of a CPU."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return os.access(python, os.X_OK) and subprocess.run([python, "-c", code], check=False).returncode == 0


def is_sanitized():
    """Whether the program was built with sanitizers, which make its start and end slow."""
    with open(MUSTER, "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


def one_second():
    """The time that this machine needs now for what an idle machine does in one second: at most 4."""
    begin = time.monotonic()
    for _ in range(10):
        subprocess.run(["/bin/true"], check=True)
    start_s = (time.monotonic() - begin) / 10
    idle_start_s = 0.003  # Measured: 1 to 2 ms on an idle machine.
    return min(4.0, max(1.0, start_s / idle_start_s))


def without_processor_s(pid):
    """How long the threads of a process were ready to run and had no processor, all threads together."""
    waited_ns = 0
    for path in glob.iglob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError), open(path) as f:  # The thread may have ended.
            waited_ns += int(f.read().split()[1])
    return waited_ns / 1e9


class Token:
    """Marks that identify every descendant of a test: a variable in its environment or, for a
    process that has cleared its environment, a word of its command line, which is a number of
    seconds to sleep."""

    def __init__(self):
        self.text = "E2E_TOKEN=" + uuid.uuid4().hex
        self.sleep = f"1000.{random.SystemRandom().randrange(10**15):015}"

    def environment(self, **more):
        name, value = self.text.split("=")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_"))}
        return {**inherited, name: value, "E2E_SLEEP": self.sleep, **more}

    def processes(self):
        """{pid: command line} of all live processes with the mark."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    words = f.read()
                with open(f"/proc/{entry}/environ", "rb") as f:
                    is_ours = self.text.encode() in f.read().split(b"\0")
                if not is_ours and self.sleep.encode() not in words.split(b"\0"):
                    continue
                with open(f"/proc/{entry}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                        found[int(entry)] = words.replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError):
                pass
        return found


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


def command_name(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def child_named(pid, name):
    return next((p for p in children(pid) if command_name(p) == name), None)


def shim_of(muster):
    """The shim's pid: a child of the process that was started."""
    return child_named(muster, "muster-shim")


def agent_of(muster):
    """The agent's pid: a child of the shim."""
    shim = shim_of(muster)
    return child_named(shim, "muster-agent") if shim else None


class MusterTest(unittest.TestCase):
    def setUp(self):
        self.token = Token()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-e2e-"))
        (self.dir / "tmp").mkdir()
        # The folder in which muster puts only error files. It is in memory if the machine has such
        # a place.
        self.memory = tempfile.mkdtemp(prefix="muster-e2e-", dir="/dev/shm") \
            if os.access("/dev/shm", os.W_OK) else str(self.dir / "tmp")
        self.addCleanup(self.clean_up)

    def clean_up(self):
        for pid in self.token.processes():
            with contextlib.suppress(ProcessLookupError):  # The process has just ended.
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(self.dir), self.memory], check=False)

    def environment(self, **more):
        return self.token.environment(**{"TMPDIR": str(self.dir / "tmp"), "XDG_RUNTIME_DIR": self.memory, **more})

    def start(self, *args, env=None, before=(), **popen):
        """Starts muster with these arguments, as the last words of the command `before`. Its output goes to the files
        out and err, if `popen` names no other."""
        self.out = open(self.dir / "out", "wb+")
        self.err = open(self.dir / "err", "wb+")
        self.addCleanup(self.out.close)
        self.addCleanup(self.err.close)
        streams = {"stdin": subprocess.DEVNULL, "stdout": self.out, "stderr": self.err}
        process = subprocess.Popen([*before, MUSTER, *map(str, args)], env=self.environment(**(env or {})),
                                   cwd=self.dir, **{**streams, **popen})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_muster(self, *args, env=None, expect=None, **popen):
        """Runs muster to its end. Returns (exit code, stdout, stderr)."""
        process = self.start(*args, env=env, **popen)
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.fail(f"still there after {PATIENCE_S} s\nstdout:\n{self.read('out')}\n"
                      f"stderr:\n{self.read('err')}")
        out, err = self.read("out"), self.read("err")
        if expect is not None:
            self.assertEqual(code, expect, f"stdout:\n{out}\nstderr:\n{err}")
        return code, out, err

    def mounted(self, commands, *args, env=None):
        """Runs muster in its own mount namespace, after `commands`."""
        if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True,
                                              check=False).returncode != 0:
            self.skipTest("mounts need root")
        words = " ".join(shlex.quote(str(word)) for word in (MUSTER, *args))
        return subprocess.run(["unshare", "-m", "--propagation", "private", "/bin/sh", "-ec", f"{commands}; exec {words}"],
                              env=self.environment(**(env or {})), cwd=self.dir, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def read(self, name):
        path = self.dir / name
        return path.read_text(errors="replace") if path.exists() else ""

    def script(self, name, text):
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def ready(self, count):
        """Waits until `count` workers have written a line to the file `ready`."""
        wait_for(lambda: len(self.read("ready").split()) >= count, f"{count} workers")

    def assert_nothing_left(self):
        """Checks that no marked process is alive within a second after the end of muster, or within
        3 with sanitizers. The time in which these processes had no processor does not count."""
        gone_at = time.monotonic()
        at_first, now = {}, {}  # For each process: how long it had no processor.
        while True:
            looked_at = time.monotonic()
            left = self.token.processes()
            if not left:
                return
            for pid in left:
                now[pid] = without_processor_s(pid)
                at_first.setdefault(pid, now[pid])
            waited_s = looked_at - gone_at
            if waited_s > 1.0:  # On a slow machine this is not yet a failure.
                without_s = sum(now[pid] - at_first[pid] for pid in now)
                # On any machine, 8 s are a failure of muster.
                bound_s = min(8.0, without_s + one_second() * (3 if is_sanitized() else 1))
                self.assertLess(waited_s, bound_s, f"still alive: {left}")
            pause(gone_at, looked_at)


class Terminal:
    """A program in its own session with a terminal, as a person would run it."""

    def __init__(self, argv, **popen):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True,
                                        preexec_fn=self._take_terminal, **popen)
        os.close(slave)
        self.text = b""

    @staticmethod
    def _take_terminal():
        import fcntl
        import termios
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, keys):
        os.write(self.master, keys)

    def read(self):
        """The output so far."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                break
            if not chunk:
                break
            self.text += chunk
        return self.text.decode(errors="replace")

    def close(self):
        os.close(self.master)


def reason(trace):
    """The exception in a traceback, and the line of the test that raised it."""
    own = trace.partition(STDERR_TITLE)[0]
    lines = own.rpartition("Traceback (most recent call last):")[2].splitlines()
    where = [line.strip() for line in lines if line.startswith('  File "')]
    what = [line for line in lines if line and not line.startswith(" ")]
    return " in ".join([*what[:1], *where[-1:]])


class ShardLoader(unittest.TestLoader):
    """Loads every test, or with MUSTER_SHARD=2/3 every third one from the second on. So ctest can
    run a long file as several tests at the same time."""

    def loadTestsFromModule(self, module, *, pattern=None):
        number, count = map(int, os.environ.get("MUSTER_SHARD", "1/1").split("/"))
        return self.suiteClass(self.flat(super().loadTestsFromModule(module, pattern=pattern))[number - 1::count])

    def flat(self, suite):
        if isinstance(suite, unittest.TestCase):
            return [suite]
        return [test for part in suite for test in self.flat(part)]


STDERR_TITLE = "the end of muster's stderr:"


class Result(unittest.TextTestResult):
    """Adds to a failure the end of what muster had written to stderr by then."""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.add_stderr(self.failures, test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err and issubclass(err[0], test.failureException):
            self.add_stderr(self.failures, test)

    @staticmethod
    def add_stderr(failures, test):
        lines = test.read("err").splitlines()[-20:] if isinstance(test, MusterTest) else []
        failed, trace = failures[-1]
        if lines and lines[-1] not in trace:
            failures[-1] = failed, trace + "\n".join([STDERR_TITLE, *lines]) + "\n"


class Runner(unittest.TextTestRunner):
    resultclass = Result


def main():
    if not os.access(MUSTER, os.X_OK):
        sys.exit(f"MUSTER_BIN={MUSTER} is not there")
    result = unittest.main(verbosity=2, exit=False, testLoader=ShardLoader(), testRunner=Runner).result
    forbidden = [] if MAY_SKIP else result.skipped
    # Printed last, because only the end of a long output is shown.
    for test, trace in result.failures + result.errors:
        print(f"failed: {test.id()}: {reason(trace)}", file=sys.stderr)
    for test, why in forbidden:
        print(f"failed: {test.id()} was skipped: {why}", file=sys.stderr)
    sys.exit(not result.wasSuccessful() or bool(forbidden))
