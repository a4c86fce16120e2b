"""Tests of the families of many nodes, with fake servers, loads and agents. bench/selftest.py runs
them."""
import os
import signal
import socket
import time
import unittest.mock
import xml.etree.ElementTree

from muster_bench import context, curve, families, model, peers, programs
from selftest_programs import FAKE_LAUNCHER, FAKE_SERVER, WithFakes

FAKE_NODES = r"""#!{python}
import json, os, sys
def given(name):
    return sys.argv[sys.argv.index(name) + 1]
os.kill(int(given("--pid")), 0)
nodes, factor = int(given("--nodes")), 1 if "--bare" in sys.argv else 2
if "--tls-ca" in sys.argv:
    assert open(given("--tls-ca")).readline().startswith("-----BEGIN CERTIFICATE"), "no certificate"
    factor = 6
phase = {"seconds": 0.5 * factor, "messages_to": 7 * nodes, "messages_from": 6 * nodes,
         "keep_alives": nodes, "waitings": 2 * nodes, "bytes_to": 1000 * nodes,
         "bytes_from": 500 * nodes, "keep_alive_bytes": 100 * nodes, "waiting_bytes": 0,
         "server_cpu_s": 0.5e-6 * factor * nodes}
print(json.dumps({"nodes": nodes, "peak_rss_mb": 12.0, "rss_before_mb": 4.0, "rss_mb": 4 + factor, "join": phase,
                  "restarts": [phase, phase | {"seconds": 0.25 * factor}]}))
"""

FAKE_MUSTERD_LOAD = r"""#!{python}
import json, os, signal, sys
pid = int(sys.argv[sys.argv.index("--pid") + 1])
with open(f"/proc/{pid}/cmdline") as file:
    on_disk = "--state-dir" in file.read()
os.kill(pid, signal.SIGKILL if "--kill" in sys.argv else 0)
print(json.dumps({"join_s": 1.5 if on_disk else 1.0, "restart_s": [9.0, 0.6 if on_disk else 0.5],
                  "acknowledged": {"median": 0.001, "p99": 0.002},
                  "answers": {"median": 0.0005, "max": 0.05}, "idle_cpu_share": 0.07,
                  "resume_s": 0.5}))
"""

# A Python that plays torch_store_server.py and torch_nodes.py.
FAKE_TORCH = r"""#!{python}
import json, os, sys
def given(name):
    return sys.argv[sys.argv.index(name) + 1]
if sys.argv[1].endswith("torch_nodes.py"):
    if STATUS:
        sys.exit(STATUS)
    nodes = int(given("--nodes"))
    phase = {"seconds": 3.0, "tries": 4 * nodes, "reads": nodes}
    print(json.dumps({"nodes": nodes, "join": phase, "restarts": [phase, phase]}))
    sys.exit()
""".replace("STATUS", "{status}") + FAKE_SERVER.partition("\n")[2]

# A musterd, or torch's store. It gives out ranks from 3 down. When a node is gone, it closes the
# connections of the others.
FAKE_HOST = r"""#!{python}
import select, socket
listening = socket.create_server(("127.0.0.1", 0))
print("{name}: listening on 127.0.0.1:%d" % listening.getsockname()[1], flush=True)
links, known = [], []
while True:
    for one in select.select([listening] + links, [], [])[0]:
        if one is listening:
            links.append(one.accept()[0])
        elif one.recv(1) == b"j":
            one.sendall(b"%d" % (3 - len(known)))
            known.append(one)
        else:
            links.remove(one)
            if one in known:
                for other in known:
                    other.close()
                links, known = [], []
                break
"""

