"""Starts a musterd for a test. MUSTERD_BIN names the program."""
import os
import pathlib
import re
import subprocess
import time

MUSTERD = os.environ.get("MUSTERD_BIN", "musterd")
PATIENCE_S = 120.0  # A limit, not an expectation.


class Musterd(subprocess.Popen):
    """A musterd that runs. What it prints and logs is in the file `log`, unless `stderr` is a descriptor for the log.

    It listens on 127.0.0.1, at a port that the kernel chooses, unless `bind` and `port` say otherwise; None leaves the
    option out. `prefix`: the words of a command that starts it. `append`: the log of an earlier musterd in the file
    stays."""

    def __init__(self, *options, log, bind="127.0.0.1", port=0, program=MUSTERD, prefix=(), stderr=None, append=False,
                 **popen):
        words = [*prefix, program, *options]
        words += [] if bind is None else [f"--bind={bind}"]
        words += [] if port is None else [f"--port={port}"]
        self.path = pathlib.Path(log)
        with open(self.path, "ab" if append else "wb") as file:
            self.begin = file.tell()
            super().__init__([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=file,
                             stderr=file if stderr is None else stderr, **popen)

    def log_bytes(self):
        """What this musterd has printed and logged so far."""
        return self.path.read_bytes()[self.begin:]

    def log(self):
        return self.log_bytes().decode(errors="replace")

    def says(self, text="listening on", times=1):
        """Waits until the log has this text, so often. Returns this musterd."""
        begin = time.monotonic()
        while True:
            ended = self.poll() is not None
            if self.log().count(text) >= times:
                return self
            assert not ended, f"musterd has ended with {self.returncode}, without {text!r}:\n{self.log()}"
            assert time.monotonic() < begin + PATIENCE_S, f"musterd never said {text!r}:\n{self.log()}"
            time.sleep(min(0.05, max(0.002, (time.monotonic() - begin) / 20)))

    @property
    def port(self):
        return self._port("listening on ")

    @property
    def http_port(self):
        return self._port("HTTP at ")

    def _port(self, what):
        return int(re.search(rf"^musterd: {what}.*:(\d+)/?$", self.log(), re.MULTILINE)[1])

    def end(self):
        self.kill()
        self.wait()


def run_musterd(test, *options, ready="listening on", **more):
    """A musterd (see Musterd) that is killed at the end of the test. Waits until it says `ready`."""
    musterd = Musterd(*options, **more)
    test.addCleanup(musterd.end)
    return musterd.says(ready) if ready else musterd
