"""A store server, for the time of a measurement."""
import os
import re
import select
import subprocess
import tempfile
import time

from .command import clean_environment
from .model import MeasureError

READY_LIMIT_S = 60.0
END_LIMIT_S = 5.0


class Server:
    """A server that is started from its command line.

    The server is ready when it has printed its first line, which ends with its port. It is a
    context manager: the server has ended at the end of the context.
    """

    def __init__(self, argv, **environment):
        self.argv = [str(word) for word in argv]
        self.environment = environment
        self.port = None

    def __enter__(self):
        self._errors = tempfile.TemporaryFile()
        # The server's stdin stays open as long as this process lives. A server may end when its
        # stdin ends.
        self._process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._errors, start_new_session=True,
                                         env=clean_environment(**self.environment))
        try:
            self.port = self._read_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _read_port(self):
        deadline_s = time.monotonic() + READY_LIMIT_S
        text = b""
        while b"\n" not in text:
            left_s = max(deadline_s - time.monotonic(), 0)
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                raise MeasureError(f"its server was not ready within {READY_LIMIT_S:g} s")
            data = os.read(self._process.stdout.fileno(), 4096)
            if not data:
                raise MeasureError(f"its server ended before it was ready{self._last_error()}")
            text += data
        line = text.split(b"\n")[0].decode(errors="replace").strip()
        port = re.search(r"(\d+)$", line)
        if not port:
            raise MeasureError(f"its server's first line has no port at its end: {line!r}")
        return int(port[1])

    def _last_error(self):
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    @property
    def pid(self):
        return self._process.pid

    def wait_for_end(self):
        """Waits until another process has ended the server."""
        self._process.wait()

    def end(self):
        self._process.kill()

    def require_alive(self):
        if self._process.poll() is not None:
            raise MeasureError(f"its server ended with {self._process.returncode}"
                               f"{self._last_error()}")
