#!/usr/bin/env python3
"""The agent dies, hangs or is stopped: muster ends all the same, in order, and says how."""
import os
import re
import signal
import socket
import threading
import time

from hardship import END_BOUND_S, HardshipTest, agent_of, pending_signals, shim_of
from support import MUSTER, Terminal, main, wait_for

WORKER = """#!/bin/sh
trap 'echo saved >> saved; exit 0' TERM HUP
echo $LOCAL_RANK >> ready
while :; do sleep 0.05; done
"""
# Saves until the gate `save` opens. Only a second event ends it before: the tests set a long --shutdown-timeout.
SLOW_SAVE = """#!/bin/sh
exec 3< never 4< save
trap 'echo $LOCAL_RANK >> saving; read line <&4; echo saved >> saved; exit 0' TERM HUP INT
echo $LOCAL_RANK >> ready
read line <&3
"""
LONG_SHUTDOWN = "--shutdown-timeout=1000"
# Writes more than a log thread reads at once, and less than its pipe takes.
WRITER = """#!/bin/sh
trap 'echo last; echo last >&2; exit 0' TERM
echo first; echo first >&2
echo $LOCAL_RANK >> ready
while [ ! -e go ]; do sleep 0.05; done
seq 1 60000; seq 1 60000 >&2
echo $LOCAL_RANK >> written
while :; do sleep 0.05; done
"""
# Its first thread ends; another one stays, and no signal but SIGKILL ends it.
HALF_DEAD = """
import ctypes, os, signal, sys, threading, time
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=time.sleep, args=(1000,)).start()
    open("child", "w").write(str(os.getpid()))
    ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
while not os.path.exists("child") or open(f"/proc/{open('child').read()}/stat").read().rsplit(")")[-1].split()[0] != "Z":
    time.sleep(0.01)
"""


