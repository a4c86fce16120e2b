"""Runs gloo's all_reduce for workers, in copies of a process that has loaded torch. A worker that
loads torch itself needs two seconds of a CPU at each start.

The copy takes over the worker's environment and namespaces, and is the worker's rank in the process
group. It ends when the worker ends, because the kernel then closes their connection. So a killed
worker looks dead to the other ranks."""
import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import traceback

# The code of each rank. Workers that load torch themselves begin with this text.
REDUCE = """
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
total = torch.tensor([2.0 ** dist.get_rank()])
dist.all_reduce(total)
assert total.item() == 2.0 ** dist.get_world_size() - 1, total
dist.barrier()
"""
# The code with which other workers begin. The connection stays open while the worker lives.
ASK = """
import json, os, socket
reduction = socket.socket(socket.AF_UNIX)
reduction.connect({path!r})
reduction.sendall(json.dumps(dict(os.environ)).encode() + b"\\n")
answer = reduction.makefile("r").readline()
assert answer == "reduced\\n", answer
"""
NAMESPACES = "uts", "net", "mnt"
PR_SET_PDEATHSIG = 1
FIRST_FD = 3
OPEN_FILES_MAX = 4096
LIBC = ctypes.CDLL(None, use_errno=True)


class WarmReduce:
    """A server that creates a copy of itself for each worker. The caller's interpreter must have
    torch."""

    def __init__(self, path, serve_one=None):
        """`serve_one`: what a copy does for a worker in place of be_a_rank()."""
        import torch.distributed  # noqa: F401  Loaded in the parent, so that copies have it.
        self.path = str(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        sys.stdout.flush()
        sys.stderr.flush()
        test = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                serve(listener, test, serve_one or be_a_rank)
            finally:
                os._exit(1)
        listener.close()

    def worker_text(self):
        return ASK.format(path=self.path)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def end_with(parent):
    """Kills this process when `parent` ends for any reason."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def serve_in_a_copy(listener, serve_one):
    """Accepts the next connection and serves it in a copy. `serve_one` does not return."""
    connection, _ = listener.accept()
    server = os.getpid()
    if os.fork() == 0:
        listener.close()
        end_with(server)
        serve_one(connection)
    connection.close()


def take_environment(environment):
    os.environ.clear()
    os.environ.update(environment)
    import torch.distributed
    # torch has read the environment before the change.
    torch.distributed.set_debug_level_from_env()


def serve(listener, test, serve_one):
    end_with(test)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps the copies.
    os.closerange(FIRST_FD, listener.fileno())
    os.closerange(listener.fileno() + 1, OPEN_FILES_MAX)
    while True:
        serve_in_a_copy(listener, serve_one)


def be_a_rank(worker):
    lines = worker.makefile("r")
    environment = json.loads(lines.readline())
    enter_namespaces_of(peer_of(worker))
    take_environment(environment)

    def end_with_the_worker():
        lines.read()
        os._exit(0)
    watch = threading.Thread(target=end_with_the_worker)
    watch.start()
    try:
        exec(REDUCE, {})
        answer = "reduced"
    except BaseException:
        answer = repr(traceback.format_exc())
    worker.sendall(f"{answer}\n".encode())
    watch.join()


def peer_of(connection):
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]


def enter_namespaces_of(pid):
    """Enters those namespaces of the process in which this process is not already."""
    for name in NAMESPACES:
        if os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
            continue
        with open(f"/proc/{pid}/ns/{name}") as namespace:
            if LIBC.setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns {name}")
