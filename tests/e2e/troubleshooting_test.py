#!/usr/bin/env python3
"""Tests docs/troubleshooting.md: every command in it is run and must print what the document says.

Needs torch in .venv; skipped (77) without it.
"""
import sys

import lan
from documents import SKIPPED, VENV, Clone, dollar_blocks, missing, sections
from support import SOURCE, MusterTest, main

TEXT = (SOURCE / "docs/troubleshooting.md").read_text()
BOUND_S = 150
# This command is not a job but a signal to one; tests/e2e/hang_test.py tests it.
ELSEWHERE = "pkill -USR2"
LOOPBACK_ONLY = "GLOO_SOCKET_IFNAME=lo muster --nnodes=2"


class Troubleshooting(MusterTest):
    def test_what_the_commands_print_is_in_the_document(self):
        ran = 0
        for heading, text in sections(TEXT).items():
            blocks = [block for block in dollar_blocks(text)
                      if not block.commands[0].startswith((ELSEWHERE, LOOPBACK_ONLY))]
            with self.subTest(heading):
                self.run_section(heading, blocks)
                ran += len(blocks)
        self.assertGreaterEqual(ran, 9)

    def run_section(self, heading, blocks):
        """Runs the blocks one after the other. A command that ends with & runs on until the end and
        has the port."""
        clone = Clone(self, heading)
        background = []
        for number, block in enumerate(blocks):
            command, log = block.commands[0], f"{heading}.{number}.log"
            if command.endswith(" &"):
                background.append(clone.in_background(command[:-2], log))
            else:
                self.assertNotEqual(block.printed, [], command)
                clone.until(command, block.printed, log, BOUND_S)
        for process in background:
            clone.stop(process)
        self.assert_nothing_left()

    def test_an_interface_that_the_others_cannot_reach(self):
        """Runs the same command on two hosts, and then again with 127.0.1.1 as the address of each
        host's own name."""
        if reason := lan.why_not():
            self.skipTest(reason)
        block, = (block for block in dollar_blocks(TEXT)
                  if block.commands[0].startswith(LOOPBACK_ONLY))
        with self.subTest("GLOO_SOCKET_IFNAME=lo"):
            net = lan.Lan(self.dir, ["node0", "node1"])
            self.addCleanup(net.close)
            self.fails_as_said(net, block.commands[0], block.printed)
        with self.subTest("127.0.1.1"):
            net = self.hosts_with_names_of_loopback()
            self.fails_as_said(net, block.commands[0].replace("GLOO_SOCKET_IFNAME=lo ", "").replace(
                "=node0", "=10.77.0.1"), block.printed)

    def hosts_with_names_of_loopback(self):
        net = lan.Net(self.dir)
        self.addCleanup(net.close)
        net.wire("wire")
        for number, name in enumerate(("node0", "node1"), 1):
            hosts = self.dir / f"hosts.{name}"
            hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
            net.host(name, hosts)
            net.connect(name, "wire", f"10.77.0.{number}/24")
        return net

    def fails_as_said(self, net, command, printed):
        clone = Clone(self, f"lan{id(net)}")
        nodes = {name: clone.start(command, f"log.{name}", around=net.on(name))
                 for name in ("node0", "node1")}
        for name, process in nodes.items():
            self.assertEqual(process.wait(BOUND_S), 1, clone.text(f"log.{name}"))
        streams = [stream for name in nodes for stream in clone.streams(f"log.{name}")]
        self.assertIsNone(missing(printed, streams), "\n".join(clone.text(f"log.{name}") for name in nodes))


if __name__ == "__main__":
    if not (VENV / "bin/torchrun").exists():
        print("skipped: no .venv with torch", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
