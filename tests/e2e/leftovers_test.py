#!/usr/bin/env python3
"""Tests what happens to processes that an attempt has left: they have time to end, then SIGTERM, then SIGKILL."""
import os
import re
import signal
import sys
import time

from nodes import NodesTest
from support import PATIENCE_S, MusterTest, agent_of, main, wait_for

# Of one process or of several: a shell has a child now and then.
RUNS_ON = re.compile("runs? on")
# Begins its work when the worker is dead, as Python's resource_tracker and torch_shm_manager: it waits for the end of a
# pipe, and ignores the signals of the worker's group. $1: the seconds that it takes; the file "name" must not be there
# when the next attempt begins.
TRACKER = """#!/usr/bin/env python3
import os, signal, subprocess, sys, time
read, write = os.pipe()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.close(write)
    if "--daemon" in sys.argv:
        os.setsid()
    os.read(read, 1)
    time.sleep(float(sys.argv[1]))
    os.unlink("name." + os.environ["RANK"])
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.open("name." + os.environ["RANK"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
with open("ready", "a") as file:
    file.write(os.environ["RANK"] + "\\n")
"""
END_SIGTERM = "trap 'echo got TERM >> ended; exit 0' TERM; while :; do sleep 0.05; done"


class Leftovers(MusterTest):
    def names(self):
        return sorted(path.name for path in self.dir.glob("name.*"))

    def tracked(self, text, seconds="0.4", *more):
        """Arguments for muster: a worker with a tracker, which then does what `text` says."""
        return ["--no-python", self.script("tracked.py", TRACKER + text), seconds, *more]

    def test_an_upload_in_the_background_is_finished_after_success(self):
        script = self.script("upload.sh", "#!/bin/sh\nsh -c 'sleep 1.3; echo saved > uploaded' &\nexit 0\n")
        _, _, err = self.run_muster("--standalone", "--no-python", script, expect=0)
        self.assertEqual(self.read("uploaded"), "saved\n")
        self.assertRegex(err, r"left \d processes that run on: .*\d+ \(sh -c sleep 1.3; echo saved > uploaded\)"
                              r".* waits 30 s .*--leftover-timeout.*SIGTERM")
        self.assertNotIn("killing", err)

    def test_nothing_left_costs_no_time_and_no_line(self):
        begin = time.monotonic()
        _, _, err = self.run_muster("--standalone", "--leftover-timeout=40", "--no-python", "/bin/true", expect=0)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertNotIn("left", err)

    def test_what_does_not_end_gets_sigterm_and_then_sigkill(self):
        script = self.script("stay.sh", f"""#!/bin/sh
setsid sh -c "{END_SIGTERM}" &
setsid sh -c "trap '' TERM; while :; do sleep 0.05; done" & echo $! > stubborn
sleep 0.2
""")
        begin = time.monotonic()
        _, _, err = self.run_muster("--standalone", "--leftover-timeout=1", "--no-python", script, expect=0)
        self.assertGreater(time.monotonic() - begin, 3)
        self.assertEqual(self.read("ended"), "got TERM\n")
        stubborn = self.read("stubborn").strip()
        self.assertRegex(err, rf"SIGTERM to .*{stubborn} \(sh -c trap")
        self.assertRegex(err, rf"SIGKILL to .*{stubborn} \(sh -c trap")
        self.assert_nothing_left()

    def test_no_time_at_all(self):
        script = self.script("stay.sh", f'#!/bin/sh\nsetsid sh -c "{END_SIGTERM}" &\nsleep 0.3\n')
        for how in (["--leftover-timeout=0"], []):
            (self.dir / "ended").unlink(missing_ok=True)
            begin = time.monotonic()
            _, _, err = self.run_muster("--standalone", *how, "--no-python", script, expect=0,
                                        env={} if how else {"MUSTER_LEFTOVER_TIMEOUT": "0"})
            self.assertLess(time.monotonic() - begin, 20)
            self.assertIn("SIGTERM to", err)
            self.assertEqual(self.read("ended"), "got TERM\n")

    def test_a_restart_waits_for_what_cleans_up(self):
        fails = "os._exit(5 if int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2 else 0)\n"
        for more in ([], ["--daemon"]):
            self.run_muster("--standalone", "--nproc-per-node=3", "--max-restarts=2", *self.tracked(fails, "0.4", *more),
                            expect=0)
            self.assertEqual(self.names(), [])

    def test_named_shared_memory_of_python(self):
        name = f"muster-{os.getpid()}"
        worker = self.script("shared.py", f"""
import os, time
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=9000, name="{name}-" + os.environ["RANK"])
time.sleep(0.3)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "2": os.abort()
time.sleep(0.5)
memory.unlink()
""")
        self.run_muster("--standalone", "--nproc-per-node=3", "--max-restarts=1", "--no-python", sys.executable, worker,
                        expect=0)
        self.assertEqual([path for path in os.listdir("/dev/shm") if path.startswith(name)], [])

    def test_a_failure_without_a_restart(self):
        self.run_muster("--standalone", "--nproc-per-node=2", *self.tracked("sys.exit(3)\n"), expect=1)
        self.assertEqual(self.names(), [])

    def test_a_stop_by_a_signal(self):
        process = self.start("--standalone", "--nproc-per-node=2", *self.tracked("time.sleep(1000)\n"))
        self.ready(2)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.names(), [])

    def test_a_stop_is_bounded(self):
        script = self.script("stay.sh", """#!/bin/sh
setsid sh -c "trap '' TERM; echo deaf >> ready; while :; do sleep 0.05; done" &
sleep 1000
""")
        process = self.start("--standalone", "--leftover-timeout=1000", "--no-python", script)
        self.ready(1)
        begin = time.monotonic()
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertLess(time.monotonic() - begin, 25)
        self.assertIn("SIGKILL to", self.read("err"))
        self.assert_nothing_left()

    def test_workers_that_do_not_end_in_time(self):
        stays = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('deaf', 'w').close()\ntime.sleep(1000)\n"
        process = self.start("--standalone", "--shutdown-timeout=1", *self.tracked(stays))
        wait_for((self.dir / "deaf").exists, "the worker to ignore SIGTERM")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("forcefully exiting via 9", self.read("err"))
        self.assertEqual(self.names(), [])

    def wait_for_leftovers(self):
        """Starts a job whose leftover runs for 1000 s, and waits until muster waits for it."""
        script = self.script("stay.sh", "#!/bin/sh\nsetsid sleep 1000 &\n")
        process = self.start("--standalone", "--leftover-timeout=900", "--no-python", script)
        wait_for(lambda: "(sleep 1000)" in self.read("err"), "the line about the leftover")
        return process

    def test_a_signal_shortens_the_time(self):
        process = self.wait_for_leftovers()
        begin = time.monotonic()
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertLess(time.monotonic() - begin, 25)
        self.assertIn("SIGTERM to", self.read("err"))
        self.assert_nothing_left()

    def test_a_second_signal_kills_at_once(self):
        script = self.script("stay.sh", "#!/bin/sh\nsetsid sh -c 'trap \"\" TERM; sleep 1000' &\n")
        process = self.start("--standalone", "--leftover-timeout=900", "--no-python", script)
        wait_for(lambda: RUNS_ON.search(self.read("err")), "the line about the leftover")
        process.terminate()
        time.sleep(1.1)  # Else both are one event.
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn("SIGKILL to", self.read("err"))
        self.assert_nothing_left()

    def test_the_agent_is_killed_while_muster_waits(self):
        process = self.wait_for_leftovers()
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertRegex(self.read("err"), r"SIGTERM to \d+ \(sleep\)")
        self.assert_nothing_left()

    def test_what_a_lost_agents_workers_leave_can_clean_up(self):
        process = self.start("--standalone", "--nproc-per-node=2", *self.tracked("time.sleep(1000)\n"))
        self.ready(2)
        os.kill(agent_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertEqual(self.names(), [])

    def test_a_wrong_time_is_refused(self):
        for wrong in ("-1", "nan", "soon"):
            code, _, err = self.run_muster(f"--leftover-timeout={wrong}", "--no-python", "/bin/true")
            self.assertNotEqual(code, 0)
            self.assertIn("--leftover-timeout", err)


class LeftoversOfNodes(NodesTest):
    def test_a_restart_of_two_nodes_of_which_one_has_leftovers(self):
        self.worker.write_text(TRACKER.replace("if os.fork()", "if os.environ['NODE_TAG'] == 'a' and os.fork()")
                               .replace('os.open("name', 'os.environ["NODE_TAG"] == "a" and os.open("name')
                               + self.worker.read_text())
        for tag in ("a", "b"):
            self.node(tag, "2", "--max-restarts=1", command=[str(self.worker), "0.7"])
        self.round_of(2, nodes={"a", "b"})
        (self.dir / "exit.b").write_text("4")
        self.round_of(2, after=2, nodes={"a", "b"})
        (self.dir / "finish").touch()
        for tag, process in self.nodes.items():
            self.assertEqual(process.wait(PATIENCE_S), 0, self.output(tag))
        self.assertEqual(list(self.dir.glob("name.*")), [])

    def test_another_nodes_failure_does_not_hurry_a_node_that_has_succeeded(self):
        self.worker.write_text("import os, subprocess\nif os.environ['NODE_TAG'] == 'a': subprocess.Popen(\n"
                               "  ['sh', '-c', 'while ! test -e may-end; do sleep 0.05; done; echo saved > uploaded'])\n"
                               + self.worker.read_text())
        for tag in ("a", "b"):
            self.node(tag, "2")
        self.round_of(2, nodes={"a", "b"})
        (self.dir / "finish.a").touch()
        wait_for(lambda: RUNS_ON.search(self.read("err.a")), "node a to wait for what is left")
        (self.dir / "exit.b").write_text("4")
        self.nodes["b"].wait(PATIENCE_S)
        (self.dir / "may-end").touch()
        self.nodes["a"].wait(PATIENCE_S)
        self.assertEqual(self.read("uploaded"), "saved\n")


if __name__ == "__main__":
    main()