# Agent and worker in one process. Without a server, the first agent is the host: it closes the
# connections of the others when one is gone. Then each agent starts a new worker.
FAKE_AGENT = r"""#!{python}
import os, select, socket, sys, time
notes = os.open(os.environ["MUSTER_BENCH_NOTES"], os.O_WRONLY)
port = next(int(word.rpartition(":")[2]) for word in sys.argv if "--rdzv-endpoint" in word)
def main(attempt):
    os.write(notes, b"main 0 %d %d %d\n" % (attempt, os.getpid(), time.monotonic_ns()))
def among_peers():
    if sys.argv[-1] != "peers":
        return []
    one = socket.socket(socket.AF_UNIX)
    one.connect(os.environ["MUSTER_BENCH_PEERS"])
    one.sendall(b"%d\n" % os.getpid())
    return [one]
if "RANK" not in os.environ:
    # The bench reads the environment with which a process was started. So this process executes
    # itself once more, with the new variables.
    try:
        meeting, rank = socket.create_server(("127.0.0.1", port)), b"0"
    except OSError:
        meeting = socket.create_connection(("127.0.0.1", port))
        meeting.sendall(b"j")
        rank = meeting.recv(1)
    meeting.set_inheritable(True)
    told = {"RANK": rank.decode(), "MEETING": str(meeting.fileno())}
    if TOLD_PORT is not None:
        told |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(TOLD_PORT)}
    os.execve(sys.argv[0], sys.argv, os.environ | told)
listening, links, known = [], [], set()
meeting = socket.socket(fileno=int(os.environ["MEETING"]))
if meeting.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
    listening = [meeting]
else:
    links = [meeting]
main(0)
workers = among_peers()
while True:
    for one in select.select(listening + links + workers, [], [])[0]:
        if one in listening:
            links.append(one.accept()[0])
        elif one in workers:
            one.close()
            workers = among_peers() if RESTARTS else []
            if RESTARTS:
                main(1)
        elif one.recv(1) == b"j":
            known.add(one)
            one.sendall(b"%d" % len(known))
        else:
            links.remove(one)
            if one not in known and listening:
                continue
            for other in known - {one} if listening else []:
                other.close()
            links = []
            if RESTARTS:
                main(1)
            break
"""


class MusterdTest(WithFakes):
    def test_each_quantity_is_what_the_load_has_found(self):
        self.program("musterd", FAKE_SERVER)
        self.program("torchrun", FAKE_LAUNCHER)
        self.program("musterd_load", FAKE_MUSTERD_LOAD)
        found = programs.find(musterd=self.folder / "musterd", torchrun=self.folder / "torchrun",
                              native_dir=self.folder)
        rows = families.load()["musterd"].measure(context.Bench(found, lambda text: None, quick=True))
        self.assertEqual({row.quantity.name: row.median("muster") for row in rows},
                         {"musterd.resume_s": 0.5, "musterd.keep_alive_cpu_percent": 7.000000000000001,
                          "musterd.transition_p99_ms": 2.0, "musterd.transition_median_ms": 1.0,
                          "musterd.flood_longest_ms": 50.0, "musterd.flood_median_ms": 0.5,
                          "musterd.100.sqlite_join_ratio": 1.5, "musterd.100.sqlite_restart_ratio": 1.2})
        self.assertEqual({row.quantity.name: row.met() for row in rows if row.met() is not None},
                         {"musterd.resume_s": True, "musterd.flood_longest_ms": True,
                          "musterd.100.sqlite_join_ratio": False, "musterd.100.sqlite_restart_ratio": True})


FAKE_MUSTERCTL = r"""#!{python}
import sys, time
print('{"state": "running", "round": 99}', flush=True)
if "--watch" in sys.argv:
    time.sleep(60)
"""

# A Python that plays watchers.py.
FAKE_WATCHERS = r"""#!{python}
import sys
if {status}:
    sys.exit("no browser" if {status} == 1 else {status})
if "--paint" in sys.argv:
    print('{"first_paint_s": 0.2, "nodes_s": 0.7}')
else:
    print("watching", flush=True)
    sys.stdin.read()
"""


