"""Tests the worker channel: the agent's end against the SDK, against the Python module muster_worker, and against invalid
input.

channel_test.py PROBE FOLDER_OF_THE_MODULE. Needs no torch. The module is tested under each Python from 3.8 on that this
machine has.
"""

import ast
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

MODULE = pathlib.Path(sys.argv.pop(2))
PROBE = sys.argv.pop(1)
LIMIT_S = 60
WORKERS = 3
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pythons import missing, pythons  # noqa: E402

NOTIFIED = ('"b" \u00e4\n goes', False, ((0, 3), (8, 8)), "shrink")  # What the agent's end sends for `notify`.


class ChannelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "channel")
        self.agent = subprocess.Popen([PROBE, "listen", self.path, str(WORKERS)], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.addCleanup(self.stop)
        self.expect("listening")

    def read(self):
        for line in self.agent.stdout:
            self.lines.put(line.rstrip("\n"))

    def stop(self):
        self.agent.stdin.close()
        self.assertEqual(self.agent.wait(LIMIT_S), 0)
        self.agent.stdout.close()

    def expect(self, line):
        self.assertEqual(self.lines.get(timeout=LIMIT_S), line)

    def command(self, text, *answers):
        self.agent.stdin.write(text + "\n")
        self.agent.stdin.flush()
        for line in answers or ("done " + text.split()[0],):
            self.expect(line)

    def connect(self, *lines):
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(LIMIT_S)
        client.connect(self.path)
        for line in lines:
            client.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        return client

    def closed(self, client):
        try:
            return client.recv(1) == b""
        except ConnectionResetError:  # The agent closed the connection with unread data.
            return True


class Channel(ChannelTest):
    def test_progress_reaches_the_agent_in_order(self):
        first = self.connect({"type": "hello", "local_rank": 2})
        first.sendall(b'{"type":"progress","step":1}\n{"type":"progr')
        self.expect("progress 2")
        second = self.connect({"type": "hello", "local_rank": 0}, {"type": "progress"})
        self.expect("progress 0")
        first.sendall(b'ess","step":2}\n')
        self.expect("progress 2")
        second.close()
        first.sendall(b'{"type":"something new"}\n{"type":"progress","step":3,"loss":[1]}\n')
        self.expect("progress 2")

    def test_a_client_that_breaks_a_rule_is_closed_and_others_stay(self):
        good = self.connect({"type": "hello", "local_rank": 1})
        hello = {"type": "hello", "local_rank": 0}
        for lines in ([b"no json\n"], [b"[1]\n"], [b"{}\n"], [{"type": 1}], [{"type": "progress"}],
                      [hello, hello], [{"type": "hello", "local_rank": WORKERS}],
                      [{"type": "hello", "local_rank": -1}], [{"type": "hello", "local_rank": "0"}],
                      [{"type": "hello"}], [{"type": "hello", "local_rank": 2**64 - 1}],
                      [b"x" * 5000], [b"[" * 4000 + b"\n"], [b"\xff\xfe\n"]):
            with self.subTest(lines=str(lines)[:60]):
                self.assertTrue(self.closed(self.connect(*lines)))
        good.sendall(b'{"type":"progress"}\n')
        self.expect("progress 1")

    def test_the_notice_also_reaches_workers_that_connect_late(self):
        early = self.connect({"type": "hello", "local_rank": 0}, {"type": "progress"})
        self.expect("progress 0")  # The agent has registered this worker.
        self.command("preempt 30")
        found = []
        for client in (early, self.connect({"type": "hello", "local_rank": 1})):
            notice = json.loads(client.makefile().readline())
            self.assertEqual(notice["type"], "preempt")
            found.append(notice["deadline_s"])
        self.assertLessEqual(0, found[1])
        self.assertLessEqual(found[1], found[0])
        self.assertLessEqual(found[0], 30)

    def test_the_notice_has_one_time_for_both_ends(self):
        early = self.connect({"type": "hello", "local_rank": 0}, {"type": "progress"})
        self.expect("progress 0")
        before = time.monotonic()
        self.command("preempt 30")
        after = time.monotonic()
        late = self.connect({"type": "hello", "local_rank": 1})
        first, second = (json.loads(client.makefile().readline())["deadline_monotonic_s"]
                         for client in (early, late))
        self.assertEqual(first, second)
        self.assertLessEqual(before + 30 - 0.001, first)
        self.assertLessEqual(first, after + 30 + 0.001)

    def test_a_worker_that_promises_to_end_gets_no_signal_before_the_deadline(self):
        promise = {"type": "ends_itself"}
        self.connect({"type": "hello", "local_rank": 0}, promise, {"type": "progress"})
        self.connect({"type": "hello", "local_rank": 1}, {"type": "progress"})
        for line in sorted(self.lines.get(timeout=LIMIT_S) for _ in range(2)):
            self.assertIn(line, ("progress 0", "progress 1"))
        self.command("held", "done held")  # No notice has been sent so far.
        self.command("preempt 30")
        # A promise after the notice is too late: the signal has already been sent.
        self.connect({"type": "hello", "local_rank": 2}, promise, {"type": "progress"})
        self.expect("progress 2")
        self.command("held", "held 0", "done held")
        self.command("preempt 0")  # A second notice, which is due at once.
        self.expect("overdue 0")
        self.expect("overdue 2")
        self.command("held", "done held")
        self.command("preempt 30")
        self.command("held", "held 0", "held 2", "done held")
        self.command("reset")
        self.command("held", "done held")
        self.assertTrue(self.closed(self.connect(promise)), "before its hello")

    def test_a_worker_that_has_answered_keeps_its_promise_while_it_ends(self):
        promise, saved = {"type": "ends_itself"}, {"type": "saved"}
        early = self.connect({"type": "hello", "local_rank": 2}, promise, saved, {"type": "progress"})
        self.expect("saved 2")
        self.expect("progress 2")
        self.command("notify 30")
        first = self.connect({"type": "hello", "local_rank": 0}, promise, saved)
        second = self.connect({"type": "hello", "local_rank": 1}, saved)
        self.assertEqual({self.lines.get(timeout=LIMIT_S) for _ in range(2)}, {"saved 0", "saved 1"})
        for client in (first, second, early):
            client.close()
        # Rank 1 has promised nothing, and rank 2 has answered when there was no notice.
        self.command("preempt 30")
        self.command("held", "held 0", "done held")
        self.command("preempt 0")
        self.expect("overdue 0")
        self.command("reset")
        self.command("preempt 30")
        self.command("held", "done held")

    def test_an_attempt_that_is_over(self):
        old = self.connect({"type": "hello", "local_rank": 0}, {"type": "progress"})
        self.expect("progress 0")
        self.command("preempt 30")
        self.command("reset")
        self.assertEqual(len(old.makefile().readlines()), 1, "the notice, then the end")
        new = self.connect({"type": "hello", "local_rank": 0}, {"type": "progress"})
        self.expect("progress 0")
        self.command("preempt 0")
        self.assertEqual(json.loads(new.makefile().readline())["deadline_s"], 0)

    def test_more_connections_than_the_limit_wait(self):
        many = [self.connect({"type": "hello", "local_rank": 0}) for _ in range(1024)]
        # One client after the other: each one is registered before the next one sends.
        for client in many:
            client.sendall(b'{"type":"progress"}\n')
            self.expect("progress 0")
        waiting = self.connect({"type": "hello", "local_rank": 1}, {"type": "progress"})
        many[0].sendall(b'{"type":"progress"}\n')
        self.expect("progress 0")
        many[1].close()
        self.expect("progress 1")
        waiting.close()

    def flood(self, connections):
        """Fills the buffers of this number of connections of rank 0, again and again. Returns when all
        have been full."""
        clients = [self.connect({"type": "hello", "local_rank": 0}) for _ in range(connections)]
        lines, ended, all_full = b'{"type":"progress"}\n' * 5000, threading.Event(), threading.Event()
        rest = dict.fromkeys(clients, lines)  # A call of send() may take a part of a line.
        not_full = set(clients)

        def send():
            while not ended.is_set():
                for client in clients:
                    try:
                        rest[client] = rest[client][client.send(rest[client]):] or lines
                    except BlockingIOError:
                        not_full.discard(client)
                if not not_full:
                    all_full.set()

        for client in clients:
            client.setblocking(False)
        thread = threading.Thread(target=send)
        thread.start()
        self.addCleanup(lambda: (ended.set(), thread.join()))
        self.assertTrue(all_full.wait(LIMIT_S))

    def test_a_flood_of_lines_does_not_stop_the_loop(self):
        self.connect({"type": "hello", "local_rank": 1}, {"type": "ends_itself"}, {"type": "progress"})
        self.expect("progress 1")
        self.command("count", "done count 0")
        self.flood(1000)
        self.connect({"type": "hello", "local_rank": 2}, {"type": "ends_itself"})
        # Each command is an event of the loop, as the end of a worker is. All of them are waiting, so the number of
        # lines between two of them is that of the channel's turns. One turn reads 16 KiB, which is 850 lines.
        self.agent.stdin.write("count\n" * 50)
        self.agent.stdin.flush()
        counts = [int(self.lines.get(timeout=LIMIT_S).removeprefix("done count ")) for _ in range(50)]
        self.assertGreater(sum(counts[1:]), 0)
        self.assertLess(max(counts[1:]), 4000, counts)
        self.command("preempt 30")
        self.command("held", "held 1", "held 2", "done held")

    def test_the_path(self):
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        for path, why in ((self.path, "Address already in use"),
                          ("/tmp/" + "x" * 120, "File name too long")):
            done = subprocess.run([PROBE, "listen", path, "1"], capture_output=True, text=True,
                                  timeout=LIMIT_S)
            self.assertEqual(done.stdout, f"failed {why}\n")
        self.assertTrue(os.path.exists(self.path))

    def test_the_sdk(self):
        variables = os.environ | {"MUSTER_WORKER_CHANNEL": self.path, "LOCAL_RANK": "2"}
        began = time.monotonic()
        worker = subprocess.Popen([PROBE, "work", "1000"], text=True, stdout=subprocess.PIPE,
                                  env=variables)
        self.expect("progress 2")
        self.agent.stdin.write("preempt 25\n")
        self.agent.stdin.flush()
        more = list(iter(lambda: self.lines.get(timeout=LIMIT_S), "done preempt"))
        self.assertEqual(set(more) - {"progress 2"}, set())
        # The worker sends a report each 100 ms at most. A worker that is off the CPU between its steps sends several.
        self.assertLessEqual(len(more), (time.monotonic() - began) / 0.1)
        output, _ = worker.communicate(timeout=LIMIT_S)
        self.assertEqual(worker.returncode, 0)
        left_s = float(output.split()[1])
        self.assertTrue(0 < left_s <= 25.001, output)  # The message counts in milliseconds.

    def test_the_sdk_ends_its_promise_of_progress(self):
        variables = os.environ | {"MUSTER_WORKER_CHANNEL": self.path, "LOCAL_RANK": "1"}
        subprocess.run([PROBE, "report", "1"], check=True, timeout=LIMIT_S, env=variables,
                       stdout=subprocess.DEVNULL)
        self.expect("progress 1")
        self.expect("progress_end 1")

    def test_the_sdk_keeps_room_for_its_promises_while_the_agent_does_not_read(self):
        path = self.path + ".slow"
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(path)
        listener.listen()
        listener.settimeout(LIMIT_S)
        variables = os.environ | {"MUSTER_WORKER_CHANNEL": path, "LOCAL_RANK": "1"}
        # Many more lines than a socket takes.
        done = subprocess.run([PROBE, "alternate", "20000"], timeout=LIMIT_S, env=variables, capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, b"no notice\n"))
        agent, _ = listener.accept()
        self.addCleanup(agent.close)
        with agent.makefile() as stream:
            kinds = [json.loads(line)["type"] for line in stream]
        # The last reports are lost. What the agent must know is not.
        count = len(kinds) // 2 - 1
        self.assertLess(count, 20000)
        self.assertEqual(kinds, ["hello"] + count * ["progress", "progress_end"] + ["ends_itself"])

    def test_the_sdk_without_an_agent(self):
        for path in ("", self.path + ".none", "/" + "x" * 200):
            with self.subTest(path):
                variables = os.environ | {"MUSTER_WORKER_CHANNEL": path, "LOCAL_RANK": "0"}
                done = subprocess.run([PROBE, "report", "1000"], capture_output=True, text=True,
                                      timeout=LIMIT_S, env=variables)
                self.assertEqual((done.returncode, done.stdout), (0, "no notice\n"))

    def test_a_late_read_of_the_notice_gives_the_time_that_is_left(self):
        variables = os.environ | {"MUSTER_WORKER_CHANNEL": self.path, "LOCAL_RANK": "2"}
        worker = subprocess.Popen([PROBE, "ask"], text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, env=variables)
        self.assertEqual(worker.stdout.readline(), "asked\n")
        before = time.monotonic()
        self.command("preempt 25")
        after = time.monotonic()
        # The worker does not read in this second, but the time that is left decreases.
        time.sleep(1)
        found = []
        for _ in range(2):
            worker.stdin.write("now\n")
            worker.stdin.flush()
            words = worker.stdout.readline().split()
            self.assertEqual(words[0], "left", words)
            found.append(float(words[3]))
        worker.communicate(timeout=LIMIT_S)
        self.assertEqual(found[0], found[1], "the notice is kept")
        self.assertTrue(before + 25 - 0.01 <= found[0] <= after + 25 + 0.01, (before, found, after))

    def test_the_sdk_answers_a_notice(self):
        for late in (False, True):
            with self.subTest(late=late):
                if late:
                    self.command("notify 30")
                variables = os.environ | {"MUSTER_WORKER_CHANNEL": self.path, "LOCAL_RANK": "2", "MUSTER_GENERATION": "18"}
                worker = subprocess.Popen([PROBE, "answer"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          env=variables)
                self.expect("progress 2")
                if not late:
                    self.command("notify 30")
                output, _ = worker.communicate("now\n", timeout=LIMIT_S)
                reason, doomed, ranks, follow = NOTIFIED
                self.assertEqual(json.loads(output), {"reason": reason, "doomed": doomed, "follow": follow, "id": 1 + late,
                                                      "doomed_ranks": [list(ends) for ends in ranks], "generation": 18})
                self.expect(f"saved 2 {1 + late}")

    def test_the_sdk_answers_before_its_own_node_has_the_notice(self):
        variables = os.environ | {"MUSTER_WORKER_CHANNEL": self.path, "LOCAL_RANK": "2"}
        worker = subprocess.Popen([PROBE, "ahead"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
        self.expect("saved 2")  # Another rank has a notice already: this answer has no number.
        self.expect("progress 2")
        self.command("notify 30")
        output, _ = worker.communicate("now\n", timeout=LIMIT_S)
        self.assertEqual((worker.returncode, json.loads(output)["id"]), (0, 1))
        self.expect("saved 2 1")

    def test_the_module_needs_no_syntax_and_no_import_that_is_newer_than_python_3_8(self):
        text = (MODULE / "muster_worker/__init__.py").read_text()
        tree = ast.parse(text, feature_version=(3, 8))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        # All of these are in Python 3.8, and in 3.14.
        self.assertLessEqual(imported, {"array", "fcntl", "json", "os", "socket", "termios", "threading", "time", "typing"})
        # Built-in types take no arguments there, and types are not joined with "|": such hints are evaluated.
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                self.assertNotIn(node.value.id, ("dict", "list", "set", "tuple", "type"), ast.unparse(node))
        hints = [node.annotation for node in ast.walk(tree) if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation]
        hints += [node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns]
        self.assertFalse([ast.unparse(hint) for hint in hints if any(isinstance(n, ast.BitOr) for n in ast.walk(hint))])

    @unittest.skipUnless(missing(), "each version is here")
    def test_the_module_under_other_versions(self):
        self.skipTest(f"this machine has no Python {', '.join(missing())}")


class Module(ChannelTest):
    """The Python module, under the Python that runs this test."""
    python = sys.executable

    def script(self, program, **variables):
        """Starts Python with the module and this program."""
        kept = {name: value for name, value in os.environ.items()
                if name not in ("MUSTER_WORKER_CHANNEL", "LOCAL_RANK")}
        worker = subprocess.Popen([self.python, "-c", "import muster_worker\n" + program], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**kept, "PYTHONPATH": str(MODULE), **variables})
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        self.addCleanup(worker.communicate)
        return worker

    # Each line of the input is a call, and each line of the output its result.
    CALLS = "import sys\nfor line in sys.stdin:\n    print(eval('muster_worker.' + line), flush=True)\n"

    def ask(self, worker, call):
        worker.stdin.write(call + "\n")
        worker.stdin.flush()
        return worker.stdout.readline().strip()

    def finished(self, worker, output=""):
        found, errors = worker.communicate(timeout=LIMIT_S)
        self.assertEqual((worker.returncode, found, errors), (0, output, ""))

    def test_the_module(self):
        worker = self.script(self.CALLS, MUSTER_WORKER_CHANNEL=self.path, LOCAL_RANK="1")
        self.assertEqual(self.ask(worker, "available()"), "True")
        self.assertEqual(self.ask(worker, "notice()"), "None")
        self.assertEqual(self.ask(worker, "progress(7)"), "None")
        self.expect("progress 1")
        self.command("preempt 1000")
        self.command("held", "done held")  # To ask for a notice is no promise.
        self.command("reset")  # The agent closes the connection.
        self.assertIn("Notice(deadline=", self.ask(worker, "notice()"))
        for call in ("progress(8)", "progress_end()", "ends_itself()"):
            self.assertEqual(self.ask(worker, call), "None")
        self.assertEqual(self.ask(worker, "available()"), "False")
        self.finished(worker)

    def test_the_module_keeps_its_promise_and_reads_the_notice_late(self):
        worker = self.script(self.CALLS, MUSTER_WORKER_CHANNEL=self.path, LOCAL_RANK="2")
        self.ask(worker, "ends_itself()")
        self.ask(worker, "progress()")
        self.expect("progress 2")
        before = time.monotonic()
        self.command("preempt 20")
        after = time.monotonic()
        self.command("held", "held 2", "done held")
        time.sleep(1)  # The worker asks late.
        found = {self.ask(worker, "notice().deadline") for _ in range(2)}
        self.assertEqual(len(found), 1)
        self.assertTrue(before + 20 - 0.01 <= float(found.pop()) <= after + 20 + 0.01)
        self.assertLess(float(self.ask(worker, "notice().seconds_left()")), 19.01)
        self.command("preempt 0")
        self.expect("overdue 2")
        self.assertEqual(self.ask(worker, "notice().seconds_left()"), "0.0")
        self.finished(worker)

    def test_the_module_answers_a_notice(self):
        worker = self.script(self.CALLS, MUSTER_WORKER_CHANNEL=self.path, LOCAL_RANK="1", MUSTER_GENERATION="17")
        self.assertEqual(self.ask(worker, "saved()"), "None")
        self.expect("saved 1")  # Another rank may have a notice already.
        self.command("notify 30")
        self.command("held", "done held")  # A notice for the whole job stops nobody by itself.
        self.assertEqual(self.ask(worker, "notice()[1:]"), repr(NOTIFIED + (1,)))
        self.assertEqual(self.ask(worker, "saved()"), "None")
        self.expect("saved 1 1")
        self.command("notify 20")
        self.assertEqual(self.ask(worker, "saved()"), "None")  # It reads the second notice first.
        self.expect("saved 1 2")
        self.assertEqual(self.ask(worker, "generation()"), "17")
        self.finished(worker)

    def test_the_module_reports_ten_times_a_second_at_most(self):
        worker = self.script("import time\nbegin = time.monotonic()\nfor step in range(100000):\n"
                             "    muster_worker.progress(step)\nprint(time.monotonic() - begin)\n"
                             "muster_worker.progress_end()\nmuster_worker.progress_end()\n"
                             "muster_worker.progress(1)\n",
                             MUSTER_WORKER_CHANNEL=self.path, LOCAL_RANK="0")
        output, errors = worker.communicate(timeout=LIMIT_S)
        self.assertEqual(errors, "")
        lines = list(iter(lambda: self.lines.get(timeout=LIMIT_S), "progress_end 0"))
        self.assertEqual(set(lines), {"progress 0"})
        self.assertLessEqual(len(lines), 1 + float(output) / 0.1)
        self.expect("progress 0")  # The promise was withdrawn once.

    def test_the_module_in_a_forked_process_and_in_threads(self):
        worker = self.script("""
import os, threading
muster_worker.progress(1)
child = os.fork()
if child == 0:
    muster_worker.progress(2)
    muster_worker.ends_itself()
    os._exit(0 if not muster_worker.available() and muster_worker.notice() is None else 1)
print(os.waitpid(child, 0)[1])
def calls():
    for step in range(1000):
        muster_worker.progress(step)
        muster_worker.notice()
        muster_worker.progress_end()
threads = [threading.Thread(target=calls) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(muster_worker.available())
""", MUSTER_WORKER_CHANNEL=self.path, LOCAL_RANK="0")
        self.finished(worker, "0\nTrue\n")  # An agent that had got a broken line would have closed the connection.

    def test_the_module_without_an_agent(self):
        # Under torchrun there is a local rank and no channel. Without a launcher there is neither.
        calls = ("print(muster_worker.available(), muster_worker.progress(1), muster_worker.progress_end(), "
                 "muster_worker.ends_itself(), muster_worker.notice(), muster_worker.saved(), muster_worker.generation())")
        for variables in ({}, {"LOCAL_RANK": "3", "TORCHELASTIC_RUN_ID": "x"},
                          {"MUSTER_WORKER_CHANNEL": self.path + ".none"}, {"MUSTER_WORKER_CHANNEL": "/" + "x" * 200},
                          {"MUSTER_WORKER_CHANNEL": self.path, "LOCAL_RANK": "one"}):
            with self.subTest(variables):
                self.finished(self.script(calls, **variables), "False None None None None None 0\n")

    def test_the_module_reads_what_it_does_not_know(self):
        path = self.path + ".other"
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(path)
        listener.listen()
        listener.settimeout(LIMIT_S)
        worker = self.script(self.CALLS, MUSTER_WORKER_CHANNEL=path, LOCAL_RANK="1")
        self.assertEqual(self.ask(worker, "available()"), "True")
        agent, _ = listener.accept()
        self.addCleanup(agent.close)
        agent.sendall(b'{"type":"new"}\nno json\n[1]\n{"type":"preempt"}\n{"type":"preempt","deadline_monotonic_s":"x"}\n')
        agent.sendall(b"[" * 4000 + b"\n" + b'{"type":"preempt","deadline_monotonic_s":5.5,"more":[1]}\n')
        expected = "Notice(deadline=5.5, reason='', doomed=True, doomed_ranks=(), follow='', id=0)"
        self.assertEqual(self.ask(worker, "notice()"), expected)
        agent.sendall(b'{"type":"preempt","deadline_monotonic_s":6,"doomed_ranks":[5],"id":"x","doomed":0,"reason":7}\n')
        expected = "Notice(deadline=6.0, reason='7', doomed=True, doomed_ranks=(), follow='', id=0)"
        self.assertEqual(self.ask(worker, "notice()"), expected)
        agent.sendall(b"x" * 5000)
        self.assertEqual(self.ask(worker, "notice()"), expected)
        self.assertEqual(self.ask(worker, "available()"), "False")
        self.finished(worker)


def load_tests(loader, standard, _):
    """Adds the tests of the module under each other Python."""
    for minor, path in sorted(pythons().items()):
        if minor != sys.version_info[1]:
            case = type(f"ModuleUnderPython3_{minor}", (Module,), {"python": path})
            standard.addTests(loader.loadTestsFromTestCase(case))
    return standard


if __name__ == "__main__":
    unittest.main()
