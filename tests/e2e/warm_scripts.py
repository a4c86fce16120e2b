"""Scripts that must do the same in a cold start and as a fork of the zygote: see warm_test.py. What they print must not
depend on pids, addresses, times or the job."""

STATE = """
import gc, inspect, json, os, resource, signal, sys, threading
OF_A_JOB = {"MASTER_PORT", "MUSTER_JOB", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_TIMER_FILE",
            "MUSTER_WORKER_CHANNEL", "MUSTER_GENERATION", "TORCHELASTIC_LOG_DIR", "MUSTER_WARM"}
def status(name):
    return next(line for line in open("/proc/self/status") if line.startswith(name + ":")).split()[1]
def kind(stream):
    return [type(stream).__name__, stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering,
            stream.write_through, stream.isatty(), stream.seekable(), stream.newlines, type(stream.buffer).__name__]
def pdeathsig():
    import ctypes
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(number))
    return number.value
def names(variables):
    return [name if name in OF_A_JOB else f"{name}={value}" for name, value in variables]
state = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "exe": sys.executable,
    "name": __name__, "file": globals().get("__file__"), "spec": str(__spec__), "loader": type(__loader__).__name__,
    "package": __package__, "builtins": str(type(__builtins__)), "doc": __doc__,
    "streams": [kind(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "same streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "cwd": os.getcwd(), "umask": os.umask(0o22), "environ": names(os.environ.items()),
    "proc environ": sorted(names(v.split("=", 1) for v in open("/proc/self/environ").read().split("\\0") if v)),
    "cmdline": open("/proc/self/cmdline").read().split("\\0"), "comm": open("/proc/self/comm").read(),
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "kinds": [os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in range(3)],
    "cgroup": open("/proc/self/cgroup").read(), "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "parent": open(f"/proc/{os.getppid()}/comm").read(), "pdeathsig": pdeathsig(),
    "signals": [status(name) for name in ("SigBlk", "SigIgn", "SigCgt")],
    "handlers": [str(signal.getsignal(number)) for number in (1, 2, 10, 13, 15, 17, 25)
                 if not callable(signal.getsignal(number))],
    "limits": [resource.getrlimit(limit) for limit in range(16)], "nice": os.nice(0),
    "policy": os.sched_getscheduler(0), "cpus": sorted(os.sched_getaffinity(0)),
    "threads": [status("Threads"), threading.main_thread().native_id == os.getpid(), threading.active_count()],
    "depth": len(inspect.stack()), "recursion": sys.getrecursionlimit(), "gc": [gc.isenabled(), gc.get_threshold()],
    "C threads": [os.popen(f"echo ${name}").read() for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")],
    "warnings": sys.warnoptions, "xoptions": sys._xoptions, "site": "sitecustomize" in sys.modules,
    "hooks": [len(sys.path_hooks), len(sys.meta_path)], "dumpable": status("CoreDumping"), "oom": open("/proc/self/oom_score_adj").read(),
}
for name, value in state.items():
    print(name, json.dumps(value))
"""

# name -> text. They run as s.py, with the arguments --lr 0.1.
SCRIPTS = {
    "argparse": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print(parser.parse_args(), parser.prog)
parser.parse_args(["--unknown"])
""",
    "pickled dataclass": """
import dataclasses, pickle, sys
@dataclasses.dataclass
class Point:
    x: int
data = pickle.dumps(Point(3))
print(data, pickle.loads(data), sys.modules["__main__"].Point is Point)
""",
    "spawn": """
import multiprocessing as mp, os
def work(x):
    return x * 2, os.environ["RANK"]
if __name__ == "__main__":
    with mp.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, range(4)))
""",
    "forkserver": """
import multiprocessing as mp, os
def work(x):
    return x * 2, os.environ["RANK"]
if __name__ == "__main__":
    with mp.get_context("forkserver").Pool(2) as pool:
        print(pool.map(work, range(4)))
""",
    "fork": """
import multiprocessing as mp, os
def work(queue):
    queue.put((os.environ["RANK"], mp.parent_process().pid == os.getppid()))
