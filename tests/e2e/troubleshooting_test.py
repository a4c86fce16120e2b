#!/usr/bin/env python3
"""docs/troubleshooting.md: every command in it is run, and prints what the document says.

Needs torch in .venv; skipped (77) where it is not.
"""
import sys

import lan
from documents import SKIPPED, VENV, Clone, dollar_blocks, missing, sections
from support import SOURCE, MusterTest, main

TEXT = (SOURCE / "docs/troubleshooting.md").read_text()
BOUND_S = 150
# Not a job but a signal to one; tests/e2e/hang_test.py has it.
ELSEWHERE = "kill -USR2"
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
        """One after the other; what is started with & stays, and has the port, until the end."""
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
        """Two hosts, the same command on each."""
        if reason := lan.why_not():
            self.skipTest(reason)
        block, = (block for block in dollar_blocks(TEXT)
                  if block.commands[0].startswith(LOOPBACK_ONLY))
        net = lan.Lan(self.dir, ["node0", "node1"])
        self.addCleanup(net.close)
        clone = Clone(self, "lan")
        nodes = {name: clone.start(block.commands[0], f"log.{name}", around=net.on(name))
                 for name in net.addresses}
        for name, process in nodes.items():
            self.assertEqual(process.wait(BOUND_S), 1, clone.text(f"log.{name}"))
        lines = [line for name in nodes for line in clone.lines(f"log.{name}")]
        self.assertIsNone(missing(block.printed, lines), "\n".join(lines))


if __name__ == "__main__":
    if not (VENV / "bin/torchrun").exists():
        print("skipped: no .venv with torch", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
