#!/usr/bin/env python3
"""Tests two musterds that share a real etcd: one leads, and no worker notices when another one
becomes the leader."""
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading

from etcd_cluster import EtcdCluster, have_etcd, text_of
from musterd import MUSTERD, run_musterd
from native_peer import OtherNode
from nodes import NodesTest
from ports import free_port
from support import PATIENCE_S, main, wait_for

LEASE_S = 6  # On a busy machine etcd takes a second to answer.
SHORT_LEASE_S = 3


class SharedTest(NodesTest):
    """The musterds are x and y."""
    run_id = "job"

    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdCluster(3)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.close()

    def setUp(self):
        super().setUp()
        self.prefix = f"/test/{self.id().rpartition('.')[2]}"
        self.ports = {"x": free_port(), "y": free_port()}
        self.musterds = {}

    def endpoint(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def address(self):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.etcd.clients) + self.prefix

    def musterd(self, name, *options, lease=LEASE_S, env=None):
        self.musterds[name] = run_musterd(
            self, f"--state={self.address()}", f"--leader-lease-seconds={lease}", *options, port=self.ports[name],
            log=self.dir / f"err.musterd.{name}", append=True, env=self.environment(**(env or {})), ready=None)
        return self.musterds[name]

    def musterd_says(self, name, text, times=1):
        try:
            wait_for(lambda: self.read(f"err.musterd.{name}").count(text) >= times, f"musterd {name}: {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None

    def all_output(self):
        return super().all_output() + "".join(
            f"\nmusterd {name}:\n{self.read(f'err.musterd.{name}')}" for name in self.musterds)

    def pair(self, *options):
        """Starts x, which leads, and y, which stands by."""
        self.musterd("x", *options)
        self.musterd_says("x", "listening on")
        self.musterd("y", *options)
        self.musterd_says("y", "leads")

    def job(self):
        self.pair()
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=3", "--rdzv-conf=last_call_timeout=3", env={"LOGLEVEL": "INFO"})
        self.round_of(2)

    def nodes_are_back(self, times=1):
        for tag in "ab":
            try:
                wait_for(lambda tag=tag: self.read(f"err.{tag}").count("is back: round") >= times, f"{tag} to be back")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.all_output()}") from None

    def fails_once(self, starts, restarts):
        """A worker fails. The new leader must continue the count of restarts of the first leader."""
        self.assertEqual(len(self.starts()), starts, self.all_output())
        self.tell("exit.a", "7")
        again = self.round_of(2, after=starts)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {str(restarts)})

    def finishes(self):
        self.tell("finish")
        self.ends(a=0, b=0)

    def listens(self, name):
        try:
            socket.create_connection(("127.0.0.1", self.ports[name]), 5).close()
            return True
        except OSError:
            return False