class Agent(HardshipTest):
    def begin(self, text=WORKER, *args, workers=2, **popen):
        script = self.script("worker.sh", text)
        process = self.start("--no-python", f"--nproc-per-node={workers}",
                             f"--failure-report={self.dir}/report.json", *args, script,
                             env={"TORCHELASTIC_ERROR_FILE": str(self.dir / "error.json")}, **popen)
        self.ready(workers)
        return process

    def check_report(self, what):
        self.check_agent_lost(what)
        self.assertIn(what, self.read("err"))
        self.assertIn(what, self.read("error.json"))

    def test_a_killed_shim(self):
        process = self.begin(workers=3)
        shim = shim_of(process.pid)
        os.kill(shim, signal.SIGKILL)
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(self.report()["ended_by"], "shim_lost")
        self.assertIn(f"the shim (pid {shim}) was killed by signal 9", self.report()["reason"])
        self.assertIn("the shim", self.read("error.json"))
        self.assert_nothing_left()

    def test_a_killed_shim_and_agent(self):
        process = self.begin()
        shim, agent = shim_of(process.pid), agent_of(process.pid)
        os.kill(agent, signal.SIGSTOP)  # The agent is not to see the shim's end.
        os.kill(shim, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(self.report()["ended_by"], "shim_lost")
        self.assert_nothing_left()

    def test_a_killed_front(self):
        process = self.begin()
        process.kill()
        process.wait(60)
        self.assert_nothing_left()
        wait_for(lambda: (self.dir / "error.json").exists(), "the shim to write the reports")
        self.assertEqual(self.report()["ended_by"], "front_lost")
        self.assertIn(f"(pid {process.pid})", self.report()["reason"])
        self.assertIn(f"(pid {process.pid})", self.read("error.json"))

    def test_a_stopped_agent_and_one_sigterm(self):
        process = self.begin()
        os.kill(agent_of(process.pid), signal.SIGSTOP)
        process.terminate()
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(self.read("saved").split(), ["saved"] * 2)  # In order: they had SIGTERM.
        self.check_report("stopped answering")
        self.assert_nothing_left()

    def test_a_stopped_agent_and_signal_after_signal(self):
        process = self.begin()
        os.kill(agent_of(process.pid), signal.SIGSTOP)
        self.assertEqual(self.end_by_signals(process, 20), 1)
        self.check_report("the agent")
        self.assert_nothing_left()

    def test_a_stopped_agent_without_a_signal_goes_on(self):
        process = self.begin()
        agent = agent_of(process.pid)
        os.kill(agent, signal.SIGSTOP)
        time.sleep(7)  # More than one look of the shim.
        os.kill(agent, signal.SIGCONT)
        process.terminate()
        self.assertEqual(process.wait(60), 1)
        self.assertNotIn("the agent", self.read("err"))

    def test_an_agent_that_is_killed_leaves_a_report(self):
        process = self.begin()
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(60), 1)
        self.assertEqual(self.read("saved").split(), ["saved"] * 2)
        self.check_report("was killed by signal 9")
        self.assert_nothing_left()
        self.assertEqual(os.listdir(self.memory) + os.listdir(self.dir / "tmp"), [])

    def write_behind_the_agent(self, process, workers=2):
        """The workers write while the agent stands still, and it is killed then."""
        agent = agent_of(process.pid)
        os.kill(agent, signal.SIGSTOP)
        (self.dir / "go").touch()
        wait_for(lambda: len(self.read("written").split()) == workers, "the workers to have written")
        os.kill(agent, signal.SIGKILL)
        self.assertEqual(process.wait(60), 1)

    def check_rescued(self, *flags, rename=lambda log: log):
        process = self.begin(WRITER, "--log-dir", str(self.dir / "logs"), *flags)
        logs = sorted((self.dir / "logs").rglob("*.log"))
        wait_for(lambda: all("first" in log.read_text() for log in logs), "the first lines")
        logs = [rename(log) for log in logs]
        self.write_behind_the_agent(process)
        expected = ["first", *map(str, range(1, 60001)), "last"]
        self.assertEqual(len(logs), 4)
        for log in logs:
            lines = [line for line in log.read_text().splitlines() if line != "Terminated"]
            self.assertEqual(lines, expected, log)  # Without what the shell says of its `sleep`.
        self.assert_nothing_left()

    def test_output_that_a_killed_agent_had_not_read_is_in_the_logs(self):
        self.check_rescued("--redirects=3")

    def test_output_that_a_killed_agent_had_not_read_is_in_renamed_logs(self):
        """As logrotate's `create` renames them: a new file has the old name."""
        new = []

        def rotate(log):
            renamed = log.rename(f"{log}.1")
            log.touch()
            new.append(log)
            return renamed
        self.check_rescued("--redirects=3", rename=rotate)
        self.assertEqual([log.read_text() for log in new], [""] * 4)

    def test_output_that_a_killed_agent_had_not_shown_is_shown(self):
        process = self.begin(WRITER)
        wait_for(lambda: "first" in self.read("err"), "the first lines")
        self.write_behind_the_agent(process)
        lines = self.read("err").splitlines()
        self.assertEqual(lines.count("60000"), 2)
        self.assertEqual(lines.count("last"), 2)

    def check_shown_by_the_rescue(self, text):
        lines = [line for line in text.splitlines() if line != "Terminated"]
        self.assertEqual(lines[lines.index("first"):lines.index("last") + 1],
                         ["first", *map(str, range(1, 60001)), "last"])
        self.assertIn("was killed by signal 9", text)

    def test_a_console_that_is_a_file_keeps_what_the_rescue_has_shown(self):
        """Like `muster ... 2> err`: the processes share the position, and muster's last line comes behind."""
        process = self.begin(WRITER, workers=1)
        wait_for(lambda: "first" in self.read("err"), "the first lines")
        self.write_behind_the_agent(process, workers=1)
        self.check_shown_by_the_rescue(self.read("err"))

    def test_a_console_that_is_a_socket_gets_what_the_rescue_shows(self):
        """As under systemd. No process can open a socket a second time."""
        reader, console = socket.socketpair()
        parts = []

        def read():
            while part := reader.recv(1 << 16):
                parts.append(part)

        with reader, console:
            process = self.begin(WRITER, workers=1, stderr=console)
            console.close()
            thread = threading.Thread(target=read)
            thread.start()
            wait_for(lambda: b"first" in b"".join(parts), "the first lines")
            self.write_behind_the_agent(process, workers=1)
            thread.join(60)
        self.check_shown_by_the_rescue(b"".join(parts).decode())

    def test_output_that_a_killed_agent_had_not_teed_is_in_the_logs(self):
        self.check_rescued("--tee=3")

    def begin_slow_save(self):
        self.save = self.gate("save")
        self.gate("never")
        return self.begin(SLOW_SAVE, LONG_SHUTDOWN)

    def wait_for_saving(self, workers=2):
        wait_for(lambda: len(self.read("saving").split()) == workers, "the workers to save")

    def test_the_second_signal_of_one_event_is_not_impatience(self):
        process = self.begin_slow_save()
        # The front passes the signals on at any pace. The shim reads all three together, so its clock says one event.
        shim = shim_of(process.pid)
        os.kill(shim, signal.SIGSTOP)
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            process.send_signal(number)
            wait_for(lambda: pending_signals(process.pid) == 0, "the front to take the signal")
        os.kill(shim, signal.SIGCONT)
        self.wait_for_saving()
        self.save.open()
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("saved").split(), ["saved"] * 2)

    def test_a_second_wish_kills(self):
        process = self.begin_slow_save()
        process.terminate()
        self.wait_for_saving()
        self.send_second_event(process)
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("saved"), "")

    def test_a_first_wish_after_the_agents_death_does_not_kill(self):
        process = self.begin_slow_save()
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.wait_for_saving()
        process.terminate()
        wait_for(lambda: pending_signals(process.pid) + pending_signals(shim_of(process.pid)) == 0, "muster to take the signal")
        time.sleep(0.5)  # The shim's kill would take less.
        self.save.open()
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("saved").split(), ["saved"] * 2)

    def test_a_second_wish_after_the_agents_death_kills(self):
        process = self.begin_slow_save()
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.wait_for_saving()
        process.terminate()
        self.send_second_event(process)
        self.assertEqual(self.end_of(process), 1)
        self.assertEqual(self.read("saved"), "")

    def test_a_signal_during_a_stop_promises_the_time_that_is_left(self):
        script = self.script("worker.sh", """#!/bin/sh
trap 'echo $LOCAL_RANK >> saving' TERM
echo $LOCAL_RANK >> ready
[ $LOCAL_RANK = 1 ] && while [ ! -e fail ]; do sleep 0.05; done && exit 1
while :; do sleep 0.05; done
""")
        process = self.start("--no-python", "--nproc-per-node=2", "--max-restarts=1", LONG_SHUTDOWN, script)
        self.ready(2)
        (self.dir / "fail").touch()
        self.wait_for_saving(workers=1)
        time.sleep(2.1)
        process.terminate()
        wait_for(lambda: "SIGKILL after" in self.read("err"), "the line")
        self.assertLessEqual(int(re.search(r"SIGKILL after (\d+) s", self.read("err"))[1]), 998)
        self.send_second_event(process)
        self.assertEqual(self.end_of(process), 1)

    def test_ctrl_c_twice_by_hand_kills(self):
        self.gate("save")
        self.gate("never")
        script = self.script("worker.sh", SLOW_SAVE)
        terminal = Terminal([MUSTER, "--no-python", LONG_SHUTDOWN, str(script)], env=self.environment(),
                            cwd=self.dir)
        self.addCleanup(terminal.close)
        self.ready(1)
        terminal.type(b"\x03")
        self.wait_for_saving(workers=1)
        terminal.type(b"\x03")
        wait_for(lambda: (terminal.read(), terminal.process.poll() is not None)[1], "the end", END_BOUND_S)
        self.assertEqual(self.read("saved"), "")

    def test_a_child_whose_first_thread_has_ended_is_killed(self):
        script = self.script("half.py", HALF_DEAD)
        # 20 s: less than the time that muster waits for a process that it cannot kill.
        self.assertEqual(self.end_of(self.start("--leftover-timeout=1", script), 20), 0)
        self.assert_nothing_left()

    def test_a_fork_bomb_is_killed(self):
        script = self.script("bomb.py", """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    open("ready", "w").write("x")
    while True:  # A chain: each lives for a moment, and has a child before it ends.
        if os.fork() != 0:
            time.sleep(0.0005)
            os._exit(0)
while not os.path.exists("ready"):
    time.sleep(0.01)
time.sleep(0.2)
""")
        self.run_muster(script, expect=0)
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
