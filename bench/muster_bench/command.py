"""One run of a launcher: starts it, reads its workers' notes, opens their gate, waits for its end.

All times are CLOCK_MONOTONIC nanoseconds. This module takes the times just before it spawns the
launcher and just after it has reaped the launcher. The workers take the other times
(native/notes.h).
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
REMOVED_PREFIXES = ("PET_", "TORCHELASTIC_", "MUSTER_", "RANK", "LOCAL_RANK", "WORLD_SIZE",
                    "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_", "MASTER_ADDR", "MASTER_PORT",
                    "NODE_RANK", "LD_PRELOAD", "PYTHONPATH")


@dataclasses.dataclass(frozen=True)
class Note:
    """One line of a worker (native/notes.h)."""
    what: str  # The event, such as "main" or "end".
    local_rank: int
    restart_count: int
    pid: int
    at_ns: int


def clean_environment(**more):
    """Returns the user's environment without the variables of a surrounding launcher or bench.

    `more` is added to it.
    """
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(REMOVED_PREFIXES)}
    # Without OMP_NUM_THREADS, torchrun prints a banner, and the workers' threads would add to the
    # measured time.
    return kept | {"OMP_NUM_THREADS": "1"} | more


class Command:
    """A running launcher and the notes of its workers.

    It is a context manager. At the end of the context, no process of the launcher is left.
    """

    def __init__(self, argv, *, stdout=None, stderr=None, limit_s=RUN_LIMIT_S, environment=None):
        """`environment` is added to the user's environment."""
        self.argv = [str(word) for word in argv]
        self.deadline_s = time.monotonic() + limit_s
        self.notes = []
        self.end_ns = None
        self.status = None
        self._stdout, self._stderr = stdout, stderr
        self._environment = environment or {}
        self._unread = b""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="muster-bench-")
        folder = pathlib.Path(self._folder.name)
        notes, gate = folder / "notes", folder / "gate"
        os.mkfifo(notes)
        os.mkfifo(gate)
        # Opens both ends of each pipe: so no open() blocks, and a pipe that has no other writer for
        # a moment is not at its end.
        self._notes_fd = os.open(notes, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._gate_fd = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
        self._output = folder / "output"
        environment = clean_environment(MUSTER_BENCH_NOTES=str(notes), MUSTER_BENCH_GATE=str(gate),
                                        **self._environment)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        stdout = str(self._stdout or self._output)
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_OPEN, 1, stdout, flags, 0o600),
                   (os.POSIX_SPAWN_OPEN, 2, str(self._stderr or self._output), flags, 0o600)]
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
        """Reads notes until `enough(notes)` is true. The command must not end before that."""
        while not enough(self.notes):
            ready = self._poll([self._notes_fd, self._pidfd], what)
            if self._notes_fd in ready:
                # Reads the notes of many workers at once: a wake-up for each note would take CPU
                # time from the workers.
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
        """Lets the workers continue that wait at the gate."""
        os.close(self._gate_fd)
        self._gate_fd = None

    def wait_for_end(self, status=0):
        """Waits for the end of the command. Any other exit status than `status` is an error."""
        self._poll([self._pidfd], "the end")
        self._reap()
        self._read_notes()
        if self.status != status:
            raise MeasureError(f"ended with status {self.status}{self.tail()}")

    def printed(self):
        """Returns what the command printed on stderr and stdout, unless these were given."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def tail(self):
        """Returns the last lines that the command printed, for the text of an error."""
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
        """Kills the command and all its descendants, each by its own pid."""
        for pid in [self.pid, *descendants(self.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._reap()


def parents():
    """Returns a dict of pid -> parent's pid, of every visible process."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                found[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue  # The process has ended in the meantime.
    return found


def descendants(pid, without=()):
    """Returns the descendants of pid. Leaves out the pids in `without` and their descendants."""
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
