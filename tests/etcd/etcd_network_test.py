#!/usr/bin/env python3
"""Tests agents on several machines that meet through an etcd on another one: network namespaces,
and power failures."""
import subprocess
import sys

import etcd_cluster
import lan
from network_test import NetworkTest
from support import main

HOST_LEASE_S = 6  # On a busy machine etcd takes a second to answer.


class Machines(NetworkTest):
    backend = "etcd-v2"

    def setUp(self):
        super().setUp()
        self.host("e", "10.77.0.1/24")
        self.addresses = {}
        for i, tag in enumerate("abc", 2):
            self.addresses[tag] = f"10.77.0.{i}"
            self.host(tag, f"{self.addresses[tag]}/24")
        url = "http://10.77.0.1:2379"
        err = open(self.dir / "err.etcd", "wb")
        self.addCleanup(err.close)
        etcd = subprocess.Popen(
            [*self.net.on("e"), etcd_cluster.ETCD, f"--data-dir={self.dir / 'etcd'}", f"--listen-client-urls={url}",
             f"--advertise-client-urls={url}", "--listen-peer-urls=http://127.0.0.1:2380"],
            stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.kill)

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


if __name__ == "__main__":
    why_not = None if etcd_cluster.have_etcd() else "etcd is not installed (Debian: etcd-server)"
    why_not = why_not or lan.why_not()
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(77)
    main()
