#!/usr/bin/env python3
"""Tests agents that elect their host through a real etcd: --rdzv-backend=etcd, without musterd."""
import os
import signal
import subprocess
import time
import sys

from etcd_cluster import EtcdCluster, have_etcd
from nodes import NodesTest
from certificates import Authority
from ports import free_port
from support import MUSTER, PATIENCE_S, agent_of, main, wait_for

LEASE_S = 6  # On a busy machine etcd takes a second to answer.


class EtcdTest(NodesTest):
    backend = "etcd"
    lease_s = 5

    @classmethod
    def setUpClass(cls):
        cls.etcd = EtcdCluster(3)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.close()

    def setUp(self):
        super().setUp()
        text = self.worker.read_text()
        self.assertIn('"ROLE_RANK"', text)
        more = '"ROLE_RANK", "MUSTER_GENERATION", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"'
        self.worker.write_text(text.replace('"ROLE_RANK"', more, 1))
        self.prefix = f"/test/{self.id().rpartition('.')[2]}"

    def endpoint(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.etcd.clients)

    def node(self, tag, nnodes, *extra, **more):
        # The first round waits for --nnodes' maximum. A later one does not have to wait for nodes that are lost.
        conf = f"--rdzv-conf=etcd_prefix={self.prefix},host_lease={LEASE_S},last_call_timeout=600,lease={self.lease_s}"
        return super().node(tag, nnodes, conf, "--max-restarts=3", *extra, env={"LOGLEVEL": "INFO"}, **more)

    def says(self, tag, text, times=1):
        try:
            wait_for(lambda: self.read(f"err.{tag}").count(text) >= times, f"{tag}: {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None

    def first(self, tag, nnodes, *extra):
        """Starts the node that hosts, because it is the only one so far."""
        self.node(tag, nnodes, *extra)
        self.says(tag, "rendezvous_hosted")

    def fails_once(self, tag, world, starts, restarts):
        """A worker fails. The new host must continue the count of restarts of the first host."""
        self.assertEqual(len(self.starts()), starts, self.all_output())
        before = {e["MUSTER_GENERATION"] for e in self.starts()}
        self.tell(f"exit.{tag}", "7")
        again = self.round_of(world, after=starts)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {str(restarts)})
        self.assertGreater(min(int(e["MUSTER_GENERATION"]) for e in again), max(map(int, before)))
        return again

    def finishes(self, *tags):
        self.tell("finish")
        self.ends(**dict.fromkeys(tags, 0))

    def lease_left(self, key):
        """Seconds until etcd removes the key."""
        found = self.etcd.entry(key)
        return found and int(self.etcd.must("lease/timetolive", {"ID": found.get("lease", "0")}).get("TTL", "-1"))

    def keys(self):
        return self.etcd.keys(f"{self.prefix}/run_job/")


class Jobs(EtcdTest):
    def test_a_job_from_its_beginning_to_its_end(self):
        self.first("a", 2)
        self.node("b", 2)
        entries = self.round_of(2)
        # As with torchrun's backend of this name, rank 0's worker hosts the store.
        self.assertEqual({e["TORCHELASTIC_USE_AGENT_STORE"] for e in entries}, {"False"})
        self.assertEqual({e["TORCHELASTIC_RUN_ID"] for e in entries}, {"job"})
        self.assertEqual({e["MASTER_ADDR"] for e in entries}, {"127.0.0.1"})
        self.assertGreater(self.lease_left(f"{self.prefix}/run_job/run/job"), 3600)
        self.fails_once("b", 2, starts=2, restarts=1)
        self.finishes("a", "b")
        # The host asks etcd once to remove its key. If etcd is late, the key's lease runs out.
        leader = f"{self.prefix}/run_job/leader"
        wait_for(lambda: leader not in self.keys(), "the end of the host's key")
        # The keys that are left inform nodes that come late; etcd removes them within a minute.
        keys = self.keys()
        self.assertIn(f"{self.prefix}/run_job/run/job", keys)
        for key in keys:
            self.assertLessEqual(self.lease_left(key) or 0, 60, key)

    def test_the_id_of_a_run_that_has_ended_can_be_used_again_at_once(self):
        for tags in ("ab", "cd"):
            self.tell("go")
            self.first(tags[0], 2)
            self.node(tags[1], 2)
            starts = 0 if tags == "ab" else 2
            entries = self.round_of(2, after=starts)
            self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in entries}, {"0"})
            self.finishes(*tags)
            (self.dir / "finish").unlink()

    def test_a_host_that_has_finished_waits_for_the_others(self):
        self.first("a", 2)
        self.node("b", 2)
        self.round_of(2)
        self.tell("finish.a")
        self.node_finished("a")
        self.assertIsNone(self.nodes["a"].poll())
        self.finishes("a", "b")