class Musterds(SharedTest):
    def test_the_leader_is_killed(self):
        self.job()
        self.fails_once(2, 1)
        self.musterds["x"].kill()
        self.musterd_says("y", "listening on")
        self.musterd_says("y", "runs_restored runs=1")
        self.nodes_are_back()
        self.fails_once(4, 2)
        self.musterd("x")
        self.musterd_says("x", "standing_by")
        # y gives its lease back, so x does not have to wait.
        self.musterds["y"].send_signal(signal.SIGTERM)
        self.assertEqual(self.musterds["y"].wait(PATIENCE_S), 0)
        self.nodes_are_back(2)
        self.assertEqual(len(self.starts()), 6, self.all_output())
        self.finishes()
        ended = [json.loads(value) for key, value in self.etcd.keys(self.prefix + "/").items() if "/ended/" in key]
        self.assertEqual([(run["run_id"], run["restarts"]) for run in ended], [("job", 2)])

    def test_the_next_leader_knows_the_nodes_that_are_kept_out(self):
        ports = {name: free_port() for name in "xy"}
        self.musterd("x", f"--http={ports['x']}")
        self.musterd_says("x", "listening on")
        self.musterd("y", f"--http={ports['y']}")
        self.musterd_says("y", "leads")
        self.node("a", 2)
        self.musterd_says("x", "node_joined run=job")

        def ask(name, target, method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", ports[name], timeout=PATIENCE_S)
            self.addCleanup(connection.close)
            connection.request(method, f"/api/v1/runs/job{target}", headers={"X-Muster-Action": "1"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

        # From here on, the change is durable.
        self.assertEqual(ask("x", "/nodes/10.0.0.9/exclude", "POST")[0], 200)
        self.musterds["x"].kill()
        self.musterd_says("y", "listening on")
        self.assertEqual(ask("y", "")[1]["kept_out"], [{"node": "10.0.0.9", "how": "excluded"}])

    def test_monitors_see_the_leader(self):
        """A load balancer finds the leader by /readyz, and Prometheus scrapes all musterds."""
        ports = {name: free_port() for name in "xy"}

        def ask(name, target, method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", ports[name], timeout=PATIENCE_S)
            self.addCleanup(connection.close)
            connection.request(method, target, headers={"X-Muster-Action": "1"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

        def leads(name):
            return f"muster_etcd_leader {int(self.leader == name)}\n" in ask(name, "/metrics")[1]

        def y_is_ready():
            return ask("y", "/readyz")[0] == 200 and leads("y")

        self.leader = "x"
        self.musterd("x", f"--http={ports['x']}")
        self.musterd_says("x", "listening on")
        self.musterd("y", f"--http={ports['y']}")
        self.musterd_says("y", "leads")
        self.assertEqual([ask(name, "/healthz")[0] for name in "xy"], [200, 200])
        self.assertEqual([ask(name, "/readyz")[0] for name in "xy"], [200, 503])
        self.assertTrue(leads("x") and leads("y"))
        status, text = ask("y", "/readyz")
        self.assertEqual(json.loads(text)["error"]["code"], "standing_by")
        self.assertNotIn(str(self.musterds["x"].pid), text)  # Any client may read this text.
        for method, target, wanted in (("GET", "/api/v1/runs", 503), ("GET", "/api/v1/runs/job", 503),
                                       ("GET", "/api/v1/events", 503), ("POST", "/api/v1/runs/job/stop", 409),
                                       ("GET", "/api/v1/runs/job/ranks/0/log", 409)):
            status, text = ask("y", target, method)
            self.assertEqual(status, wanted, text)
            self.assertIn(f"(pid {self.musterds['x'].pid}) leads. Ask the one that leads",
                          json.loads(text)["error"]["message"])
        self.assertIn("<title>", ask("y", "/")[1])

        self.musterds["x"].send_signal(signal.SIGTERM)
        self.assertEqual(self.musterds["x"].wait(PATIENCE_S), 0)
        self.musterd_says("y", "listening on")
        self.leader = "y"
        wait_for(y_is_ready, "y to be ready")  # A view may be a quarter of a second old.
        # A musterd that has lost the leadership starts again from the beginning, and says so.
        self.etcd.delete(self.prefix + "/leader")
        self.musterd_says("y", "its key was deleted")
        self.musterd_says("y", "listening on", 2)
        wait_for(y_is_ready, "y to be ready again")
        self.musterds["y"].send_signal(signal.SIGTERM)
        self.assertEqual(self.musterds["y"].wait(PATIENCE_S), 0)

    def test_a_musterd_that_stands_by_ends_when_told_to(self):
        port = free_port()
        self.musterd("x")
        self.musterd_says("x", "listening on")
        self.musterd("y", f"--http={port}")
        self.musterd_says("y", "HTTP at")
        self.musterd_says("y", "leads")
        self.musterds["y"].send_signal(signal.SIGTERM)
        self.assertEqual(self.musterds["y"].wait(PATIENCE_S), 0)

    def test_a_suspended_leader_acknowledges_nothing(self):
        self.job()
        # A torchrun client, which is connected and has been served.
        peer = OtherNode(self.ports["x"])
        self.addCleanup(peer.close)
        self.musterds["x"].send_signal(signal.SIGSTOP)
        # Two requests wait in the kernel for musterd, one of them on a connection that is not
        # accepted yet.
        peer.connection.sendall(b"\x0d" + b"late")
        fresh = socket.create_connection(("127.0.0.1", self.ports["x"]), PATIENCE_S)
        self.addCleanup(fresh.close)
        fresh.sendall(b"\x00\xce\xf7\x85\x3c" + b"\x0d" + b"late")
        self.musterd_says("y", "listening on")
        self.nodes_are_back()
        self.fails_once(2, 1)
        self.musterds["x"].send_signal(signal.SIGCONT)
        self.musterd_says("x", "leadership_lost")
        for connection in (peer.connection, fresh):
            connection.settimeout(PATIENCE_S)
            try:
                self.assertEqual(connection.recv(64), b"")
            except ConnectionResetError:
                pass
        self.musterd_says("x", "standing_by")
        self.assertIsNone(self.musterds["x"].poll())  # The process is the same.
        self.assertFalse(self.listens("x"))
        self.assertEqual(len(self.starts()), 4, self.all_output())
        self.finishes()

    def test_a_leader_that_is_told_to_end_while_it_is_suspended_ends(self):
        self.job()
        self.musterds["x"].send_signal(signal.SIGSTOP)
        self.musterd_says("y", "listening on")
        self.musterds["x"].send_signal(signal.SIGTERM)
        self.musterds["x"].send_signal(signal.SIGCONT)
        self.assertEqual(self.musterds["x"].wait(PATIENCE_S), 0, self.all_output())
        self.nodes_are_back()
        self.finishes()

    def test_a_suspended_leader_beside_a_service_manager_stands_by(self):
        """The first client's event stops the server. The status for the service manager is due before the loop knows
        why."""
        self.notify_socket()
        self.musterd("x", lease=SHORT_LEASE_S,
                     env={"NOTIFY_SOCKET": str(self.dir / "notify"), "WATCHDOG_USEC": "400000"})
        for times in (1, 2, 3):
            self.musterd_says("x", "listening on", times)
            peer = OtherNode(self.ports["x"])
            self.addCleanup(peer.close)
            self.musterds["x"].send_signal(signal.SIGSTOP)
            peer.connection.sendall(b"\x0d" + b"late")
            wait_for(lambda: self.etcd.entry(self.prefix + "/leader") is None, "the end of the lease")
            self.musterds["x"].send_signal(signal.SIGCONT)
            self.assertTrue(peer.is_closed())
            wait_for(lambda times=times: self.read("err.musterd.x").count("leadership_lost") >= times or
                     self.musterds["x"].poll() is not None, "the end of the leadership")
            self.assertIsNone(self.musterds["x"].poll(), self.all_output())

    def notify_socket(self):
        """A service manager that reads all messages."""
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        told.bind(str(self.dir / "notify"))

        def read():
            while told.recv(4096):
                pass
        reader = threading.Thread(target=read)
        reader.start()
        self.addCleanup(told.close)
        self.addCleanup(reader.join)
        self.addCleanup(told.shutdown, socket.SHUT_RD)

    def test_a_deleted_key_ends_the_leadership(self):
        self.musterd("x")
        self.musterd_says("x", "listening on")
        self.etcd.delete(self.prefix + "/leader")
        self.musterd_says("x", "its key was deleted")
        self.musterd_says("x", "listening on", 2)

    def test_a_standby_tells_the_service_manager_that_it_stands_by(self):
        self.musterd("x")
        self.musterd_says("x", "listening on")
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(told.close)
        told.bind(str(self.dir / "notify"))
        told.settimeout(PATIENCE_S)
        self.musterd("y", env={"NOTIFY_SOCKET": str(self.dir / "notify"), "WATCHDOG_USEC": "400000"})
        message = told.recv(4096).decode()
        self.assertIn("READY=1", message)
        self.assertIn("standing by", message)
        while f"(pid {self.musterds['x'].pid}) leads" not in message:
            message = told.recv(4096).decode()
        self.musterds["x"].kill()
        while "STATUS=listening on" not in message:
            message = told.recv(4096).decode()

    def test_records_that_cannot_be_read(self):
        self.etcd.put(self.prefix + "/format", "2")
        self.assertEqual(self.musterd("x").wait(PATIENCE_S), 1)
        self.musterd_says("x", "a newer muster has written it")
        self.assertEqual(self.etcd.keys(self.prefix + "/"), {self.prefix + "/format": "2"})

    def test_wrong_values_of_state_are_refused(self):
        for options, said in ((("--state=etcds://h/p",), "TLS"), (("--state=etcd://u:p@h/p",), "password"),
                              (("--state=/var/lib",), "etcd://HOST"),
                              (("--state=etcd://h/p", "--state-dir=/tmp"), "leave one of them out"),
                              (("--leader-lease-seconds=5",), "is for etcd; give --state, too")):
            done = subprocess.run([MUSTERD, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(said, done.stderr)

    def test_nodes_of_no_run_are_removed(self):
        """What an end of the records leaves behind that was interrupted. A later run of that name must not get them."""
        member = {"name": {"addr": "10.0.0.1", "pid": 1, "local_id": 0}, "standing": "member", "native": True,
                  "local_world_size": 1, "role": "default", "spare": False, "hosts_rendezvous": False}
        self.etcd.put(self.prefix + "/member/job/10.0.0.1_1_0", json.dumps(member))
        self.musterd("x")
        self.musterd_says("x", "listening on")
        self.assertEqual(self.etcd.keys(self.prefix + "/member/"), {})

    def test_more_changes_than_a_transaction_takes(self):
        count = 150
        self.pair("--lease-seconds=600")  # These nodes send nothing more after they have joined.
        settings = {"min_nodes": count, "max_nodes": count, "max_restarts": 2, "scale_policy": "now",
                    "join_timeout_ns": 600000000000, "last_call_timeout_ns": 30000000000}
        for number in range(count):
            node = OtherNode(self.ports["x"])
            self.addCleanup(node.close)
            node.tell({"type": "hello", "protocol_version": 1, "muster_version": "1", "run_id": "job", "resumes": True})
            self.assertEqual(node.next()["type"], "welcome")
            node.tell({"type": "join", "name": {"addr": f"10.0.0.{number}", "pid": 1, "local_id": 0},
                       "instance": f"i{number}", "role": "default", "local_world_size": 1, "run": settings,
                       "protocol_version": 1, "muster_version": "1", "last_round": -1, "spare": False,
                       "hosts_rendezvous": False})
        members = self.prefix + "/member/"
        wait_for(lambda: len(self.etcd.keys(members)) == count, "the records of all nodes")
        wait_for(lambda: not self.etcd.keys(self.prefix + "/journal/"), "the end of the journal")
        self.musterds["x"].kill()
        self.musterd_says("y", "runs_restored runs=1")
        self.assertEqual(list(self.etcd.keys(self.prefix + "/run/")), [self.prefix + "/run/job"])

    def journal(self, committed):
        """Leaves the keys of a leader that died while it wrote its journal or, with `committed`,
        after that."""
        ended = json.dumps({"run_id": "old", "ended_at": 5, "rounds": 1, "generation": 3, "nodes": 2, "restarts": 0,
                            "outcome": {"succeeded": True, "why": ""}})
        self.key = self.prefix + "/ended/" + "0" * 19 + "7"
        piece = [{"request_put": {"key": text_of(self.key), "value": text_of(ended)}}]
        self.etcd.put(self.prefix + "/journal/" + "0" * 20, json.dumps(piece))
        if committed:
            self.etcd.put(self.prefix + "/journal/commit", "1")
        self.musterd("x")
        self.musterd_says("x", "listening on")
        self.assertEqual(self.etcd.keys(self.prefix + "/journal/"), {})

    def test_a_committed_journal_is_finished(self):
        self.journal(committed=True)
        self.assertIn(self.key, self.etcd.keys(self.prefix + "/"))

    def test_half_a_journal_is_dropped(self):
        self.journal(committed=False)
        self.assertNotIn(self.key, self.etcd.keys(self.prefix + "/"))


class Full(SharedTest):
    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdCluster(1, quota_bytes=2_000_000)

    def test_a_full_etcd(self):
        self.musterd("x")
        self.musterd_says("x", "listening on")
        self.node("a", 1)
        self.round_of(1)
        self.etcd.fill("/filler/")
        self.tell("exit.a", "7")  # etcd cannot record this.
        self.musterd_says("x", "database space exceeded")
        self.musterd_says("x", "leadership_lost")
        self.musterd_says("x", "standing_by")
        self.assertFalse(self.listens("x"))
        self.assertIsNone(self.nodes["a"].poll(), self.all_output())
        self.etcd.empty("/filler/")
        self.musterd_says("x", "listening on", 2)
        self.ends(a=1)


class Long(SharedTest):
    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdCluster(1, quota_bytes=1 << 28)

    def test_a_history_that_does_not_fit_one_answer(self):
        """A reason may have 16 KiB. If these are control characters, JSON and base64 make 130 KB of them. An answer has at
        most 4 MiB."""
        outcome = {"succeeded": False, "why": "\1" * (16 << 10)}
        for number in range(100):
            record = {"run_id": f"old{number}", "ended_at": number, "rounds": 1, "generation": 3, "nodes": 2,
                      "restarts": 0, "outcome": outcome}
            self.etcd.put(f"{self.prefix}/ended/{number:020}", json.dumps(record))
        self.musterd("x")
        self.musterd_says("x", "listening on")
        self.assertEqual(len(self.etcd.keys(self.prefix + "/ended/")), 100)


class Members(SharedTest):
    def test_one_of_three_members_is_killed(self):
        self.job()
        killed = self.etcd.leader()
        self.etcd.kill(killed)
        self.fails_once(2, 1)
        self.etcd.start(killed)
        self.etcd.wait_healthy()
        self.fails_once(4, 2)
        self.finishes()

    def test_two_of_three_members_are_killed(self):
        self.job()
        for number in (0, 1):
            self.etcd.kill(number)
        self.tell("exit.a", "7")
        self.worker_ended("a")
        self.musterd_says("x", "leadership_lost")
        self.musterd_says("x", "etcd cannot be asked who leads")
        self.assertFalse(self.listens("x") or self.listens("y"))
        # Without etcd there is no new round.
        self.assertEqual(len(self.starts()), 2, self.all_output())
        for number in (0, 1):
            self.etcd.start(number)
        self.etcd.wait_healthy()
        again = self.round_of(2, after=2)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"1"})
        self.finishes()


if __name__ == "__main__":
    if not have_etcd():
        print("skipped: etcd is not installed (Debian: etcd-server)")
        sys.exit(77)
    main()
