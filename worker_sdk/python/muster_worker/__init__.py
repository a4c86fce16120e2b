"""What a training script can tell muster, and learn from it.

    import muster_worker

    muster_worker.ends_itself()
    for step in range(steps):
        train(step)
        muster_worker.progress(step)
        if muster_worker.notice():
            save(step)
            muster_worker.saved()
            break

Needs nothing but Python 3.8 or newer, and may be copied as one file. Without muster (under torchrun, or without a launcher)
each function does nothing and notice() is None, so a script can always call them. No function waits, and none raises an
error if muster has ended or does not read. Any thread may call any of them. A process that was forked, such as a data
loader, is not the worker: there they do nothing.

muster's docs/worker_channel.md describes the protocol.
"""
import array
import fcntl
import json
import os
import socket
import termios
import threading
import time
from typing import Any, Dict, NamedTuple, Optional, Tuple

__all__ = ["Notice", "available", "ends_itself", "generation", "notice", "progress", "progress_end", "saved"]

_BETWEEN_REPORTS_S = 0.1
_LINE_BYTES_MAX = 4096


class Notice(NamedTuple):
    """muster will stop this worker."""

    deadline: float
    """The moment on time.monotonic() by which the worker should have saved its work, and have called saved() or ended."""
    reason: str = ""
    """For people. Empty: an older muster."""
    doomed: bool = True
    """The node of this worker goes. False: another node goes, or the job is started again."""
    doomed_ranks: Tuple[Tuple[int, int], ...] = ()
    """The first and the last global rank of each range that goes. Only a notice for the whole job has ranks."""
    follow: str = ""
    """"stop": the job ends. "shrink": the job goes on without the doomed ranks. "restart": it goes on with all of them.
    Empty: an older muster."""
    id: int = 0
    """Grows with each notice of this agent. 0: an older muster."""

    def seconds_left(self) -> float:
        """Seconds until the deadline; 0 if it is over."""
        return max(0.0, self.deadline - time.monotonic())


def _notice(message: Dict[str, Any]) -> Notice:
    ranks: Tuple[Tuple[int, int], ...] = ()
    try:
        ranks = tuple((int(first), int(last)) for first, last in message.get("doomed_ranks", ()))
    except (ValueError, TypeError):
        pass  # Of a newer muster. The deadline counts all the same.
    number = message.get("id")
    return Notice(float(message["deadline_monotonic_s"]), str(message.get("reason", "")), message.get("doomed") is not False,
                  ranks, str(message.get("follow", "")), number if isinstance(number, int) else 0)


class _Channel:
    """The connection of this process to its agent. It is made at the first use, and never again: if the agent has ended,
    this process will end, too."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.socket: Optional[socket.socket] = None
        self.connected_before = False
        self.promised = False
        self.reported_at: Optional[float] = None  # The last report that progress_end() has not withdrawn.
        self.received = b""
        self.notice: Optional[Notice] = None

    def connect(self) -> bool:
        """With the lock held, as all that follow. False: there is no agent."""
        if self.connected_before:
            return self.socket is not None
        self.connected_before = True
        path = os.environ.get("MUSTER_WORKER_CHANNEL", "")
        try:
            local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        except ValueError:
            return False
        if not path:
            return False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.setblocking(False)
            self.socket.connect(path)
        except (OSError, ValueError):  # ValueError: a path with a NUL.
            self.close()
            return False
        self.send(type="hello", local_rank=local_rank)
        return self.socket is not None

    def send(self, **message: object) -> None:
        if self.socket is None:
            return
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            if self.socket.send(line) < len(line):
                self.close()  # The agent could not read the next line.
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def is_half_full(self) -> bool:
        """Whether the agent has not read for long. Reports leave the other half of the socket's buffer to the lines that
        are sent once, and must not be lost."""
        assert self.socket is not None
        queued = array.array("i", [0])
        fcntl.ioctl(self.socket.fileno(), termios.TIOCOUTQ, queued)
        return queued[0] > self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2

    def receive(self) -> None:
        while self.socket is not None:
            try:
                some = self.socket.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                some = b""
            if not some:
                return self.close()
            *lines, self.received = (self.received + some).split(b"\n")
            for line in lines:
                self.read(line)
            if len(self.received) > _LINE_BYTES_MAX:
                return self.close()

    def read(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            if message["type"] == "preempt":
                self.notice = _notice(message)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass  # A line of a newer muster.

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


_channel = _Channel()


def _after_fork() -> None:
    global _channel
    # The connection stays the worker's. Its copy is not closed here: a thread may have been forked away while it had the
    # lock, and nothing is sent to it any more.
    _channel = _Channel()
    _channel.connected_before = True


os.register_at_fork(after_in_child=_after_fork)


def available() -> bool:
    """Whether an agent of muster reads what this process reports."""
    with _channel.lock:
        return _channel.connect()


def progress(step: Optional[int] = None) -> None:
    """Tells muster that this process makes progress. `step` is shown to people, and may be any number that grows.

    May be called in every step: at most ten reports a second are sent. The first call is a promise of further ones. Under
    --hang-timeout, a worker that has reported progress and then sends no report for that time counts as hanging, even if
    it computes.
    """
    channel = _channel
    with channel.lock:
        now = time.monotonic()
        if channel.reported_at is not None and now - channel.reported_at < _BETWEEN_REPORTS_S:
            return
        if not channel.connect() or channel.is_half_full():
            return
        channel.reported_at = now
        if step is None:
            channel.send(type="progress")
        else:
            channel.send(type="progress", step=int(step))


def progress_end() -> None:
    """Withdraws the promise of progress() until its next call: before an evaluation or a checkpoint that may take longer
    than --hang-timeout."""
    channel = _channel
    with channel.lock:
        if channel.reported_at is not None:
            channel.reported_at = None
            channel.send(type="progress_end")


def ends_itself() -> None:
    """Promises that this process ends by itself after a notice. So it gets no signal with the notice, only at the deadline.
    Call it once, before the training begins."""
    channel = _channel
    with channel.lock:
        if channel.connect() and not channel.promised:
            channel.promised = True
            channel.send(type="ends_itself")


def notice() -> Optional[Notice]:
    """The notice that this worker will be stopped; None until there is one. The last one counts. Fast enough for every
    step.

    The ranks get a notice at different moments. Before an operation of all ranks together, such as a checkpoint, they must
    agree: an all_reduce with the maximum over whether each of them has one.
    """
    channel = _channel
    with channel.lock:
        channel.connect()
        channel.receive()
        return channel.notice


def saved() -> None:
    """The answer to the last notice: this process has saved its work, and may be stopped. When all ranks of the job have
    answered a notice for the whole job, nobody waits for its deadline. A worker that then ends with 0 has stopped for the
    notice: the job is not done. May be called again.

    May be called before this process has its notice, if another rank has one: the ranks save together, and this node's
    notice may still be on its way. The answer then counts if this process ends with 0. Without any notice in the job it
    has no effect, but the node waits up to 30 s for one before it has finished."""
    channel = _channel
    with channel.lock:
        channel.connect()
        channel.receive()
        if channel.notice is None:
            channel.send(type="saved")
        else:
            channel.send(type="saved", id=channel.notice.id)


def generation() -> int:
    """A number that grows with every round of the run, also over restarts of the rendezvous; 0 if the launcher has none."""
    try:
        return int(os.environ.get("MUSTER_GENERATION", "0"))
    except ValueError:
        return 0
