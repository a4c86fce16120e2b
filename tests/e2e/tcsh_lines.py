#!/usr/bin/env python3
"""Completes command lines in a tcsh on a terminal, with muster's script for tcsh.

PROGRAM names the program that prints the script. Called by completion_test.sh; other tests use its Shell.
"""
import os
import pty
import select
import subprocess
import sys
import tempfile
import time

LIMIT = 30
LIST_AND_CLEAR = "\x04\x15"  # ctrl-D lists what fits the last word, ctrl-U removes the line.

# The line, what must be offered, and what must not be.
CASES = [
    ("muster --rdzv", ["--rdzv-backend", "--rdzv-tls-key"], ["--rdzv_backend", "--nnodes"]),
    ("torchrun --rdzv_", ["--rdzv_backend", "--rdzv_tls_key"], ["--rdzv-backend"]),
    ("muster --start-method ", ["fork", "forkserver", "spawn"], []),
    ("muster --start-method=f", ["fork", "forkserver"], ["spawn"]),
    ("muster --print-completion ", ["bash", "tcsh", "zsh"], ["fish"]),
    ("muster --failure-report ", ["file.py", "folder/"], []),
    ("muster --log-dir ", ["folder/"], ["file.py"]),
    ("muster -t 3 ", ["file.py", "folder/"], ["--nnodes"]),
    ("muster --rdzv-backend ", ["c10d", "etcd", "etcd-v2", "static"], ["file.py"]),
    ("muster --nproc-per-node=", ["auto", "gpu"], ["file.py"]),
    ("muster-launch --use", ["--use-env"], []),
    ("muster --use", [], ["--use-env"]),
]


class Shell:
    def __init__(self, folder, script, **env):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ.update({"TERM": "vt100", **env})
            os.execvp("tcsh", ["tcsh", "-f"])
        self.pid = pid
        self.run(f"set prompt='> '; source {script}")

    def run(self, line):
        """Types a line, and returns what tcsh shows until it has run it and waits for another. Before
        that, the keys of LIST_AND_CLEAR are the terminal's and not tcsh's."""
        # The quotes tell the output from the line itself.
        os.write(self.terminal, line.encode() + b"; echo DO''NE\n")
        text, end = b"", time.monotonic() + LIMIT
        while b"> " not in text.partition(b"DONE\r\n")[2]:
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(text)
            text += os.read(self.terminal, 65536)
        return text

    def offered(self, line):
        shown = self.run(line + LIST_AND_CLEAR + "true").decode(errors="replace")
        # Up to the prompt that tcsh shows again below the list.
        listed = shown.split(line, 1)[1].split("> ")[0]
        return [word.rstrip("*") for word in listed.split()]


    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "folder"))
        for name in ("file.py", "file.txt"):
            open(os.path.join(folder, name), "w", encoding="utf-8").close()
        script = os.path.join(folder, "muster.csh")
        with open(script, "wb") as file:
            subprocess.run([os.environ["PROGRAM"], "--print-completion", "tcsh"], stdout=file,
                           check=True)
        shell = Shell(folder, script)
        for line, wanted, unwanted in CASES:
            offered = shell.offered(line)
            for word in wanted + unwanted:
                if (word in offered) != (word in wanted):
                    print(f"tcsh: {line!r} offers {offered}: {word}")
                    failures += 1
        shell.close()
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
