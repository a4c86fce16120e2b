#!/usr/bin/env python3
"""Tests workers whose output goes to a terminal: each has one of its own, and the report has its last lines."""
import fcntl
import os
import pathlib
import signal
import struct
import sys
import termios

from support import MUSTER, MusterTest, Terminal, agent_of, main, wait_for


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminals(MusterTest):
    def on_terminal(self, *args, before=(), size=(33, 111)):
        """Starts muster on a terminal of this size."""
        argv = [*before, MUSTER, "--standalone", *map(str, args)]
        # The shell sets the size before muster starts.
        terminal = Terminal(["/bin/sh", "-c", f'stty rows {size[0]} cols {size[1]}; "$@"; echo code $?', "sh", *argv],
                            cwd=self.dir, env=self.environment(TERM="xterm"))
        self.addCleanup(terminal.close)
        return terminal

    def finished(self, terminal):
        wait_for(lambda: "\ncode " in terminal.read(), "the end")
        return terminal.read()

    def python(self, name, text):
        return ["--no-python", sys.executable, self.script(name, text)]

    def test_the_report_has_the_last_lines_and_the_worker_has_a_terminal(self):
        script = self.python("fails.py", """
import os, sys
print("stdin", os.isatty(0), "stdout", os.isatty(1), "stderr", os.isatty(2), os.get_terminal_size(1),
      os.get_terminal_size(2))
for step in range(5):
    print("\\r\\033[32mstep %d\\033[0m" % step, end="", file=sys.stderr, flush=True)
print(file=sys.stderr)
for number in range(200):
    os.write(1 + number % 2, b"line %d\\n" % number)
sys.exit("the reason why")
""")
        text = self.finished(self.on_terminal(*script))
        size = "os.terminal_size(columns=111, lines=33)"
        self.assertIn(f"stdin True stdout True stderr True {size} {size}\r\n", text)
        self.assertIn("".join(f"\r\033[32mstep {step}\033[0m" for step in range(5)) + "\r\n", text)
        self.assertIn("".join(f"line {number}\r\n" for number in range(200)), text)  # In their order.
        report = text.split("Root Cause")[1]
        self.assertIn("\033[1;31mthe reason why\033[0m", report)
        self.assertIn("line 199", report)
        self.assertTrue(text.endswith("code 1\r\n"), text[-200:])

    def test_stdout_elsewhere(self):
        terminal = self.on_terminal(*self.python("fails.py", "import os, sys\nprint('to the file', os.isatty(1), "
                                                              "os.isatty(2))\nsys.exit('the reason')\n"),
                                    before=["sh", "-c", '"$@" > file', "sh"])
        self.assertIn("the reason", self.finished(terminal).split("Root Cause")[1])
        self.assertEqual(self.read("file"), "to the file False True\n")

    def test_a_new_size_of_the_console(self):
        script = self.python("size.py", """
import os, time
while True:
    print("size", os.get_terminal_size(2).columns, flush=True)
    if os.get_terminal_size(2).columns == 77:
        break
    time.sleep(0.05)
""")
        terminal = self.on_terminal(*script)
        wait_for(lambda: "size 111" in terminal.read(), "the first size")
        resize(terminal, 20, 77)
        text = self.finished(terminal)
        self.assertIn("size 77", text)
        self.assertIn("code 0", text)

    def test_much_output_of_several_ranks(self):
        script = self.python("much.py", """
import os, sys
rank = os.environ["RANK"]
for number in range(20000):
    (sys.stdout if number % 3 else sys.stderr).write(f"<{rank} {number} {'x' * 90}>\\n")
    if number % 3 == 0:
        sys.stdout.flush()
""")
        terminal = self.on_terminal("--nproc-per-node=2", *script)
        text = self.finished(terminal)
        for rank in range(2):
            self.assertEqual(text.count(f"<{rank} "), 20000)

    def test_what_is_written_after_the_agents_death_is_shown(self):
        script = self.python("late.py", """
import os, signal, sys, time
def end(*_):
    os.write(1, b"written late %d\\n" % os.isatty(1))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open("ready", "a").write("x\\n")
time.sleep(1000)
""")
        terminal = self.on_terminal("--nproc-per-node=2", *script)
        self.ready(2)
        muster = next(pid for pid in sorted(self.token.processes())
                      if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(MUSTER.encode()))
        os.kill(agent_of(muster), signal.SIGKILL)
        text = self.finished(terminal)
        self.assertEqual(text.count("written late 1"), 2, text)

    def test_never_hands_the_terminal_on(self):
        terminal = self.on_terminal("--capture-stderr=never", "--no-python", "/bin/sh", "-c",
                                    "tty <&2; tty; exit 3")
        text = self.finished(terminal)
        names = [line for line in text.split("\r\n") if line.startswith("/dev/pts/")]
        self.assertEqual(len(names), 2, text)
        self.assertEqual(names[0], names[1])
        self.assertIn("nothing of its stderr is known here", text)

    def test_where_no_terminal_can_be_made(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        without = ["unshare", "-m", "sh", "-c", 'mount --bind /dev/null /dev/ptmx; exec "$@"', "sh"]
        for when, expected in (("auto", "True True"), ("always", "False False")):
            with self.subTest(when):
                script = self.python("fails.py", "import os, sys\nprint('ttys', os.isatty(1), os.isatty(2))\n"
                                                 "sys.exit('the reason')\n")
                text = self.finished(self.on_terminal(f"--capture-stderr={when}", *script, before=without))
                self.assertIn("ttys " + expected, text)
                self.assertEqual("the reason" in text.split("Root Cause")[1], when == "always", text)


if __name__ == "__main__":
    main()
