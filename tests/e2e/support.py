"""What the end-to-end tests share: run the real muster, find what it left, wait with a bound."""
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

MUSTER = os.environ.get("MUSTER_BIN", "muster")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Sanitizers make everything slower, and so does a loaded machine: bounds, never expectations.
PATIENCE_S = 60.0


def wait_for(condition, what, bound_s=PATIENCE_S):
    """Returns condition()'s first true value; fails after `bound_s`."""
    end = time.monotonic() + bound_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {bound_s:.0f} s in vain for {what}")
        time.sleep(0.002)


class Token:
    """A mark in the environment by which every descendant of a test is found."""

    def __init__(self):
        self.text = "E2E_TOKEN=" + uuid.uuid4().hex

    def environment(self, **more):
        name, value = self.text.split("=")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_"))}
        return {**inherited, name: value, **more}

    def processes(self):
        """{pid: command line} of everything alive that carries the mark."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if self.text.encode() not in f.read().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] in "ZX":
                        continue
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    found[int(entry)] = f.read().replace(b"\0", b" ").decode(errors="replace")
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


def agent_of(shim):
    """The agent's pid: the shim's child of that name."""
    return next((p for p in children(shim) if command_name(p) == "muster-agent"), None)


class MusterTest(unittest.TestCase):
    def setUp(self):
        self.token = Token()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-e2e-"))
        (self.dir / "tmp").mkdir()
        # Where muster puts error files alone: in memory, if there is such a place.
        self.memory = tempfile.mkdtemp(prefix="muster-e2e-", dir="/dev/shm") \
            if os.access("/dev/shm", os.W_OK) else str(self.dir / "tmp")
        self.addCleanup(self.clean_up)

    def clean_up(self):
        for pid in self.token.processes():
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(self.dir), self.memory], check=False)

    def environment(self, **more):
        return self.token.environment(TMPDIR=str(self.dir / "tmp"),
                                      XDG_RUNTIME_DIR=self.memory, **more)

    def start(self, *args, env=None, **popen):
        """Muster with these arguments; its output goes to files out and err."""
        self.out = open(self.dir / "out", "wb+")
        self.err = open(self.dir / "err", "wb+")
        self.addCleanup(self.out.close)
        self.addCleanup(self.err.close)
        popen.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([MUSTER, *map(str, args)], stdout=self.out, stderr=self.err,
                                   env=self.environment(**(env or {})), cwd=self.dir, **popen)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_muster(self, *args, env=None, expect=None, **popen):
        """Runs to the end; returns (exit code, stdout, stderr)."""
        process = self.start(*args, env=env, **popen)
        code = process.wait(PATIENCE_S)
        out, err = self.read("out"), self.read("err")
        if expect is not None:
            self.assertEqual(code, expect, f"stdout:\n{out}\nstderr:\n{err}")
        return code, out, err

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

    def assert_nothing_left(self, bound_s=PATIENCE_S):
        wait_for(lambda: not self.token.processes(),
                 lambda: f"the end of {self.token.processes()}", bound_s)


class Terminal:
    """A program in a session of its own with a terminal, as a person has it."""

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
        """What has been shown so far."""
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


def main():
    if not os.access(MUSTER, os.X_OK):
        sys.exit(f"MUSTER_BIN={MUSTER} is not there")
    unittest.main(verbosity=2)
