#!/usr/bin/env python3
"""Workers that are hard to end, very many workers, and workers whose terminal goes or changes."""
import fcntl
import os
import pathlib
import signal
import struct
import sys
import termios
import time

from hardship import HardshipTest, is_stopped, processes_of_muster, state_of
from support import MUSTER, Terminal, main, wait_for

# A worker that ignores SIGTERM, with 1,000 children that do the same: 500 are in the worker's session, and 500 are the
# children of a process that has a session of its own. They are shells: those start fastest.
MANY_CHILDREN = """#!/bin/sh
trap '' TERM
exec 3< never
if [ $# = 0 ]; then
  setsid "$0" other &
fi
children=0
while [ $children -lt 500 ]; do
  (read line <&3) &
  children=$((children + 1))
done
[ $# = 0 ] && echo 0 >> ready
read line <&3
"""
PROCESSES_OF_MANY = 3 + 2 + 1000  # Muster's three, the two parents, the children.

# Ignores SIGTERM, and its descendants fork until they are killed: ten parents have a child each 0.2 s, and ten
# chains consist of one process, which lives for 0.2 s and then leaves a child. Each has a session of its own. All end
# by themselves after 150 s, which is later than any bound of the test. The worker itself writes a mark on SIGTERM.
SLOW_FORKS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 150
born = os.open("born", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

def fork():
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(born, b"x")
    return child

def be_a_parent():
    while time.monotonic() < end:
        if fork() == 0:
            time.sleep(150)
            os._exit(0)
        time.sleep(0.2)

def be_a_chain():
    while time.monotonic() < end:
        time.sleep(0.2)
        if fork() != 0:
            break
    os._exit(0)

for number in range(20):
    time.sleep(0.01)  # So that they do not fork at the same time.
    if fork() == 0:
        be_a_parent() if number % 2 else be_a_chain()
signal.signal(signal.SIGTERM, lambda *_: open("stopping", "w").close())
open("ready", "w").write("0\\n")
be_a_parent()
"""

# Rank 128 fails in the first attempt; the others wait until muster stops them.
ONE_OF_MANY = """#!/bin/sh
exec 3< gate.$TORCHELASTIC_RESTART_COUNT 4< never
echo $LOCAL_RANK >> ready.$TORCHELASTIC_RESTART_COUNT
read line <&3
case $TORCHELASTIC_RESTART_COUNT.$LOCAL_RANK in
  0.128) exit 5 ;;
  0.*) read line <&4 ;;
esac
exit 0
"""
WORKERS = 256
WORKERS_BOUND_S = 120

# Saves on SIGHUP until the gate `save` opens. It starts no process: ctrl-Z would stop that one, too.
SAVER = """#!/bin/sh
exec 3< never 4< save
trap 'echo $LOCAL_RANK >> saving; read line <&4; echo $LOCAL_RANK >> saved; exit 0' HUP
echo $$ >> pids
echo $LOCAL_RANK >> ready
read line <&3
"""

# Writes the size of its terminal, and counts SIGWINCH.
SIZE = """
import os, signal, time
signal.signal(signal.SIGWINCH, lambda *_: open("winch", "a").write("x"))
last = None
while not os.path.exists("finish"):
    size = os.get_terminal_size(1)
    if size != last:
        with open("sizes", "a") as file:
            file.write(f"{size.columns}x{size.lines}\\n")
        last = size
    time.sleep(0.01)
