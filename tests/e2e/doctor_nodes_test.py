#!/usr/bin/env python3
"""Tests musterctl doctor --nodes: real nodes that meet and test each other, on loopback and on
networks with faults."""
import json
import os
import shutil
import signal
import subprocess
import unittest

import lan
from mixed import have_torch
from musterd import run_musterd
from nodes import TORCH_PYTHON, NodesTest
from support import PATIENCE_S, children, main, wait_for
from token_test import write_token

MUSTERCTL = os.path.abspath(os.environ.get("MUSTERCTL_BIN", "musterctl"))


class DoctorTest(NodesTest):
    def musterd(self, *options, on=()):
        self.musterd_process = run_musterd(self, *options, bind=None, port=self.port, prefix=on,
                                             log=self.dir / "err.musterd", env=self.environment())

    def doctor(self, tag, nodes, *options, on=(), endpoint=None, env=None):
        """Starts the doctor of one node. `on` is the command prefix that runs it on its host."""
        words = [*on, MUSTERCTL, "doctor", f"--nodes={nodes}", f"--rdzv-endpoint={endpoint or self.endpoint()}", *options]
        with open(self.dir / f"out.{tag}", "wb") as out, open(self.dir / f"err.{tag}", "wb") as err:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.dir,
                                       env=self.environment(**(env or {})))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.nodes[tag] = process
        return process

    def ends(self, tag, expect):
        """Waits until the node exits with the code `expect`. Returns its output."""
        code = self.nodes[tag].wait(PATIENCE_S)
        out = self.read(f"out.{tag}")
        self.assertEqual(code, expect, f"{tag}: {out}\n{self.all_output()}")
        return out

    def report(self, tag, expect):
        """The node's JSON report: the peers by rank, and the checks by (rank, name). A check of the
        node itself has None in place of the rank."""
        said = json.loads(self.ends(tag, expect))
        self.assertEqual(said["ok"], expect == 0)
        ranks = {f"{peer['host']} (rank {peer['rank']})": peer["rank"] for peer in said["peers"]}
        checks = {(ranks.get(check.get("peer")), check["name"]): check for check in said["checks"]}
        return {peer["rank"]: peer for peer in said["peers"]}, checks

    def assert_verdicts(self, checks, rank, **verdicts):
        self.assertEqual({name: checks[rank, name]["verdict"] for name in verdicts}, verdicts)