class WatchedTest(WithFakes):
    def measured(self, status=0):
        self.program("musterd", FAKE_SERVER)
        self.program("musterctl", FAKE_MUSTERCTL)
        self.program("torchrun", FAKE_LAUNCHER)
        self.program("python3", FAKE_WATCHERS.replace("{status}", str(status)))
        self.program("musterd_load", FAKE_MUSTERD_LOAD)
        found = programs.find(musterd=self.folder / "musterd", torchrun=self.folder / "torchrun",
                              native_dir=self.folder)
        return families.load()["watched"].measure(context.Bench(found, lambda text: None, quick=True))

    def test_the_watched_and_the_unwatched_are_side_by_side(self):
        rows = {row.quantity.name: row for row in self.measured()}
        self.assertEqual({name: row.median("muster") for name, row in rows.items()},
                         {"watched.256.join_s": 1.0, "watched.256.restart_s": 9.0,
                          "watched.256.first_paint_s": 0.2, "watched.256.nodes_shown_s": 0.7})
        self.assertEqual(rows["watched.256.join_s"].median("limit"), 1.0)
        self.assertTrue(rows["watched.256.join_s"].met())
        self.assertTrue(rows["watched.256.first_paint_s"].met())

    def test_without_a_browser_nothing_is_measured(self):
        row = self.measured(status=77)[0]
        self.assertEqual((row.median("muster"), row.median("limit")), (None, 1.0))
        self.assertIn("cannot", row.why["muster"])

    def test_a_browser_that_fails_is_no_measurement(self):
        self.assertIn("no browser", self.measured(status=1)[0].why["muster"])


class RendezvousTest(WithFakes):
    def measured(self, torch_status=0):
        """Returns name -> Row, for the whole family with fake servers and fake nodes."""
        for name in ("musterd", "bare_epoll_server"):
            self.program(name, FAKE_SERVER)
        self.program("torchrun", FAKE_LAUNCHER)
        self.program("python3", FAKE_TORCH.replace("{status}", str(torch_status)))
        self.program("rendezvous_load", FAKE_NODES)
        found = programs.find(musterd=self.folder / "musterd", torchrun=self.folder / "torchrun",
                              native_dir=self.folder)
        rendezvous = families.load()["rendezvous"]
        with unittest.mock.patch.multiple(rendezvous, QUICK_NODES=(8, 4096),
                                          QUICK_TORCH_NODES=(8,)):
            rows = rendezvous.measure(
                context.Bench(found, lambda text: None, quick=True, repetitions=1))
        return {row.quantity.name: row for row in rows}

    def test_each_contestant_has_its_column(self):
        found = self.measured()
        self.assertEqual(found["rendezvous.8.join_s"].medians(),
                         {"muster": 1.0, "peer": 3.0, "limit": 0.5})
        # Only the last restart counts.
        self.assertEqual(found["rendezvous.8.restart_s"].median("muster"), 0.5)
        self.assertEqual(found["rendezvous.8.torch_join_s"].medians(),
                         {"muster": 3.0, "peer": 3.0, "limit": None})
        self.assertEqual(found["rendezvous.8.torch_tries_per_node"].median("muster"), 4.0)
        # Messages whose number depends on the time do not count.
        self.assertEqual(found["rendezvous.4096.messages_per_node"].median("muster"), 20.0)
        self.assertEqual(found["rendezvous.4096.kb_per_node"].median("muster"), 2.8)
        self.assertAlmostEqual(found["rendezvous.4096.cpu_us_per_node"].median("muster"), 2.0)
        self.assertTrue(found["rendezvous.4096.host_mb"].met())
        # The bench does not start 4,096 processes with torch.
        self.assertRegex(found["rendezvous.4096.join_s"].why["peer"], "^not tried")
        self.assertNotIn("rendezvous.4096.torch_join_s", found)

    def test_torch_handlers_that_do_not_finish_are_too_slow_and_others_that_fail_have_failed(self):
        for status, start in ((3, "too slow: "), (1, "failed: ")):
            found = self.measured(torch_status=status)
            self.assertTrue(found["rendezvous.8.join_s"].why["peer"].startswith(start))
            self.assertTrue(found["rendezvous.8.torch_join_s"].why["muster"].startswith(start))
            self.assertEqual(found["rendezvous.8.join_s"].median("muster"), 1.0)


