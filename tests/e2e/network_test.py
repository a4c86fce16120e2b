#!/usr/bin/env python3
"""Tests jobs over several hosts: network namespaces with their own addresses and names, without
DNS, and with links that fail."""
import os
import signal
import subprocess
import time

import lan
from mixed import LONG_LEASE_S, SHORT_LEASE_S
from musterd import run_musterd
from nodes import REACH, TORCH_PYTHON, NodesTest
from support import MUSTER, PATIENCE_S, wait_for

# How long a cable is unplugged. Before it is back, the other nodes must have continued with the
# job.
OUTAGE_S = 20.0


class NetworkTest(NodesTest):
    """A node's tag is the name of its host."""
    meeting_point = None
    lease_s = LONG_LEASE_S

    def setUp(self):
        super().setUp()
        self.worker.write_text(REACH + self.worker.read_text())
        self.launchers = {}
        self.net = lan.Net(self.dir)
        self.addCleanup(self.net.close)
        self.net.wire("wire")

    def host(self, name, *addresses, hosts=""):
        """Adds a host to the wire. It knows only the names in `hosts` (lines of /etc/hosts)."""
        path = self.dir / f"hosts.{name}"
        path.write_text("127.0.0.1 localhost\n::1 localhost\n" + hosts)
        self.net.host(name, path)
        if addresses:
            self.net.connect(name, "wire", *addresses)
        self.launchers[name] = [*self.net.on(name), os.path.abspath(MUSTER)]

    def hosts(self, names):
        """Adds hosts that have only IPv4 addresses. The nodes meet at the first one."""
        addresses = {}
        for i, name in enumerate(names, 1):
            addresses[name] = f"10.77.0.{i}"
            self.host(name, addresses[name] + "/24")
        self.meeting_point = addresses[names[0]]
        return addresses

    def conf(self, more=""):
        return f"--rdzv-conf=lease={self.lease_s},last_call_timeout=600{more}"

    def endpoint(self):
        return f"{self.meeting_point}:{self.port}"

    def musterd_on(self, name, *options):
        return run_musterd(self, f"--lease-seconds={self.lease_s}", *options, bind=None, port=self.port,
                           prefix=self.net.on(name), log=self.dir / "err.musterd", append=True, env=self.environment())

    def output(self, tag):
        return super().output(tag) + ("\nmusterd:\n" + self.read("err.musterd")
                                      if (self.dir / "err.musterd").exists() else "")

    def says(self, tag, text):
        try:
            wait_for(lambda: text in self.read(f"err.{tag}"), f"{tag} to say {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None

    def masters(self, entries):
        return {e["MASTER_ADDR"] for e in entries}


class Meeting(NetworkTest):
    def test_by_ipv4_address(self):
        addresses = self.hosts("abc")
        for tag in "cba":
            self.node(tag, 3, self.conf(), "--nproc-per-node=2")
        workers = self.round_of(6)
        self.assertEqual(workers[0]["node"], "a")  # The host is rank 0.
        self.assertEqual(self.masters(workers), {addresses["a"]})
        self.tell("finish")
        self.ends(a=0, b=0, c=0)
        self.assert_nothing_left()

    def test_with_ipv6_only(self):
        for i, name in enumerate("abc", 1):
            self.host(name, f"fd77::{i}/64")
        self.meeting_point = "[fd77::1]"
        for tag in "cba":
            self.node(tag, 3, self.conf())
        workers = self.round_of(3)
        self.assertEqual(self.masters(workers), {"fd77::1"})
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_with_ipv6_only_when_the_first_rank_is_not_the_host(self):
        for i, name in enumerate("ab", 1):
            self.host(name, f"fd77::{i}/64")
        self.meeting_point = "[fd77::1]"
        self.node("a", 2, self.conf(), "--node-rank=1")
        self.node("b", 2, self.conf(), "--node-rank=0")
        self.assertEqual(self.masters(self.round_of(2)), {"fd77::2"})
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_at_a_name_whose_first_address_does_not_work(self):
        # The IPv6 packets get lost at a router: no answer comes back, not even an error.
        names = "fd77::1 rendezvous\n10.77.0.1 rendezvous\n"
        for i, name in enumerate("ab", 1):
            self.host(name, f"10.77.0.{i}/24", f"fd77::{i}/64", hosts=names)
        self.net.swallow("b", "fd77::1")
        self.meeting_point = "rendezvous"
        # This test is not about the workers' addresses.
        self.node("a", 2, self.conf(), "--local-addr=10.77.0.1")
        self.node("b", 2, self.conf())
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def silent_name_servers(self):
        """Makes the name servers of hosts a and b unreachable: look-ups outside of /etc/hosts take
        minutes."""
        self.hosts("ab")
        resolver = self.dir / "resolv.conf"
        resolver.write_text("search example.test\noptions timeout:30 attempts:5\n"
                            "nameserver 10.77.0.53\nnameserver 10.77.0.54\n")
        for tag in "ab":
            self.net.swallow(tag, "10.77.0.53")
            self.net.swallow(tag, "10.77.0.54")
            subprocess.run([*self.net.on(tag), "mount", "--bind", str(resolver), "/etc/resolv.conf"],
                           check=True, timeout=PATIENCE_S)

    def test_where_the_name_server_does_not_answer(self):
        self.silent_name_servers()
        self.node("b", 2, self.conf())
        # The node's look-up of its own name has not been answered.
        self.says("b", "waiting for the rendezvous")
        self.node("a", 2, self.conf())
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_at_a_name_that_no_name_server_answers_for(self):
        self.silent_name_servers()
        self.meeting_point = "rendezvous"
        for tag, conf in (("a", ""), ("b", ",is_host=false")):
            self.node(tag, 2, self.conf(",read_timeout=2" + conf))
        self.ends(a=1, b=1)
        for tag in "ab":
            self.assertIn("no name server has answered in time", self.read(f"err.{tag}"))

    def test_a_signal_while_no_name_server_answers(self):
        self.silent_name_servers()
        self.meeting_point = "rendezvous"
        self.node("a", 2, self.conf())
        self.says("a", "waiting for the rendezvous")
        self.nodes["a"].send_signal(signal.SIGTERM)
        self.ends(a=-signal.SIGTERM)

    def test_at_the_second_interface_of_a_host_whose_name_does_not_resolve_to_it(self):
        self.net.wire("train")
        self.host("head", "10.77.0.1/24", hosts="127.0.1.1 head\n")
        self.net.connect("head", "train", "10.78.0.1/24", device="eth1")
        for i, name in enumerate(("b", "c"), 2):
            self.host(name)
            self.net.connect(name, "train", f"10.78.0.{i}/24")
        self.meeting_point = "10.78.0.1"
        for tag in ("b", "c", "head"):
            self.node(tag, 3, self.conf())
        workers = self.round_of(3)
        self.assertEqual(workers[0]["node"], "head")
        self.assertEqual(self.masters(workers), {"10.78.0.1"})
        self.tell("finish")
        self.ends(head=0, b=0, c=0)

    def name_that_is_loopback_at_home(self, *more, nodes):
        """In the host's own /etc/hosts, its name is a loopback address, as Debian's installer
        writes it."""
        self.host("head", "10.77.0.1/24", hosts="127.0.1.1 head\n")
        self.host("b", "10.77.0.2/24", hosts="10.77.0.1 head\n")
        self.meeting_point = "head"
        for tag, extra in nodes:
            self.node(tag, len(nodes), self.conf(), *extra, *more)
        workers = self.round_of(len(nodes))
        self.tell("finish")
        self.ends(**{tag: 0 for tag, _ in nodes})
        return workers

    def test_at_a_name_that_is_loopback_on_the_host_itself(self):
        workers = self.name_that_is_loopback_at_home(nodes=[("b", []), ("head", [])])
        self.assertEqual(workers[0]["node"], "head")

    def test_the_same_when_the_first_rank_is_elsewhere(self):
        workers = self.name_that_is_loopback_at_home(
            nodes=[("b", ["--node-rank=0"]), ("head", ["--node-rank=1"])])
        self.assertEqual(self.masters(workers), {"10.77.0.2"})

    def test_the_same_when_the_first_rank_is_a_guest_on_the_same_machine(self):
        self.host("head", "10.77.0.1/24", hosts="127.0.1.1 head\n")
        self.host("b", "10.77.0.2/24", hosts="10.77.0.1 head\n")
        self.launchers["guest"] = self.launchers["head"]
        self.meeting_point = "head"
        self.node("head", 3, self.conf(), "--node-rank=1")
        self.says("head", "waiting for")
        self.node("guest", 3, self.conf(), "--node-rank=0")
        self.node("b", 3, self.conf(), "--node-rank=2")
        self.assertEqual([e["node"] for e in self.round_of(3)], ["guest", "head", "b"])
        self.tell("finish")
        self.ends(head=0, guest=0, b=0)

    def test_the_host_may_call_itself_localhost(self):
        self.hosts("ab")
        away, self.meeting_point = self.meeting_point, "localhost"
        self.node("a", 2, self.conf())
        self.meeting_point = away
        self.node("b", 2, self.conf())
        workers = self.round_of(2)
        self.assertEqual(self.masters([e for e in workers if e["node"] == "b"]), {away})
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_torchrun_finds_the_workers_of_a_host_that_calls_itself_localhost(self):
        if not os.access(TORCH_PYTHON, os.X_OK):
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")
        self.host("a", "10.77.0.1/24")
        # torchrun must be able to resolve its own name.
        self.host("t", "10.77.0.2/24", hosts="10.77.0.2 t\n")
        self.launchers["t"] = [*self.net.on("t"), TORCH_PYTHON, "-m", "torch.distributed.run"]
        self.meeting_point = "localhost"
        self.node("a", 2, self.conf(), "--max-restarts=1", env={"PYTHON_EXEC": TORCH_PYTHON})
        self.says("a", "waiting for")
        self.meeting_point = "10.77.0.1"
        self.node("t", 2, self.conf(), "--max-restarts=1")
        self.assertEqual(self.masters(self.round_of(2)), {"10.77.0.1"})
        self.tell("exit.a", "7")
        self.assertEqual(self.masters(self.round_of(2, after=2, nodes="at")), {"10.77.0.1"})
        self.tell("finish")
        self.ends(a=0, t=0)

    def check_round(self, entries):
        # With localhost, each node has its own name for the same store.
        if "localhost" not in self.masters(entries):
            super().check_round(entries)


class Outages(NetworkTest):
    lease_s = SHORT_LEASE_S

    def test_a_cable_that_is_out_for_a_while(self):
        self.hosts("abc")
        for tag in "abc":
            self.node(tag, "2:3", self.conf())
        self.round_of(3)
        begin = time.monotonic()
        self.net.unplug("c")
        self.round_of(2, after=3, nodes="ab")
        # The round must form before the cable is back. The limit covers the lease and a slow
        # machine.
        self.assertLess(time.monotonic() - begin, OUTAGE_S)
        self.says("c", "lost the rendezvous")
        time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - begin)))
        self.assertIsNone(self.nodes["c"].poll(), self.all_output())
        self.net.plug("c")
        again = self.round_of(3, after=5, nodes="abc")
        self.assertEqual(again[0]["node"], "a")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in again}, {"0"})
        self.tell("finish")
        self.ends(a=0, b=0, c=0)
        self.assert_nothing_left()

    def test_a_machine_that_vanishes_and_is_back_with_another_address(self):
        self.hosts("mabc")
        self.musterd_on("m")
        for rank, tag in enumerate("abc"):
            self.node(tag, "2:3", self.conf(), f"--node-rank={rank}")
        first = self.round_of(3)
        self.assertEqual(self.masters(first), {"10.77.0.2"})
        self.net.vanish("a")  # Rank 0, which has the store.
        second = self.round_of(2, after=3, nodes="bc")
        self.assertNotEqual(self.masters(second), {"10.77.0.2"})
        self.host("a", "10.77.0.77/24")
        self.node("a", "2:3", self.conf(), "--node-rank=0")
        third = self.round_of(3, after=5, nodes="abc")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in third}, {"0"})
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_a_machine_that_vanishes_from_a_full_job_is_waited_for(self):
        self.hosts("abc")
        for tag in "abc":
            self.node(tag, 3, self.conf())
        self.round_of(3)
        self.net.vanish("b")
        self.says("a", "waiting for")
        self.host("b", "10.77.0.77/24")
        self.node("b", 3, self.conf())
        self.round_of(3, after=3, nodes="abc")
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def one_way(self, sender, receiver, addresses):
        for tag in "abc":
            self.node(tag, "2:3", self.conf())
        self.round_of(3)
        self.net.swallow(sender, addresses[receiver])
        self.round_of(2, after=3, nodes="ab")
        self.says("c", "lost the rendezvous")
        self.net.swallow_no_more(sender, addresses[receiver])
        self.round_of(3, after=5, nodes="abc")
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_a_node_that_hears_but_is_not_heard(self):
        self.one_way("c", "a", self.hosts("abc"))

    def test_a_node_that_is_heard_but_does_not_hear(self):
        self.one_way("a", "c", self.hosts("abc"))

    def change_names(self, tags, before, after):
        for tag in tags:
            path = self.dir / f"hosts.{tag}"
            path.write_text(path.read_text().replace(before + " ", after + " "))

    def resumed(self):
        """Checks that the two nodes train on and that the new musterd has learned of their round."""
        try:
            wait_for(lambda: "round_resumed run=job" in self.read("err.musterd"), "the round to be resumed")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output()}") from None
        self.assertEqual(len(self.starts()), 2, self.all_output())

    def test_a_node_that_is_cut_off_stops_its_workers_and_the_others_go_on(self):
        self.hosts("mabc")
        self.musterd_on("m")
        for rank, tag in enumerate("abc"):
            self.node(tag, "2:3", self.conf(), f"--node-rank={rank}")
        self.round_of(3)
        self.net.unplug("a")  # Rank 0, which has the store.
        self.round_of(2, after=3, nodes="bc")
        self.says("a", "this node is cut off")
        self.worker_stopped("a")
        self.assertIsNone(self.nodes["a"].poll(), self.all_output())
        self.net.plug("a")
        self.round_of(3, after=5, nodes="abc")
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def restart_with_a_shorter_lease(self, *musterd_options):
        """musterd is started again with a shorter lease while b is cut off. The next round begins only when b, which still
        has the longer lease, has stopped its workers."""
        self.lease_s, shorter_s = 16, 3
        self.hosts("mab")
        musterd = self.musterd_on("m", *musterd_options)
        for rank, tag in enumerate("ab"):
            self.node(tag, "1:2", self.conf(",is_host=false"), f"--node-rank={rank}")
        self.round_of(2)
        for sender, receiver in ("b", "10.77.0.1"), ("b", "10.77.0.2"), ("a", "10.77.0.3"):
            self.net.swallow(sender, receiver)
        # b's lease runs from now on, the host's from its start: b has the difference for what a slow machine does late.
        time.sleep(9)
        musterd.kill()
        musterd.wait()
        self.lease_s = shorter_s
        self.musterd_on("m", *musterd_options)
        self.round_of(1, after=2, nodes="a")
        self.assertIn("this node is cut off", self.read("err.b"), self.all_output())
        self.assertFalse(self.has_workers("b"), self.all_output())
        self.tell("finish")
        self.ends(a=0)

    def test_a_shorter_lease_after_a_restart_of_musterd(self):
        self.restart_with_a_shorter_lease(f"--state-dir={self.dir / 'state'}")

    def test_a_shorter_lease_after_a_restart_of_a_musterd_that_records_nothing(self):
        self.restart_with_a_shorter_lease()

    def has_workers(self, tag):
        return any(f"NODE_TAG={tag}" in self.environment_of(pid) for pid in self.worker_pids())

    def worker_stopped(self, tag):
        wait_for(lambda: not self.has_workers(tag), f"the workers of {tag} to be stopped")

    def worker_pids(self):
        return [pid for pid, command in self.token.processes().items()
                if command.rstrip().endswith(f"-u {self.worker}")]

    @staticmethod
    def environment_of(pid):
        try:
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def test_a_rendezvous_that_is_started_on_another_machine(self):
        self.lease_s = LONG_LEASE_S  # No node is lost.
        for i, name in enumerate("mnab", 1):
            self.host(name, f"10.77.0.{i}/24", hosts="10.77.0.1 rendezvous\n")
        self.meeting_point = "rendezvous"
        musterd = self.musterd_on("m")
        for tag in "ab":
            self.node(tag, 2, self.conf())
        self.round_of(2)
        musterd.kill()
        for tag in "ab":
            self.says(tag, "lost the rendezvous")
        self.musterd_on("n")
        self.change_names("ab", "10.77.0.1", "10.77.0.2")
        self.resumed()
        self.tell("finish")
        self.ends(a=0, b=0)

    def rendezvous_moves(self, lost_in_silence):
        for i, name in enumerate("mab", 1):
            self.host(name, f"10.77.0.{i}/24", hosts="10.77.0.1 rendezvous\n")
        self.meeting_point = "rendezvous"
        self.musterd_on("m")
        for tag in "ab":
            self.node(tag, 2, self.conf())
        self.round_of(2)
        if lost_in_silence:
            for tag in "ab":
                self.net.swallow(tag, "10.77.0.1")
        self.net.vanish("m")
        for tag in "ab":
            self.says(tag, "lost the rendezvous")
        self.assertEqual(len(self.starts()), 2)
        self.host("m", "10.77.0.77/24")
        self.musterd_on("m")
        self.change_names("ab", "10.77.0.1", "10.77.0.77")
        self.resumed()
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_rendezvous_that_vanishes_and_is_back_with_another_address(self):
        self.rendezvous_moves(lost_in_silence=False)

    def test_a_rendezvous_that_moves_behind_a_router_that_drops_packets(self):
        self.rendezvous_moves(lost_in_silence=True)


class Gloo(NetworkTest):
    def setUp(self):
        super().setUp()
        if not os.access(TORCH_PYTHON, os.X_OK):
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")
        self.workers_reduce_first()

    def reduce(self, **environment):
        for tag in "ab":
            self.node(tag, 2, self.conf(), "--max-restarts=1",
                      env={"PYTHON_EXEC": TORCH_PYTHON, **environment})
        self.round_of(2)
        self.tell("exit.b", "7")
        self.round_of(2, after=2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_all_reduce_where_hosts_know_their_names(self):
        for i, name in enumerate("ab", 1):
            self.host(name, f"10.77.0.{i}/24", hosts=f"10.77.0.{i} {name}\n")
        self.meeting_point = "10.77.0.1"
        self.reduce()

    def test_all_reduce_by_the_name_of_the_interface(self):
        self.hosts("ab")
        self.reduce(GLOO_SOCKET_IFNAME="eth0")

    def test_all_reduce_with_ipv6_only(self):
        for i, name in enumerate("ab", 1):
            self.host(name, f"fd77::{i}/64", hosts=f"fd77::{i} {name}\n")
        self.meeting_point = "[fd77::1]"
        self.reduce()


if __name__ == "__main__":
    lan.main()
