#!/usr/bin/env python3
"""Follows docs/walkthrough.md: each block is run in one shell, and each musterctl command shows
what the page says."""
import os
import pathlib
import re
import signal
import subprocess

from nodes import free_port
from support import MUSTER, PATIENCE_S, SOURCE, MusterTest, main, wait_for

PROGRAMS = {"muster": MUSTER, "musterd": os.environ.get("MUSTERD_BIN", "musterd"),
            "musterctl": os.environ.get("MUSTERCTL_BIN", "musterctl")}
PAGE = SOURCE / "docs/walkthrough.md"
STEP = re.compile(r"```sh\n(?P<block>.*?)```|^- `musterctl (?P<look>[^`]+)`: (?P<shown>[^\n]*)$", re.DOTALL | re.MULTILINE)


class Walkthrough(MusterTest):
    def setUp(self):
        super().setUp()
        self.ports = {"29400": str(free_port()), "9400": str(free_port())}
        folder = self.dir / "programs"
        folder.mkdir()
        for name, program in PROGRAMS.items():
            (folder / name).symlink_to(pathlib.Path(program).resolve())
        self.variables = self.environment(PATH=f"{folder}:{os.environ['PATH']}", MUSTER_ENDPOINT=f"localhost:{self.ports['9400']}")
        self.out = open(self.dir / "shell.log", "wb")
        self.addCleanup(self.out.close)
        self.shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=self.out, stderr=self.out, text=True,
                                      cwd=self.dir, env=self.variables, start_new_session=True)
        self.addCleanup(self.shell.wait)
        self.addCleanup(os.killpg, self.shell.pid, signal.SIGKILL)

    def logs(self):
        return "\n".join(f"{name}:\n{self.read(name)}" for name in ("shell.log", "musterd.log", "a.log", "b.log", "c.log")
                         if (self.dir / name).exists())

    def block(self, number, text):
        text = re.sub(r"\b(29400|9400)\b", lambda port: self.ports[port[0]], text)
        self.shell.stdin.write(f"{text}\ntouch done.{number}\n")
        self.shell.stdin.flush()
        try:
            wait_for((self.dir / f"done.{number}").exists, f"the block to be done:\n{text}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def look(self, words, shown):
        said = []

        def there():
            done = subprocess.run(["musterctl", *words.split()], capture_output=True, text=True, timeout=PATIENCE_S,
                                  env=self.variables, check=False, cwd=self.dir)
            said[:] = [done.stdout + done.stderr]
            return done.returncode == 0 and all(text in done.stdout for text in shown)
        try:
            wait_for(there, f"musterctl {words} to show {shown}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said[0]}\n{self.logs()}") from None

    def test_its_blocks_and_looks(self):
        steps = list(STEP.finditer(PAGE.read_text()))
        for number, step in enumerate(steps):
            if step["block"] is not None:
                self.block(number, step["block"])
            else:
                shown = re.findall(r"`([^`]+)`", step["shown"])
                self.assertTrue(shown, step[0])
                self.look(step["look"], shown)
        self.assertEqual(sum(step["block"] is not None for step in steps), 8)
        self.assertGreaterEqual(sum(step["look"] is not None for step in steps), 11)


if __name__ == "__main__":
    main()