class TlsTest(WithFakes):
    def test_tls_stands_beside_plain_and_the_ratio_below(self):
        self.program("musterd", FAKE_SERVER)
        self.program("torchrun", FAKE_LAUNCHER)
        self.program("rendezvous_load", FAKE_NODES)
        found = programs.find(musterd=self.folder / "musterd", torchrun=self.folder / "torchrun",
                              native_dir=self.folder)
        rows = families.load()["tls"].measure(context.Bench(found, lambda text: None, quick=True))
        self.assertEqual({row.quantity.name: tuple(value and round(value, 9) for value in
                                                   (row.median("muster"), row.median("limit"))) for row in rows},
                         {"tls.100.join_s": (3.0, 1.0), "tls.100.join_s_ratio": (3.0, None),
                          "tls.100.restart_s": (1.5, 0.5), "tls.100.restart_s_ratio": (3.0, None),
                          "tls.100.join_cpu_us": (3.0, 1.0), "tls.100.join_cpu_us_ratio": (3.0, None),
                          "tls.100.kb_per_node": (60.0, 20.0), "tls.100.kb_per_node_ratio": (3.0, None)})


class CurveTest(unittest.TestCase):
    def row(self, name, **samples):
        return model.Row(model.Quantity(name, "s", "what it is"), samples)

    def test_every_series_with_two_points_is_a_line_and_what_is_not_measured_is_not_drawn(self):
        rows = [self.row("rendezvous.8.join_s", muster=[0.001], peer=[1.0], limit=[0.0005]),
                self.row("rendezvous.64.join_s", muster=[0.01], peer=[2.0]),
                self.row("rendezvous.4096.join_s", muster=[0.7]),
                self.row("start.2.first_ms", muster=[3.0])]
        picture = xml.etree.ElementTree.fromstring(curve.draw(rows))
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(picture.findall(space + "circle")), 3 + 2)
        words = [one.text for one in picture.findall(space + "text")]
        self.assertIn("muster: join", words)
        self.assertIn("torchrun: join", words)
        self.assertNotIn("limit: connects, a message each way", words)
        heights = [float(one.get("cy")) for one in picture.findall(space + "circle")]
        self.assertTrue(all(0 < y < curve.HEIGHT for y in heights), heights)

    def test_more_seconds_are_higher_and_more_nodes_are_further_right(self):
        axes = curve.Axes([[(8, 0.002), (4096, 30.0)]])
        self.assertLess(axes.y(10), axes.y(1))
        self.assertAlmostEqual(axes.y(1) - axes.y(10), axes.y(0.1) - axes.y(1))
        self.assertLess(axes.x(8), axes.x(64))

    def test_without_a_rendezvous_there_is_no_picture(self):
        self.assertIsNone(curve.draw([self.row("start.2.first_ms", muster=[3.0])]))


