"""What the hardship tests share with the end-to-end tests, and the facts that they count."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

for folder in ("e2e", "support"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))

import silent_fs  # noqa: E402
import support  # noqa: E402
from support import MusterTest, agent_of, shim_of, wait_for  # noqa: E402

# MUSTER_NO_SKIP=1: each test must run. A machine that lacks something then shows as a failure.
support.MAY_SKIP = os.environ.get("MUSTER_NO_SKIP") != "1"

END_BOUND_S = 60  # For the end of a job, where a test names no bound of its own.
# muster takes signals for one event if they arrive within a second (agent/core/signal_events.h).
BETWEEN_EVENTS_S = 1.1


def descriptors(pid):
    """{descriptor: what it is}"""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:  # Closed meanwhile.
            pass
    return found


def memory_kb(pid):
    """The resident private memory of the process. None: the process has ended, and may not be reaped yet."""
    try:
        with open(f"/proc/{pid}/status") as f:
            found = re.search(r"RssAnon:\s+(\d+)", f.read())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(found[1]) if found else None


def is_stopped(pid):
    """Whether SIGSTOP keeps the process from running: all its threads, or the child for which it waits in vfork(). A
    shell that is stopped there is in state D, with the signal pending, until its child has become another program."""
    threads = state_of(pid)
    if {state for _, state, _ in threads} == {"D"}:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any({state for _, state, _ in state_of(child)} == {"T"} for child in children)
    return bool(threads) and all(state == "T" for _, state, _ in threads)


def state_of(pid):
    """The threads of the process: name, state, and where each waits in the kernel."""
    found = []
    try:
        tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # It has ended.
        tasks = []
    for task in tasks:
        try:
            status = (task / "status").read_text()
            found.append((re.search(r"Name:\s+(.*)", status)[1], re.search(r"State:\s+(\S)", status)[1],
                          (task / "wchan").read_text()))
        except OSError:  # It has ended.
            pass
    return found


def pending_signals(pid):
    """The mask of signals that were sent to the process and not yet taken by it."""
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"ShdPnd:\s+([0-9a-f]+)", f.read())[1], 16)


def names_below(*folders):
    return {os.path.join(at, name) for folder in folders
            for at, folders_here, files in os.walk(folder) for name in folders_here + files}


def processes_of_muster(front):
    """{name: pid} of the three."""
    return {"front": front, "shim": shim_of(front), "agent": agent_of(front)}


def skip_all(reason):
    """Ends a program whose tests cannot run here."""
    print(f"skipped: {reason}")
    sys.exit(77 if support.MAY_SKIP else 1)


def own_mounts():
    """From now on what this process and its children mount is seen by no other process of the machine."""
    clone_newns, ms_rec, ms_private = 0x20000, 1 << 14, 1 << 18
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newns) != 0 or libc.mount(b"none", b"/", None, ms_rec | ms_private, None) != 0:
        raise OSError(ctypes.get_errno(), "no mounts of our own")


class Gate:
    """A named pipe at which workers wait without polling. A shell worker opens it, writes that it is ready, and reads:

        exec 3< gate; echo $LOCAL_RANK >> ready; read line <&3

    The read returns when the test opens the gate, or when the test's process ends. A worker that comes later does not
    wait."""

    def __init__(self, path):
        self._path = path
        os.mkfifo(path)
        # With this writer no open() of a reader waits.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open(self):
        if self._descriptor is None:
            return
        empty = self._path.with_name(self._path.name + ".open")
        empty.touch()
        empty.rename(self._path)  # Before the close: a late reader finds an empty file.
        os.close(self._descriptor)
        self._descriptor = None


class Victim:
    """One of muster's processes. A pidfd names it, so no signal can reach another process with its number."""

    def __init__(self, pid):
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def close(self):
        os.close(self._pidfd)

    def has_ended(self):
        return bool(select.select([self._pidfd], [], [], 0)[0])

    def send_signal(self, number):
        """False: the process has ended already."""
        if self.has_ended():
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return False
        return True


class HardshipTest(MusterTest):
    def gate(self, name):
        """A gate in the workers' folder; it opens when the test is over."""
        gate = Gate(self.dir / name)
        self.addCleanup(gate.open)
        return gate

    def victim(self, process, name):
        """Waits until this process of muster exists. None: muster has ended."""
        while True:
            pid = wait_for(lambda: processes_of_muster(process.pid)[name] or process.poll() is not None, f"the {name}")
            if process.poll() is not None:
                return None
            try:
                victim = Victim(pid)
            except ProcessLookupError:  # It has just ended.
                continue
            self.addCleanup(victim.close)
            self.addCleanup(victim.send_signal, signal.SIGKILL)  # A failed test may leave it stopped.
            return victim

    def end_of(self, process, bound_s=END_BOUND_S):
        """Muster's exit status. Fails after `bound_s`, and says what muster's processes wait for."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(bound_s)
        states = {name: state_of(pid) for name, pid in processes_of_muster(process.pid).items() if pid}
        self.fail(f"muster has not ended after {bound_s} s: {states}\n{self.read('err')}")

    def send_second_event(self, process):
        """Sends SIGTERM as a second event. The test has seen an effect of the first one: muster has already read its
        clock for that event."""
        time.sleep(BETWEEN_EVENTS_S)
        process.terminate()

    def end_by_signals(self, process, bound_s):
        """Sends SIGTERM every 1.1 s until muster ends. Returns its exit status. Fails after `bound_s`.

        A muster that is off the CPU may receive two of these signals within a second. Then one more signal is sent."""
        end = time.monotonic() + bound_s
        while process.poll() is None:
            self.assertLess(time.monotonic(), end, f"signals do not end muster\n{self.read('err')}")
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(BETWEEN_EVENTS_S)
        return process.returncode

    def mount(self, never=(), owner=0):
        """Mounts a file system that can fall silent, self.fs. Returns its folder. See tests/support/silent_fs.py."""
        if not silent_fs.available():
            self.skipTest("needs root and /dev/fuse")
        try:
            self.fs = silent_fs.SilentFs(self.dir / "silent", never, owner).__enter__()
        except OSError as error:
            self.skipTest(str(error))
        self.addCleanup(self.fs.__exit__)
        return self.fs.folder

    def report(self):
        """The failure report, which is in report.json. {}: there is none."""
        text = self.read("report.json")
        return json.loads(text) if text else {}

    def check_agent_lost(self, what):
        self.assertEqual(self.report().get("ended_by"), "agent_lost")
        self.assertIn(what, self.report()["reason"])

    def assert_no_files_left(self):
        """Waits until muster's files are gone: the process that removes them may end after muster itself."""
        wait_for(lambda: not os.listdir(self.memory) and not os.listdir(self.dir / "tmp"),
                 f"no file in {self.memory} and {self.dir / 'tmp'}", 10)
