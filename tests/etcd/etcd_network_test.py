#!/usr/bin/env python3
"""Tests agents and musterd on several machines with an etcd on another one: network namespaces, power failures, and
look-ups of etcd's name that take seconds."""
import subprocess
import sys

import etcd_cluster
import lan
from musterd import run_musterd
from network_test import NetworkTest
from slow_names_test import SlowHosts
from support import main

HOST_LEASE_S = 6  # On a busy machine etcd takes a second to answer.


def start_etcd(test, host, address):
    """An etcd with one member, which keeps its data when it is started again."""
    url = f"http://{address}:2379"
    with open(test.dir / "err.etcd", "ab") as err:
        etcd = subprocess.Popen(
            [*test.net.on(host), etcd_cluster.ETCD, f"--data-dir={test.dir / 'etcd'}", f"--listen-client-urls={url}",
             f"--advertise-client-urls={url}", "--listen-peer-urls=http://127.0.0.1:2380"],
            stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    test.addCleanup(etcd.wait)
    test.addCleanup(etcd.kill)
    return etcd


class Machines(NetworkTest):
    backend = "etcd-v2"

    def setUp(self):
        super().setUp()
        self.host("e", "10.77.0.1/24")
        self.addresses = {}
        for i, tag in enumerate("abc", 2):
            self.addresses[tag] = f"10.77.0.{i}"
            self.host(tag, f"{self.addresses[tag]}/24")
        start_etcd(self, "e", "10.77.0.1")

    def endpoint(self):
        return "10.77.0.1"  # Without a port, which means etcd's own.

    def agent(self, tag):
        self.node(tag, "2:3", f"--rdzv-conf=lease=10,host_lease={HOST_LEASE_S},last_call_timeout=600",
                  env={"LOGLEVEL": "INFO"})

    def test_the_machine_of_the_host_fails(self):
        self.agent("a")
        self.says("a", f"rendezvous_hosted at={self.addresses['a']}:")
        for tag in "bc":
            self.agent(tag)
        workers = self.round_of(3)
        self.assertEqual(workers[0]["node"], "a")  # The host is rank 0.
        self.assertEqual(self.masters(workers), {self.addresses["a"]})
        self.net.vanish("a")
        workers = self.round_of(2, after=3, nodes="bc")
        self.assertEqual(self.masters(workers), {self.addresses[workers[0]["node"]]})
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in workers}, {"0"})
        hosts = [tag for tag in "bc" if f"rendezvous_hosted at={self.addresses[tag]}:" in self.read(f"err.{tag}")]
        self.assertEqual(len(hosts), 1, self.all_output())
        self.tell("finish")
        self.ends(b=0, c=0)


class SlowNames(SlowHosts):
    """etcd is on m. The others know only its name, and their first name server is away."""
    backend = "etcd-v2"

    def test_a_musterd_whose_look_ups_of_etcds_name_take_two_seconds(self):
        self.backend, self.endpoint = "c10d", lambda: f"10.77.0.2:{self.port}"
        self.slow_hosts(2)
        etcd = start_etcd(self, "m", "10.77.0.1")
        musterd = run_musterd(self, f"--lease-seconds={self.lease_s}", "--state=etcd://etcd1.test:2379/m", bind=None,
                              port=self.port, prefix=self.net.on("a"), log=self.dir / "err.musterd", env=self.environment())
        self.node("b", 1, self.conf(",is_host=false"))
        self.round_of(1)
        etcd.kill()
        etcd.wait()
        musterd.says("leadership_lost")
        start_etcd(self, "m", "10.77.0.1")
        musterd.says("round_resumed run=job")
        self.tell("finish")
        self.ends(b=0)

    def test_agents_whose_look_ups_of_etcds_name_take_two_seconds(self):
        self.endpoint = lambda: "etcd1.test"
        self.slow_hosts(2)
        start_etcd(self, "m", "10.77.0.1")
        for tag in "ab":
            self.node(tag, 2, f"--rdzv-conf=lease=10,host_lease={HOST_LEASE_S},last_call_timeout=600", "--max-restarts=1")
        self.round_of(2)
        self.tell("exit.a", "3")
        self.round_of(2, after=2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)


if __name__ == "__main__":
    why_not = None if etcd_cluster.have_etcd() else "etcd is not installed (Debian: etcd-server)"
    why_not = why_not or lan.why_not()
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(77)
    main()
