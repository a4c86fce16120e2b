"""Starts the real torchrun, or a script, within milliseconds as a copy of this process, which has
already loaded torch.

Loading torch takes two seconds of a CPU, and about ten on a busy machine, for each torchrun of each
test. This works only in an interpreter that has torch. For other interpreters and programs use
subprocess."""
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
import traceback

MODULE = ["-m", "torch.distributed.run"]
OPEN_FILES_MAX = 4096


def is_warm(python):
    """Whether this process runs this interpreter and has torch."""
    return os.path.realpath(python) == os.path.realpath(sys.executable) and \
        importlib.util.find_spec("torch") is not None


def is_torchrun(command, python):
    """Whether `command` is torchrun or a script of this process's interpreter, which is `python`."""
    if command[0] != python or not is_warm(python):
        return False
    return command[1:3] == MODULE or command[1].endswith(".py")


class WarmTorchrun:
    """The parts of subprocess.Popen that the tests need. `before` is Python code that sets up the copy: what a program
    that starts torchrun with exec may have changed in its process."""

    def __init__(self, command, *, stdout, stderr, env, cwd=".", start_new_session=False, before=""):
        import torch.distributed.run  # noqa: F401  Loaded in the parent: that makes the start fast.
        self.args = command
        self.returncode = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                if start_new_session:
                    os.setsid()
                self._become(stdout, stderr, cwd, env)
                exec(before, {"os": os})
                code = self._run(command)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    @staticmethod
    def _become(stdout, stderr, cwd, env):
        null = os.open(os.devnull, os.O_RDWR)  # Corresponds to subprocess.DEVNULL.
        for fd, source in enumerate((null, stdout.fileno(), stderr.fileno())):
            os.dup2(source, fd)
        os.closerange(3, OPEN_FILES_MAX)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        random.seed()  # Two nodes must not wait for the same random times.
        import torch.distributed
        # torch has read the environment before the change.
        torch.distributed.set_debug_level_from_env()

    @staticmethod
    def _run(command):
        """Runs the command as the interpreter would. Returns its exit code."""
        try:
            if command[1:3] == MODULE:
                from torch.distributed import run
                sys.argv = [run.__file__, *command[3:]]
                run.main()
            else:
                import runpy
                sys.argv = command[1:]
                runpy.run_path(command[1], run_name="__main__")
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        return 0

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)
