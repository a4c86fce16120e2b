#!/usr/bin/env python3
"""Follows docs/token_with_torchrun.md: its commands train on two nodes of each kind and restart,
and a client without the token gets nothing."""
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys

from mixed import MusterdTest, have_torch
from musterd import run_musterd
from nodes import TORCH_PYTHON
from support import PATIENCE_S, SOURCE, main, wait_for

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
PAGE = SOURCE / "docs/token_with_torchrun.md"
STRANGER = "127.0.0.9"
IMPORTS_S = 300
GREETING = b"\0\xce\xf7\x85\x3c"  # VALIDATE of PyTorch's protocol.
GET = b"\x03\x01\0\0\0\0\0\0\0k"


class Page(MusterdTest):
    def setUp(self):
        if not have_torch():
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")
        if shutil.which("openssl") is None:
            self.skipTest("openssl is not installed")
        super().setUp()
        self.workers_reduce_first()

    def command(self, program):
        """The words of the page's command, with this test's addresses in place of the page's."""
        blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
        found = [block.strip() for block in blocks if block.startswith(program)]
        self.assertEqual(len(found), 1, program)
        # All nodes are on this machine and have one address; the client without the token has
        # another one.
        text = found[0].replace("10.1.0.0/16", "127.0.0.1")
        text = text.replace("rendezvous.example.org:29400", f"127.0.0.1:{self.port}")
        return text if program == "(" else shlex.split(text)

    def start_musterd(self):
        subprocess.run(["sh", "-c", self.command("(")], cwd=self.dir, check=True, timeout=PATIENCE_S)
        places = {"--port=29400": "--port=0", "--http=9400": "--http=127.0.0.1:0"}
        words = [places.get(word, word) for word in self.command("musterd")[1:]]
        # The page's command has port 29400, where the page's nodes look for musterd.
        self.assertIn("--port=0", words)
        self.musterds = 1
        self.musterd = run_musterd(self, *words, bind=None, port=None, log=self.dir / "err.musterd1", cwd=self.dir,
                                     env=self.environment(), ready="HTTP at")
        self.port, self.http_port = self.musterd.port, self.musterd.http_port

    def arguments(self, tag, nnodes, extra):
        """Without --local-addr, a torchrun node would tell the other nodes this machine's name."""
        if tag in self.launchers:
            return [*self.command("torchrun")[1:-1], "--local-addr=127.0.0.1", "--rdzv-conf=is_host=false", *extra]
        return [*self.command("muster ")[1:-1], "--rdzv-conf=is_host=false", *extra]

    def stranger_is_closed(self, port):
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(STRANGER, 0)) as client:
            client.sendall(GREETING + GET)
            try:
                self.assertEqual(client.recv(1), b"")
            except ConnectionResetError:
                pass

    def four_train(self, after=0):
        # Launchers and workers import torch, at the same time and on a busy machine.
        wait_for(lambda: len(self.starts()) == after + 4, "four workers", IMPORTS_S)
        self.round_of(4, after=after, nodes="abtu")

    def test_its_commands_train_restart_and_a_stranger_gets_nothing(self):
        for tag in "tuab":
            self.node(tag, 4, "--max-restarts=2")
        self.four_train()
        words = self.command("musterctl")[1:]
        said = subprocess.run([MUSTERCTL, f"--endpoint=127.0.0.1:{self.http_port}", *words], cwd=self.dir, check=False,
                              capture_output=True, text=True, timeout=PATIENCE_S, env=self.environment())
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([len(re.findall(rf"\b{kind}\b", said.stdout)) for kind in ("muster", "torchrun")], [2, 2],
                         said.stdout)
        self.stranger_is_closed(self.port)
        self.assertIn("this address may not use the c10d door", self.read("err.musterd1"))
        self.tell("exit.a", "7")
        self.four_train(after=4)
        self.tell("finish")
        self.ends(a=0, b=0, t=0, u=0)


if __name__ == "__main__":
    sys.exit(main())