class OnThisMachine(DoctorTest):
    def test_three_nodes_at_a_musterd_with_a_token(self):
        token = f"--rdzv-token-file={write_token(self.dir)}"
        self.musterd("--bind=127.0.0.1", token)
        for tag in "abc":
            self.doctor(tag, 3, "--no-torch", token, *([] if tag == "c" else ["--json"]))
        ranks = set()
        for tag in "ab":
            peers, checks = self.report(tag, 0)
            ranks.add(frozenset({0, 1, 2} - set(peers)))
            self.assertEqual(len(peers), 2)
            for rank, peer in peers.items():
                self.assertTrue(peer["to"]["connects"] and peer["from"]["connects"], peer)
                self.assertTrue(peer["to"]["long_packets_pass"] and peer["from"]["long_packets_pass"], peer)
                self.assertEqual(peer["to"]["interface"], "lo")
                self.assertEqual((peer["to"]["to"], peer["from"]["to"]), ("127.0.0.1", "127.0.0.1"))
                self.assertGreater(peer["to"]["latency_ms"], 0)
                # All nodes use one clock. How exactly they measure that depends on how busy the
                # machine is.
                self.assertLess(abs(peer["to"]["clock_ahead_seconds"]), 10)
                self.assert_verdicts(checks, rank, reach_to="ok", reach_from="ok", path_mtu="ok", versions="ok")
                self.assertIn((rank, "peer_clock"), checks)
                self.assertIn((rank, "latency"), checks)
            self.assertIn("--no-torch", checks[None, "all_reduce"]["found"])
        self.assertEqual(len(ranks), 2)  # Each node has another rank.
        table = self.ends("c", 0)
        self.assertEqual(table.count(" (rank "), 2, table)  # Peers without problems have no rows.
        for word in ("PEER", "ALL-REDUCE", "3 nodes have met", "0 failures", "\n3 nodes reach each other\n"):
            self.assertIn(word, table)

    def test_a_wrong_token_is_a_failure_with_its_reason(self):
        self.musterd("--bind=127.0.0.1", f"--rdzv-token-file={write_token(self.dir)}")
        wrong = write_token(self.dir, "wrong-token-0123456789abcdefghijklmnopq", "wrong")
        self.doctor("a", 2, "--no-torch", "--json", f"--rdzv-token-file={wrong}")
        peers, checks = self.report("a", 1)
        self.assertEqual(peers, {})
        self.assertIn("have not met", checks[None, "nodes"]["found"])
        self.assertIn("token", self.read("err.a"))

    def test_a_node_that_waits_for_others_can_be_stopped(self):
        self.musterd("--bind=127.0.0.1")
        process = self.doctor("a", 2, "--no-torch", "--json")
        wait_for(lambda: "waits for" in self.read("err.a") or "waiting for" in self.read("err.a")
                 or process.poll() is not None, "it to say for whom it waits")
        muster, = children(process.pid)
        # A terminal signals both processes. The doctor itself leaves the signal to muster.
        os.kill(muster, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        _, checks = self.report("a", 1)
        self.assertEqual(checks[None, "nodes"]["verdict"], "failure")
        self.assert_nothing_of_muster()

    def test_killed_it_leaves_nothing(self):
        self.musterd("--bind=127.0.0.1")
        process = self.doctor("a", 2, "--no-torch")
        wait_for(lambda: any("--nnodes=2" in words for words in self.token.processes().values()), "muster")
        process.kill()
        process.wait()
        self.assert_nothing_of_muster()

    def assert_nothing_of_muster(self):
        wait_for(lambda: not any("--nnodes=2" in words for words in self.token.processes().values()),
                 "muster to end")

    def test_a_command_line_that_is_wrong(self):
        for words, reason in ((["--nodes=2"], "--rdzv-endpoint"), (["--nodes=1"], "--nodes"),
                              (["--nodes=x"], "--nodes"), (["--nodes=2", "--quick"], "--quick")):
            done = subprocess.run([MUSTERCTL, "doctor", *words], capture_output=True, text=True, timeout=PATIENCE_S,
                                  env=self.environment(), check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(reason, done.stderr)

    def test_without_muster_beside_it(self):
        alone = self.dir / "alone/musterctl"
        alone.parent.mkdir()
        shutil.copy(MUSTERCTL, alone)
        done = subprocess.run([alone, "doctor", "--nodes=2", "--rdzv-endpoint=127.0.0.1:1"], capture_output=True,
                              text=True, timeout=PATIENCE_S, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("it is installed with musterctl", done.stdout)


@unittest.skipUnless(have_torch(), "no torch")
class WithTorch(DoctorTest):
    def test_two_nodes_sum_and_one_of_them_hosts(self):
        env = {"PYTHON_EXEC": TORCH_PYTHON, "GLOO_SOCKET_IFNAME": "lo"}
        for tag in "ab":
            self.doctor(tag, 2, "--json", env=env)
        for tag in "ab":
            peers, checks = self.report(tag, 0)
            (rank, peer), = peers.items()
            self.assertTrue(peer["all_reduce"]["right"], peer)
            self.assert_verdicts(checks, rank, all_reduce="ok", versions="ok")
            self.assertIn("torch", checks[rank, "versions"]["found"])
            self.assertIn("GLOO_SOCKET_IFNAME=lo", checks[None, "nodes"]["found"])


@unittest.skipIf(lan.why_not() or shutil.which("nft") is None, lan.why_not() or "nft is not installed")
class OnNetworksWithFaults(DoctorTest):
    def doctors(self, net, *options, env=None):
        """Starts a doctor on each host. They meet at a musterd on the first host."""
        first, *_ = net.addresses
        self.musterd(on=net.on(first))
        for name in net.addresses:
            self.doctor(name, len(net.addresses), "--no-torch", "--json", *options, on=net.on(name), env=env,
                        endpoint=f"{net.addresses[first]}:{self.port}")

    def reports(self, **expect):
        reports = {}
        for name, code in expect.items():
            peers, checks = self.report(name, code)
            rank = {peer["host"]: rank for rank, peer in peers.items()}
            reports[name] = ({peer["host"]: peer for peer in peers.values()},
                             {(host, key): check for host, number in rank.items()
                              for (of, key), check in checks.items() if of == number})
        return reports

    def nft(self, net, name, *rules):
        for rule in ("add table inet t", "add chain inet t in { type filter hook input priority 0; policy accept; }",
                     *(f"add rule inet t in {rule}" for rule in rules)):
            subprocess.run([*net.on(name), "nft", rule], check=True, timeout=PATIENCE_S)

    def test_a_firewall_in_one_direction(self):
        net = lan.Lan(self.dir, ["one", "two", "three"])
        self.addCleanup(net.close)
        # Host two accepts no connections from host three, but host three accepts those of host two.
        self.nft(net, "two", f"ip saddr {net.addresses['three']} tcp flags & (syn | ack) == syn drop")
        self.doctors(net)
        reports = self.reports(one=0, two=1, three=1)
        peers, checks = reports["three"]
        self.assertFalse(peers["two"]["to"]["connects"])
        self.assertTrue(peers["two"]["from"]["connects"])
        self.assert_verdicts(checks, "two", reach_to="failure", reach_from="ok")
        self.assert_verdicts(checks, "one", reach_to="ok", reach_from="ok", path_mtu="ok")
        blocked = checks["two", "reach_to"]
        self.assertRegex(blocked["found"], rf"cannot connect from eth0 {net.addresses['three']} to "
                                           rf"{net.addresses['two']}, port \d+: no answer in time")
        self.assertIn("firewall", blocked["remedy"])
        _, checks = reports["two"]
        self.assert_verdicts(checks, "three", reach_to="ok", reach_from="failure", path_mtu="ok")
        self.assertIn("it cannot connect", checks["three", "reach_from"]["found"])
        _, checks = reports["one"]
        for other in ("two", "three"):
            self.assert_verdicts(checks, other, reach_to="ok", reach_from="ok", path_mtu="ok")

    def test_hosts_that_know_no_names_and_have_ipv6_only(self):
        net = lan.Net(self.dir)
        self.addCleanup(net.close)
        net.wire("wire")
        hosts = self.dir / "hosts"
        hosts.write_text("127.0.0.1 localhost\n::1 localhost\n")
        for number, name in enumerate(("one", "two"), 1):
            net.host(name, hosts)
            net.connect(name, "wire", f"fd77::{number}/64")
        self.musterd(on=net.on("one"))
        for name in ("one", "two"):
            self.doctor(name, 2, "--no-torch", "--json", on=net.on(name), endpoint=f"[fd77::1]:{self.port}")
        for name, (peers, checks) in self.reports(one=0, two=0).items():
            (host, peer), = peers.items()
            self.assertEqual({peer["to"]["from"], peer["to"]["to"]}, {"fd77::1", "fd77::2"}, name)
            self.assertEqual((peer["to"]["interface"], peer["to"]["path_mtu"]), ("eth0", 1500))
            self.assert_verdicts(checks, host, reach_to="ok", reach_from="ok", path_mtu="ok")

    def test_long_packets_that_are_lost_on_the_network_of_the_job(self):
        net = lan.Lan(self.dir, ["one", "two"])
        self.addCleanup(net.close)
        net.wire("fast")
        for number, name in enumerate(net.addresses, 1):
            net.connect(name, "fast", f"10.78.0.{number}/24", device="eth1")
            net.ip(name, "link", "set", "eth1", "mtu", "9000")
            # Drops long packets, as a switch does whose MTU was left at 1,500 bytes.
            self.nft(net, name, "iifname eth1 meta length > 1500 drop")
        self.doctors(net, env={"GLOO_SOCKET_IFNAME": "eth1"})
        for name, (peers, checks) in self.reports(one=1, two=1).items():
            (host, peer), = peers.items()
            self.assertEqual((peer["to"]["interface"], peer["to"]["interface_mtu"]), ("eth1", 9000), name)
            self.assertTrue(peer["to"]["to"].startswith("10.78.0."), peer)
            self.assertTrue(peer["to"]["connects"])
            self.assertFalse(peer["to"]["long_packets_pass"])
            self.assert_verdicts(checks, host, reach_to="ok", reach_from="ok", path_mtu="failure")
            self.assertIn("9000 here (eth1)", checks[host, "path_mtu"]["found"])
            self.assertIn("same MTU", checks[host, "path_mtu"]["remedy"])


if __name__ == "__main__":
    main()