"""


class HardToEnd(HardshipTest):
    def begin(self, *command, shutdown_timeout_s=1):
        (self.dir / "ready").unlink(missing_ok=True)
        process = self.start(f"--shutdown-timeout={shutdown_timeout_s}", *command)
        self.ready(1)
        return process

    def begin_many(self):
        process = self.begin("--no-python", self.script("many.sh", MANY_CHILDREN))
        wait_for(lambda: len(self.token.processes()) == PROCESSES_OF_MANY, "the children")
        return process

    def test_sigterm_and_1000_children_that_ignore_it(self):
        self.gate("never")
        process = self.begin_many()
        process.terminate()
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.token.processes(), {})

    def test_a_killed_process_of_muster_and_1000_children(self):
        self.gate("never")
        for name, code in (("front", -signal.SIGKILL), ("shim", 1), ("agent", 1)):
            with self.subTest(killed=name):
                process = self.begin_many()
                os.kill(processes_of_muster(process.pid)[name], signal.SIGKILL)
                self.assertEqual(self.end_of(process), code)
                wait_for(lambda: not self.token.processes(), "the end of the children", 30)

    def test_processes_that_fork_slowly_during_the_stop_and_the_kill(self):
        for name, code in ((None, 1), ("front", -signal.SIGKILL), ("shim", 1), ("agent", 1)):
            with self.subTest(killed=name):
                # Without a killed process, the stop lasts until the second event.
                process = self.begin(self.script("slow.py", SLOW_FORKS), shutdown_timeout_s=1 if name else 1000)
                if name:
                    os.kill(processes_of_muster(process.pid)[name], signal.SIGKILL)
                else:
                    process.terminate()
                    wait_for(lambda: (self.dir / "stopping").exists(), "the stop to reach the worker")
                    before = len(self.read("born"))
                    wait_for(lambda: len(self.read("born")) > before + 20, "children during the stop")
                    self.send_second_event(process)
                self.assertEqual(self.end_of(process), code)
                wait_for(lambda: not self.token.processes(), "the end of all", 30)


class Many(HardshipTest):
    def test_256_workers_start_fail_restart_and_end(self):
        begin = time.monotonic()
        gates = [self.gate("gate.0"), self.gate("gate.1")]
        self.gate("never")
        process = self.start("--no-python", f"--nproc-per-node={WORKERS}", "--max-restarts=1",
                             self.script("worker.sh", ONE_OF_MANY), env={"OMP_NUM_THREADS": "1"})
        for attempt, gate in enumerate(gates):
            wait_for(lambda: len(self.read(f"ready.{attempt}").split()) == WORKERS or process.poll() is not None,
                     f"attempt {attempt}", WORKERS_BOUND_S)
            self.assertIsNone(process.poll(), self.read("err")[-2000:])
            self.assertEqual(sorted(map(int, self.read(f"ready.{attempt}").split())), list(range(WORKERS)))
            gate.open()
        self.assertEqual(self.end_of(process, WORKERS_BOUND_S), 0)
        self.assertLess(time.monotonic() - begin, WORKERS_BOUND_S)
        self.assertEqual(self.token.processes(), {})
        self.assert_no_files_left()


class WithTerminal(HardshipTest):
    def open_terminal(self, *argv, **environment):
        self.terminal = Terminal([*map(str, argv)], env=self.environment(**environment), cwd=self.dir)
        self.is_open = True
        self.addCleanup(self.hang_up)
        return self.terminal.process

    def hang_up(self):
        if self.is_open:
            self.is_open = False
            self.terminal.close()

    def wait_for(self, condition, what):
        """Reads the terminal meanwhile, so that no process waits for a reader of it."""
        wait_for(lambda: (self.is_open and self.terminal.read(), condition())[1], what)

    def start_savers(self, shell, **environment):
        """Muster in a terminal of its own, or as the job of an interactive shell there."""
        self.save = self.gate("save")
        self.gate("never")
        script = self.script("saver.sh", SAVER)
        words = [MUSTER, "--no-python", "--nproc-per-node=2", script]
        if shell:
            process = self.open_terminal("/bin/bash", "--norc", "-i", **environment)
            self.terminal.type((" ".join(map(str, words)) + "\n").encode())
        else:
            process = self.open_terminal(*words, **environment)
        self.wait_for(lambda: len(self.read("ready").split()) == 2, "the workers")
        return process

    def check_saved(self, process):
        """The workers are not killed while they save, and muster ends when they have saved."""
        self.wait_for(lambda: len(self.read("saving").split()) == 2, "the workers to save")
        self.assertEqual(self.read("saved"), "")
        self.assertEqual(len([pid for pid in self.pids() if os.path.exists(f"/proc/{pid}")]), 2)
        self.save.open()
        self.wait_for(lambda: process.poll() is not None, "the end")
        wait_for(lambda: not self.token.processes(), "the end of all", 30)
        self.assertEqual(sorted(self.read("saved").split()), ["0", "1"])
        self.assert_no_files_left()

    def pids(self):
        return [int(pid) for pid in self.read("pids").split()]

    def test_a_terminal_that_is_lost_while_workers_save(self):
        process = self.start_savers(shell=False)
        self.hang_up()
        self.check_saved(process)
        self.assertEqual(process.returncode, 1)

    def test_a_terminal_that_a_shell_has_is_lost_while_workers_save(self):
        """SIGHUP comes twice: from the kernel and from the shell."""
        process = self.start_savers(shell=True)
        self.hang_up()
        self.check_saved(process)

    def test_workers_that_begin_while_the_job_is_stopped_are_stopped_too(self):
        finish = self.gate("finish")
        script = self.script("worker.sh", "#!/bin/sh\nexec 3< finish\necho $$ >> pids\nread line <&3\nexit 0\n")
        process = self.start("--no-python", "--max-restarts=1", script, process_group=0)  # An orphaned group is not stopped.
        wait_for(lambda: len(self.pids()) == 1, "the worker")
        process.send_signal(signal.SIGTSTP)
        wait_for(lambda: self.states(process.pid) == {"T"}, "the front to stop")
        first = self.pids()[0]
        os.kill(first, signal.SIGKILL)

        def next_workers():
            return [pid for pid, words in self.token.processes().items() if words.startswith("/bin/sh") and pid != first]
        wait_for(lambda: next_workers() and self.states(*next_workers()) == {"T"}, "the next worker to be stopped")
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: len(self.pids()) == 2, "the next worker to run")
        finish.open()
        self.assertEqual(process.wait(60), 0)

    def states(self, *pids):
        return {state for pid in pids for _, state, _ in state_of(pid)}

    def test_a_terminal_that_is_lost_after_ctrl_z(self):
        """The stopped workers are continued, so they can save."""
        self.check_lost_after_ctrl_z()

    def test_a_terminal_that_is_lost_in_the_middle_of_ctrl_z(self):
        """The workers are stopped already, and muster's own process not yet."""
        late_calls = pathlib.Path(MUSTER).parents[1] / "tests/liblate_calls.so"
        self.check_lost_after_ctrl_z(LD_PRELOAD=str(late_calls), LATE_CALLS="100000", LATE_CALLS_US="1000000",
                                     LATE_CALLS_IN="muster", LATE_CALLS_AFTER="send")

    def check_lost_after_ctrl_z(self, **environment):
        process = self.start_savers(shell=True, **environment)
        self.terminal.type(b"\x1a")
        self.wait_for(lambda: all(is_stopped(pid) for pid in self.pids()), "the workers to stop")
        self.hang_up()
        self.check_saved(process)

    def test_a_terminal_that_is_resized(self):
        """The workers are in other sessions: no SIGWINCH reaches them, as under torchrun. They can ask for the size."""
        process = self.open_terminal(MUSTER, self.script("size.py", SIZE))
        for columns, lines in ((100, 40), (80, 24), (300, 100), (1, 1)):
            self.wait_for(lambda: self.read("sizes"), "a size")
            fcntl.ioctl(self.terminal.master, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
            self.wait_for(lambda: self.read("sizes").split()[-1] == f"{columns}x{lines}", "the new size")
        self.assertEqual(self.read("winch"), "")
        (self.dir / "finish").touch()
        self.wait_for(lambda: process.poll() is not None, "the end")
        self.assertEqual(process.returncode, 0, self.terminal.read())
        self.assert_nothing_left()


if __name__ == "__main__":
    sys.exit(main())
