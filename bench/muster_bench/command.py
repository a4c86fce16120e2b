"""One run of a launcher: start it, read its workers' notes, let them go, see it end.

Times are CLOCK_MONOTONIC nanoseconds: ours (taken just before the launcher is spawned, and when it
has been reaped) and the workers' (native/notes.h).
"""
import dataclasses
import os
import pathlib
import select
import signal
import tempfile
import time

from .model import MeasureError

RUN_LIMIT_S = 180.0
NOT_PASSED_ON = ("PET_", "TORCHELASTIC_", "MUSTER_", "RANK", "LOCAL_RANK", "WORLD_SIZE",
                 "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_", "MASTER_ADDR", "MASTER_PORT",
                 "NODE_RANK", "LD_PRELOAD", "PYTHONPATH")


@dataclasses.dataclass(frozen=True)
class Note:
    what: str  # main or end
    local_rank: int
    restart_count: int
    pid: int
    at_ns: int


def clean_environment(**more):
    """The user's, without what a surrounding launcher or bench put there."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(NOT_PASSED_ON)}
    # torchrun prints a banner without it, and a worker's threads are not what is measured.
    return kept | {"OMP_NUM_THREADS": "1"} | more


class Command:
    """A launcher and what its workers note. Use as a context: nothing of it is left afterwards."""

    def __init__(self, argv, *, stdout=None, limit_s=RUN_LIMIT_S, environment=None):
        """`environment`: what the command gets beside the user's."""
        self.argv = [str(word) for word in argv]
        self.deadline_s = time.monotonic() + limit_s
        self.notes = []
        self.end_ns = None
        self.status = None
        self._stdout = stdout
        self._environment = environment or {}
        self._unread = b""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="muster-bench-")
        folder = pathlib.Path(self._folder.name)
        notes, gate = folder / "notes", folder / "gate"
        os.mkfifo(notes)
        os.mkfifo(gate)
        # Both ends: no open blocks, and a pipe without writers for a moment is not at its end.
        self._notes_fd = os.open(notes, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._gate_fd = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
        self._output = folder / "output"
        environment = clean_environment(MUSTER_BENCH_NOTES=str(notes), MUSTER_BENCH_GATE=str(gate),
                                        **self._environment)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        stdout = str(self._stdout or self._output)
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_OPEN, 1, stdout, flags, 0o600),
                   (os.POSIX_SPAWN_OPEN, 2, str(self._output), flags, 0o600)]
        self.start_ns = time.monotonic_ns()
        self.pid = os.posix_spawn(self.argv[0], self.argv, environment, file_actions=actions,
                                  setpgroup=0)
        self._pidfd = os.pidfd_open(self.pid)
        return self

    def __exit__(self, *_):
        if self.end_ns is None:
            self._kill()
        for fd in (self._notes_fd, self._gate_fd, self._pidfd):
            if fd is not None:
                os.close(fd)
        self._folder.cleanup()

    def wait_for(self, what, enough):
        """Reads notes until `enough(notes)`. The command must not end before that."""
        while not enough(self.notes):
            ready = self._poll([self._notes_fd, self._pidfd], what)
            if self._notes_fd in ready:
                # One reading for many workers: woken for each, we would take their core.
                time.sleep(0.002)
                self._read_notes()
            elif self._pidfd in ready:
                self._reap()
                raise MeasureError(f"ended with status {self.status} before {what}{self.tail()}")

    def mains(self, restart_count=0):
        return [note for note in self.notes
                if note.what == "main" and note.restart_count == restart_count]

    def wait_for_mains(self, count, restart_count=0):
        self.wait_for(f"{count} workers were in main (attempt {restart_count})",
                      lambda _: len(self.mains(restart_count)) >= count)
        return sorted(self.mains(restart_count), key=lambda note: note.at_ns)

    def open_gate(self):
        """Lets the workers go that hold at the gate."""
        os.close(self._gate_fd)
        self._gate_fd = None

    def wait_for_end(self, status=0):
        """Waits for the command; any other exit status than this is an error."""
        self._poll([self._pidfd], "the end")
        self._reap()
        self._read_notes()
        if self.status != status:
            raise MeasureError(f"ended with status {self.status}{self.tail()}")

    def printed(self):
        """To standard error, and to standard output unless that went elsewhere."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def tail(self):
        """The end of what it printed, for an error's text."""
        lines = [line.strip() for line in self.printed().splitlines() if line.strip()]
        return ": " + " | ".join(lines[-4:]) if lines else ""

    def _poll(self, fds, what):
        left_s = self.deadline_s - time.monotonic()
        ready, _, _ = select.select(fds, [], [], max(left_s, 0))
        if not ready:
            raise MeasureError(f"waited too long for {what}{self.tail()}")
        return ready

    def _read_notes(self):
        try:
            while data := os.read(self._notes_fd, 1 << 16):
                self._unread += data
        except BlockingIOError:
            pass
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            what, *numbers = line.decode().split()
            self.notes.append(Note(what, *map(int, numbers)))

    def _reap(self):
        _, status = os.waitpid(self.pid, 0)
        self.end_ns = time.monotonic_ns()
        self.status = os.waitstatus_to_exitcode(status)

    def _kill(self):
        """Ends the command and everything below it, each by its own pid."""
        for pid in [self.pid, *descendants(self.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._reap()


def parents():
    """pid -> parent's pid, of every process that can be seen."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                found[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue  # Gone in the meantime.
    return found


def descendants(pid, without=()):
    """Everything below pid, but not the processes `without` nor what is below them."""
    children = {}
    for child, parent in parents().items():
        children.setdefault(parent, []).append(child)
    found, to_visit = [], [pid]
    while to_visit:
        for child in children.get(to_visit.pop(), []):
            if child not in without:
                found.append(child)
                to_visit.append(child)
    return found