class Hosts(EtcdTest):
    def test_the_host_and_its_workers_are_killed(self):
        self.first("a", "2:3")
        self.node("b", "2:3")
        self.node("c", "2:3")
        self.round_of(3)
        self.fails_once("b", 3, starts=3, restarts=1)
        os.kill(agent_of(self.nodes["a"].pid), signal.SIGKILL)
        again = self.round_of(2, after=6, nodes="bc")
        # A lost node does not count as a restart.
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"1"})
        self.assertEqual(sum("rendezvous_hosted" in self.read(f"err.{tag}") for tag in "bc"), 1, self.all_output())
        self.fails_once("c", 2, starts=8, restarts=2)
        self.finishes("b", "c")

    def test_the_end_of_a_host_without_workers_restarts_no_worker(self):
        self.backend = "etcd-v2"
        self.first("a", 2, "--spare")
        self.says("a", "etcd's v3 is used")
        self.node("b", 2)
        self.node("c", 2)
        entries = self.round_of(2, nodes="bc")
        self.assertEqual({e["TORCHELASTIC_USE_AGENT_STORE"] for e in entries}, {"True"})
        self.fails_once("b", 2, starts=2, restarts=1)
        self.nodes["a"].kill()
        for tag in "bc":
            self.says(tag, "is back: round")
        self.fails_once("c", 2, starts=4, restarts=2)
        self.assertEqual(sum("rendezvous_hosted" in self.read(f"err.{tag}") for tag in "bc"), 1, self.all_output())
        self.finishes("b", "c")

    def test_the_next_host_shows_a_certificate_of_its_own(self):
        """Each node's certificate is for its own address only, also in the eyes of the node itself."""
        authority = Authority(self.dir)

        def start(tag, number, *more):
            address = f"127.0.0.{number}"
            certificate, key = authority.issue(tag, f"IP:{address}")
            self.node(tag, 2, f"--local-addr={address}", f"--rdzv-tls-ca={self.dir}/ca.pem",
                      f"--rdzv-tls-cert={certificate}", f"--rdzv-tls-key={key}", *more)
        start("a", 2, "--spare")
        self.says("a", "rendezvous_hosted")
        start("b", 3)
        start("c", 4)
        self.round_of(2, nodes="bc")
        self.nodes["a"].kill()
        for tag in "bc":
            self.says(tag, "is back: round")
        self.fails_once("c", 2, starts=2, restarts=1)
        self.finishes("b", "c")

    def test_a_host_that_is_stopped_hands_over(self):
        self.first("a", "1:2")
        self.node("b", "1:2")
        self.round_of(2)
        self.nodes["a"].send_signal(signal.SIGTERM)
        self.round_of(1, after=2, nodes="b")
        self.says("b", "rendezvous_hosted")
        self.nodes["a"].wait(PATIENCE_S)
        self.finishes("b")

    def test_a_suspended_host_acknowledges_nothing(self):
        # Only after this time does a node count as cut off. Before that, etcd names the next host.
        self.lease_s = 30
        self.first("a", 2, "--spare")
        self.node("b", 2)
        self.node("c", 2)
        self.round_of(2, nodes="bc")
        agent = agent_of(self.nodes["a"].pid)
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists(f"/proc/{agent}") and os.kill(agent, signal.SIGCONT))
        wait_for(lambda: any("rendezvous_hosted" in self.read(f"err.{tag}") for tag in "bc"), "the next host")
        os.kill(agent, signal.SIGCONT)
        deposed = "does not host the rendezvous any more"
        self.says("a", deposed)
        for tag in "bc":
            self.says(tag, "is back: round")
        wait_for(lambda: "waiting for the other nodes" in self.read("err.a").partition(deposed)[2],
                 "the spare to wait on at the next host")
        self.finishes("b", "c")
        self.ends(a=0)

    def test_all_agents_are_killed_and_started_again(self):
        self.first("a", 2)
        self.node("b", 2)
        self.round_of(2)
        for tag in "ab":
            self.nodes[tag].kill()
        for tag in "ab":
            self.nodes[tag].wait()
        for tag in "cd":
            self.node(tag, 2)
        self.round_of(2, after=2, nodes="cd")
        self.finishes("c", "d")