class RecoveryTest(WithFakes):
    def measured(self, *names, torchrun_restarts=True, torch_store=None, limit_s=60):
        """Returns name -> Row, for the given names or for all. `torch_store` is the port of the
        store that torchrun gives to its workers."""
        for name, restarts, store in (("muster", True, None),
                                      ("torchrun", torchrun_restarts, torch_store)):
            self.program(name, FAKE_AGENT.replace("RESTARTS", str(restarts))
                         .replace("TOLD_PORT", str(store)))
        for name in ("musterd", "python3"):
            self.program(name, FAKE_HOST)
        self.program("note_time", FAKE_SERVER)
        found = programs.find(muster=self.folder / "muster", torchrun=self.folder / "torchrun",
                              native_dir=self.folder)
        recovery = families.load()["recovery"]
        # The fake agents have no lease, so a silent node is never lost.
        known = [one for one in recovery.MEASURED if one.happens is not recovery.vanish
                 and (not names or one.quantity.name in names)]
        with unittest.mock.patch.multiple(recovery, QUICK_LIMIT_S=limit_s, MEASURED=known):
            rows = recovery.measure(
                context.Bench(found, lambda text: None, quick=True, repetitions=1))
        return {row.quantity.name: row for row in rows}

    def test_an_agent_a_node_and_a_worker_go_and_the_others_come_back(self):
        found = self.measured()
        self.assertEqual(list(found), [
            "recovery.kill_agent_s", "recovery.kill_node_s", "recovery.worker_failure_s",
            "recovery.musterd.kill_rank0_s", "recovery.musterd.kill_node_s"])
        for name, row in found.items():
            self.assertEqual(row.why, {}, name)
            self.assertGreater(row.median(model.MUSTER), 0)
            self.assertGreater(row.median(model.PEER), 0)

    def test_workers_that_are_not_started_again_are_too_slow_and_no_failure(self):
        names = ["recovery.kill_agent_s", "recovery.musterd.kill_node_s"]
        found = self.measured(*names, torchrun_restarts=False, limit_s=2)
        self.assertEqual(list(found), names)
        for row in found.values():
            self.assertRegex(row.why[model.PEER], "^too slow: .*not started again")

    def test_workers_that_are_sent_to_a_store_that_is_gone_do_not_count(self):
        # The store is at the port of the rendezvous: something listens there, but the workers got
        # this store already before rank 0 was lost.
        found = self.measured(torch_store="port")
        reason = found["recovery.musterd.kill_rank0_s"].why[model.PEER]
        self.assertRegex(reason, "^cannot: .*the store of the node that is gone")
        for name, row in found.items():
            if name != "recovery.musterd.kill_rank0_s":
                self.assertGreater(row.median(model.PEER), 0, name)

    def test_workers_that_are_sent_to_a_store_that_never_listens_do_not_count(self):
        listens = families.load()["recovery"].listens
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # No other program can listen on this port now.
            port = bound.getsockname()[1]

            def listens_briefly(place, until_s):
                # Only the wait for this store is short. The workers have the usual limit.
                return listens(place, time.monotonic() + 1 if place[1] == port else until_s)
            with unittest.mock.patch.object(families.load()["recovery"], "listens", listens_briefly):
                found = self.measured("recovery.kill_agent_s", torch_store=port)
        reason = found["recovery.kill_agent_s"].why[model.PEER]
        self.assertRegex(reason, "^too slow: .*nothing listened at the MASTER_ADDR")


class PeersTest(unittest.TestCase):
    def connected(self, group, pid):
        one = socket.socket(socket.AF_UNIX)
        self.addCleanup(one.close)
        one.settimeout(60)
        one.connect(group.path)
        one.sendall(b"%d\n" % pid)
        self.assertTrue(group.wait_for([pid], 60))
        return one

    def test_when_one_goes_the_others_notice_and_new_ones_do_not(self):
        with peers.Peers() as group:
            first, second = self.connected(group, 1), self.connected(group, 2)
            first.close()
            self.assertEqual(second.recv(1), b"")
            third, fourth = self.connected(group, 3), self.connected(group, 4)
            group.fail(3)
            self.assertEqual(third.recv(1), b"f")
            third.close()
            self.assertEqual(fourth.recv(1), b"")

    def test_a_peer_that_ends_before_it_names_itself_does_not_disturb_others(self):
        with peers.Peers() as group:
            other = self.connected(group, 1)
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(group.path)
            self.connected(group, 2)
            self.assertTrue(group.is_connected(1))
            other.sendall(b"x")  # The connection is still open.
            self.assertFalse(group.is_connected(3))

    def test_one_that_was_killed_is_gone(self):
        with peers.Peers() as group:
            other = self.connected(group, 1)
            pid = os.fork()
            if pid == 0:
                one = socket.socket(socket.AF_UNIX)
                one.connect(group.path)
                one.sendall(b"%d\n" % os.getpid())
                signal.pause()
            self.assertTrue(group.wait_for([pid], 60))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.assertEqual(other.recv(1), b"")
