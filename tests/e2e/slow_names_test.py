#!/usr/bin/env python3
"""Tests jobs whose look-ups take seconds, because the first name server is away, and names with
several addresses. Hosts are network namespaces."""
import signal
import subprocess
import sys

import lan
from network_test import NetworkTest
from support import PATIENCE_S, wait_for

# A name server that answers each question for an A record with one address.
NAME_SERVER = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 53))
print("serves", flush=True)
while True:
    question, client = s.recvfrom(512)
    i = 12
    while question[i]:
        i += question[i] + 1
    answers = 1 if struct.unpack(">H", question[i + 1:i + 3])[0] == 1 else 0
    reply = question[:2] + b"\\x81\\x80" + struct.pack(">HHHH", 1, answers, 0, 0) + question[12:i + 5]
    if answers:
        reply += b"\\xc0\\x0c\\x00\\x01\\x00\\x01\\x00\\x00\\x00\\x05\\x00\\x04" + socket.inet_aton(sys.argv[2])
    s.sendto(reply, client)
"""


class SlowHosts(NetworkTest):
    def slow_hosts(self, seconds):
        """Hosts m, a and b; on the last two the first name server never answers. The second one leads each name to m."""
        self.hosts("mab")
        self.name_server = subprocess.Popen(
            [*self.net.on("m"), sys.executable, "-c", NAME_SERVER, "10.77.0.1", "10.77.0.1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(self.name_server.stdout.close)
        self.addCleanup(self.name_server.wait)
        self.addCleanup(self.name_server.kill)
        self.assertEqual(self.name_server.stdout.readline(), b"serves\n")
        resolver = self.dir / "resolv.conf"
        resolver.write_text(f"nameserver 10.77.0.53\nnameserver 10.77.0.1\noptions timeout:{seconds}\n")
        for tag in "ab":
            self.net.swallow(tag, "10.77.0.53")
            subprocess.run([*self.net.on(tag), "mount", "--bind", str(resolver), "/etc/resolv.conf"],
                           check=True, timeout=PATIENCE_S)

    def stop_name_server(self):
        self.name_server.kill()
        self.name_server.wait()


class SlowNames(SlowHosts):
    def survives_restarts(self, endpoint, *conf):
        self.endpoint = lambda: endpoint.replace("PORT", str(self.port))
        musterd = self.musterd_on("m")
        for tag in "ab":
            self.node(tag, 2, self.conf(*conf), "--max-restarts=2")
        self.round_of(2)
        for number in range(2):
            musterd.send_signal(signal.SIGTERM if number == 0 else signal.SIGKILL)
            musterd.wait()
            musterd = self.musterd_on("m")
            wait_for(lambda n=number: self.read("err.musterd").count("round_resumed run=job") > n,
                     "the round to be resumed")
        self.assertEqual(len(self.starts()), 2, self.all_output())
        return musterd

    def test_a_restart_of_musterd_where_each_look_up_takes_two_seconds(self):
        self.slow_hosts(2)
        self.survives_restarts("rdzv.test:PORT")
        self.tell("exit.a", "3")
        self.round_of(2, after=2, nodes="ab")
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_two_endpoints_where_each_look_up_takes_three_seconds(self):
        self.slow_hosts(3)
        self.survives_restarts("rdzv1.test:PORT,rdzv2.test:PORT", ",is_host=false")
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_restart_of_musterd_after_the_last_name_server_has_gone(self):
        self.slow_hosts(1)
        self.endpoint = lambda: f"rdzv.test:{self.port}"
        musterd = self.musterd_on("m")
        for tag in "ab":
            self.node(tag, 2, self.conf())
        self.round_of(2)
        self.stop_name_server()
        musterd.terminate()
        musterd.wait()
        self.musterd_on("m")
        self.resumed()
        self.tell("finish")
        self.ends(a=0, b=0)

    def resumed(self):
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd"), "the round to be resumed")
        self.assertEqual(len(self.starts()), 2, self.all_output())


class SeveralAddresses(NetworkTest):
    """Two musterds that share one name. N reaches only one of them, whose process ends."""
    lease_s = 2

    def two_networks(self, device_down_first=()):
        self.net.wire("back")
        names = "10.77.0.1 rdzv.test\n10.78.0.1 rdzv.test\n"
        self.host("m", "10.77.0.1/24")
        for i, name in enumerate(("c", "n"), 2):
            self.host(name, f"10.77.0.{i}/24", hosts=names)
            self.net.connect(name, "back", f"10.78.0.{i}/24", device="eth1")
        self.meeting_point = "rdzv.test"

    def test_refused_by_one_address_while_another_is_unreachable_is_no_evidence(self):
        self.two_networks()
        musterd = self.musterd_on("m")
        for rank, tag in enumerate("cn"):
            self.node(tag, "1:2", f"--rdzv-conf=is_host=false,lease={self.lease_s},last_call_timeout=60",
                      f"--node-rank={rank}", "--max-restarts=1")
        self.round_of(2)
        self.net.ip("n", "link", "set", "eth1", "down")
        # The two nodes do not reach each other, and musterd's process ends.
        self.net.swallow("n", "10.77.0.2")
        self.net.swallow("c", "10.77.0.3")
        musterd.terminate()
        musterd.wait()
        self.says("n", "this node is cut off")


if __name__ == "__main__":
    lan.main()