context = mp.get_context("fork")
queue = context.Queue()
process = context.Process(target=work, args=(queue,))
process.start()
print(queue.get())
process.join()
print(process.exitcode)
""",
    "shared memory": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=16)
block.buf[0] = 7
again = shared_memory.SharedMemory(block.name)
print(again.buf[0])
again.close()
block.close()
block.unlink()
""",
    "atexit and threads": """
import atexit, threading, time
atexit.register(print, "atexit")
def work():
    threading.main_thread().join()
    print("thread ends")
threading.Thread(target=work).start()
print("main ends")
""",
    "daemon thread": """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ends")
""",
    "thread that exits": """
import sys, threading
thread = threading.Thread(target=sys.exit, args=(4,))
thread.start()
thread.join()
print("lives")
""",
    "thread that fails": """
import threading
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
""",
    "asyncio": """
import asyncio, sys
async def main():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import os; print(os.environ['RANK'])",
                                                   stdout=asyncio.subprocess.PIPE)
    print(await process.communicate(), process.returncode)
    print(await asyncio.gather(asyncio.sleep(0, 1), asyncio.to_thread(sum, [1, 2])))
asyncio.run(main())
""",
    "exit with a number": "import sys; print('x', end=''); sys.exit(7)",
    "exit with a text": "import sys; sys.exit('no data')",
    "exit with none": "import sys; print('now'); sys.exit()",
    "os._exit": "import atexit, os; atexit.register(print, 'never'); print('now'); os._exit(9)",
    "exception": """
def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("outer") from error
def inner():
    return {}["missing"]
outer()
""",
    "exception group of imports": "import module_that_does_not_exist",
    "syntax error": "print('never')\ndef f(:\n",
    "keyboard interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "killed by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
    "abort": "import faulthandler, os; faulthandler.enable(); print('now'); os.abort()",
    "signal handlers": """
import os, signal
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, lambda n, frame: print("got", n, frame.f_code.co_name))
    os.kill(os.getpid(), number)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.sigwait({signal.SIGUSR2}) if False else signal.pause()
""",
    "blocked signals": """
import signal
print(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}), signal.sigpending())
signal.raise_signal(signal.SIGUSR1)
print(signal.sigwait({signal.SIGUSR1}))
""",
    "logging": """
import logging, sys
logging.getLogger("x").warning("before")
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(process)d"[:-11], stream=sys.stdout)
logging.info("hello")
logging.getLogger("x").error("failed", exc_info=ValueError("why"))
""",
    "warnings": "import warnings; warnings.warn('old', DeprecationWarning); warnings.warn('odd', stacklevel=1)",
    "chdir": """
import os, pathlib
folder = pathlib.Path("run" + os.environ["RANK"])
folder.mkdir(exist_ok=True)
os.chdir(folder)
print(pathlib.Path.cwd().name, pathlib.Path(__file__).name)
import beside
print(beside.VALUE, beside.__name__)
""",
    "executes itself": """
import os, sys
if "again" not in sys.argv:
    os.environ["ROUND"] = "2"
    os.execv(sys.executable, [sys.executable, "-u", __file__, *sys.argv[1:], "again"])
print(sys.argv[1:], os.environ["ROUND"], os.environ["RANK"], os.environ.get("PYTHONPATH"), os.getsid(0) == os.getpid())
""",
    "subprocess": """
import os, subprocess, sys
print(subprocess.run([sys.executable, "-c", "import os, sys; print(sys.path[0], os.environ['LOCAL_RANK'], "
                      "sorted(os.listdir('/proc/self/fd')), 'MUSTER_ZYGOTE' in os.environ)"],
                     capture_output=True, text=True).stdout)
""",
    "binary and closed stdout": """
import os, sys
sys.stdout.buffer.write(b"bytes\\n")
os.write(1, b"raw\\n")
sys.stderr.write("err\\n")
sys.stdout.close()
os.close(1)
""",
    "stdin": "import sys; print(repr(sys.stdin.read()), sys.stdin.fileno())",
    "modules beside": """
import beside
from package import inner
from package.inner import twice
print(beside.VALUE, twice(4), inner.__package__, inner.__file__.split("/")[-2:])
""",
    "contextvars and settrace": """
import sys, contextvars
print(sys.gettrace(), sys.getprofile(), len(contextvars.copy_context()), sys.excepthook is sys.__excepthook__)
sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, error)
raise RuntimeError("x")
""",
    "big output at the end": "print('y' * 200000)",
    "stack of the caller": """
import traceback, sys
traceback.print_stack(file=sys.stdout)
def f():
    frame = sys._getframe(1)
    print(frame.f_code.co_name, frame.f_back)
f()
""",
    "type hints and globals": """
x: int = 3
print(sorted(globals()), __annotations__)
""",
    "main guard and typing": """
if __name__ == "__main__":
    import typing
    class A(typing.NamedTuple):
        a: int
    print(A(1), A.__module__, typing.get_type_hints(A))
""",
    "recursion error": """
import sys
sys.setrecursionlimit(100)
def f():
    f()
try:
    f()
except RecursionError as error:
    print(error)
""",
    "tempfile": """
import tempfile, os
with tempfile.NamedTemporaryFile() as file:
    print(os.path.exists(file.name))
""",
}