class Etcds(EtcdTest):
    def test_two_of_three_members_are_killed_and_the_workers_train_on(self):
        self.first("a", 2, "--spare")
        self.node("b", 2)
        self.node("c", 2)
        self.round_of(2, nodes="bc")
        for number in (0, 1):
            self.etcd.kill(number)
        self.says("a", "does not host the rendezvous any more")
        for tag in "bc":
            self.says(tag, "the workers go on")
        self.assertEqual(len(self.starts()), 2, self.all_output())
        for number in (0, 1):
            self.etcd.start(number)
        self.etcd.wait_healthy()
        for tag in "bc":
            self.says(tag, "is back: round")
        self.fails_once("b", 2, starts=2, restarts=1)
        self.finishes("b", "c")

    def outlives_an_outage(self, waits):
        """etcd is away for longer than a lease. The workers of all nodes train on, also those of the host."""
        self.first("a", 2)
        self.node("b", 2)
        self.round_of(2)
        for number in (0, 1):
            self.etcd.kill(number)
        self.says("a", "does not host the rendezvous any more")
        waits()
        for number in (0, 1):
            self.etcd.start(number)
        self.etcd.wait_healthy()
        for tag in "ab":
            self.says(tag, "is back: round")
            self.assertNotIn("is cut off", self.read(f"err.{tag}"))
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.finishes("a", "b")

    def test_an_outage_while_the_nodes_reach_each_other(self):
        self.backend = "etcd-v2"
        self.outlives_an_outage(lambda: [self.says(tag, "reach each other: training goes on") for tag in "ab"])

    def test_an_outage_where_the_nodes_cannot_ask_each_other(self):
        self.outlives_an_outage(lambda: time.sleep(self.lease_s + 3))

    def refused(self, *said, conf="read_timeout=2", endpoint=None):
        done = subprocess.run(
            [MUSTER, "--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=job",
             f"--rdzv-endpoint={endpoint or self.endpoint()}", f"--rdzv-conf=etcd_prefix={self.prefix},{conf}",
             "--no-python", "true"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=self.environment())
        self.assertEqual(done.returncode, 1, done)
        for text in said:
            self.assertIn(text, done.stderr)

    def test_an_etcd_that_is_not_there(self):
        port = free_port()
        self.refused(f"cannot meet the other nodes through etcd 127.0.0.1:{port}", "Connection refused",
                     "tried for 2 s", endpoint=f"127.0.0.1:{port}")

    def test_keys_that_are_not_muster_s(self):
        self.etcd.put(f"{self.prefix}/run_job/format", "2")
        self.refused("a newer muster has written it")
        self.etcd.delete(f"{self.prefix}/run_job/format")
        self.etcd.put(f"{self.prefix}/run_job/leader", "x (pid 1)")
        self.refused("was not written by a muster agent")


if __name__ == "__main__":
    if not have_etcd():
        print("skipped: etcd is not installed (Debian: etcd-server)")
        sys.exit(77)
    main()
