"""Runs Python programs that need torch in copies of one process that has loaded it.

Loading torch takes each process two and a half seconds of a CPU, or five with the modules that
DistributedDataParallel and optimizers load at their first use. With WarmPython.variables() in its
environment, each Python program of .venv (torchrun, its workers and muster's) passes its streams,
folder and environment to a copy (warm_site/sitecustomize.py), waits, and ends with the copy's exit
code or signal. The copy is killed when the program that waits for it ends.

Copies are for tests of what programs compute and print. If a test is about the worker's process
itself (its signals, its descriptors, what it leaves behind), the worker must be a real one."""
import atexit
import io
import json
import multiprocessing.process
import os
import pathlib
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from warm_reduce import FIRST_FD, OPEN_FILES_MAX, end_with, serve_in_a_copy, take_environment

SITE = pathlib.Path(__file__).resolve().parent / "warm_site"
# Frames above the program's own. Its tracebacks do not show them.
OURS = __file__, "<frozen runpy>"


class WarmPython:
    """The server, started with the interpreter `python` and these variables. OMP_NUM_THREADS is
    read when the server starts."""

    def __init__(self, python, **variables):
        self.folder = tempfile.TemporaryDirectory(prefix="muster-warm-")
        self.path = f"{self.folder.name}/socket"
        self.server = subprocess.Popen([str(python), __file__, self.path], env={**os.environ, **variables},
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.prefix = self.server.stdout.readline().strip()
        if not self.prefix:
            self.close()
            raise RuntimeError(f"{python} {__file__} did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def variables(self, *paths):
        """`paths` are added to PYTHONPATH."""
        return {"WARM_PYTHON": self.path, "WARM_PYTHON_PREFIX": self.prefix,
                "PYTHONPATH": os.pathsep.join([str(SITE), *map(str, paths)])}

    def close(self):
        self.server.kill()
        self.server.communicate()
        self.folder.cleanup()


def serve(path):
    """Serves until the test ends: the other end of stdin is closed then."""
    import torch._dynamo
    import torch.distributed.run
    import torch.utils.data  # noqa: F401
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps the keepers.
    print(os.path.realpath(sys.prefix), flush=True)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        serve_in_a_copy(listener, keep)


def keep(program):
    """Starts the copy for a program that waits, and tells the program how the copy ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(program, 4, 3)
    request = json.loads(program.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
    keeper = os.getpid()
    copy = os.fork()
    if copy == 0:
        os.setsid()
        end_with(keeper)
        become(request, streams)
    ended, _, _ = select.select([program, os.pidfd_open(copy)], [], [])
    if program in ended:
        os.killpg(copy, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    try:
        program.sendall(code.to_bytes(4, "big", signed=True))
    except OSError:
        pass  # The program has ended.
    os._exit(0)


def become(request, streams):
    code = 1
    try:
        take_over(request, streams)
        code = run(request["words"])
        threading._shutdown()  # Waits for threads that are not daemons, as the interpreter does.
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def take_over(request, streams):
    for fd, stream in enumerate(streams):
        os.dup2(stream, fd)
    os.closerange(FIRST_FD, OPEN_FILES_MAX)
    if request["unbuffered"]:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
    else:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    os.chdir(request["folder"])
    # Processes that multiprocessing spawns look for the program there.
    multiprocessing.process.ORIGINAL_DIR = request["folder"]
    take_environment(request["environment"])
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(SITE)]
    random.seed()


def run(words):
    """Runs the program as the interpreter would. Returns its exit code."""
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], os.getcwd()
            sys.modules.pop(words[1], None)  # runpy warns if the module is already loaded.
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv, sys.path[0] = ["-c", *words[2:]], ""
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(os.path.realpath(words[0]))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xff
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in OURS:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
