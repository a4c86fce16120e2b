#!/usr/bin/env python3
"""Tests jobs whose nodes reach musterd through a proxy or a tunnel that goes away, and leases that
musterd gives."""
import signal
import subprocess
import sys
import time

from mixed import MusterdTest
from ports import free_port
from support import main, wait_for

# Passes bytes on, from the first port to the second one.
PROXY = """
import asyncio, sys
async def pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except Exception:
        pass
    writer.close()
async def serve(reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), reuse_address=True) as server:
        print("serves", flush=True)
        await server.serve_forever()
asyncio.run(main())
"""


class ProxyTest(MusterdTest):
    lease_s = 5

    def setUp(self):
        super().setUp()
        self.front_door = free_port()
        self.behind = set()

    def endpoint(self):
        return f"127.0.0.1:{self.front_door if self.current in self.behind else self.port}"

    def node(self, tag, *words, **more):
        self.current = tag
        return super().node(tag, *words, **more)

    def start_proxy(self):
        self.proxy = subprocess.Popen([sys.executable, "-c", PROXY, str(self.front_door), str(self.port)],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.proxy.stdout.close)
        self.addCleanup(self.proxy.wait)
        self.addCleanup(self.proxy.kill)
        self.assertEqual(self.proxy.stdout.readline(), b"serves\n")

    def both_behind_the_proxy(self, *options):
        """Starts a job of two nodes that reach musterd through the proxy."""
        self.behind = set("ab")
        self.start_proxy()
        for tag in "ab":
            self.node(tag, 2, *options)
        self.round_of(2)

    def stop_proxy(self):
        self.proxy.kill()
        self.proxy.wait()


class Proxy(ProxyTest):
    def test_a_proxy_that_is_restarted_restarts_no_worker(self):
        self.both_behind_the_proxy()
        for _ in range(2):
            self.stop_proxy()
            time.sleep(1.8)
            self.start_proxy()
            time.sleep(4)  # A node tries again after 2 s at most.
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_proxy_that_is_away_for_longer_than_the_lease_restarts_no_worker_either(self):
        self.both_behind_the_proxy("--max-restarts=1")
        self.stop_proxy()
        wait_for(lambda: self.read("err.musterd1").count("node_lost") >= 2, "both nodes to be lost")
        time.sleep(3)
        self.start_proxy()
        wait_for(lambda: "round_resumed run=job" in self.read("err.musterd1"), "the round to be resumed")
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.tell("exit.b", "3")
        self.round_of(2, after=2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_spares_that_do_not_use_the_proxy_do_not_begin_beside_the_nodes(self):
        self.both_behind_the_proxy()
        for tag in "cd":
            self.node(tag, 2, "--spare")
        for tag in "cd":
            self.says([tag], "this node is a spare")
        self.stop_proxy()
        time.sleep(12)
        self.assertEqual(len(self.starts()), 2, self.all_output())

    def test_a_tunnel_of_one_node_that_is_away_stops_that_node(self):
        self.behind = {"b"}
        self.start_proxy()
        for rank, tag in enumerate("ab"):
            self.node(tag, "1:2", f"--node-rank={rank}", "--max-restarts=2")
        self.round_of(2)
        self.stop_proxy()
        self.says("b", "this node is cut off")
        self.round_of(1, after=2, nodes="a")
        self.tell("finish.a")


class Lease(MusterdTest):
    lease_s = 30
    conf = "last_call_timeout=600,is_host=false"

    def test_the_lease_of_musterd_counts_for_its_nodes(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.musterd.send_signal(signal.SIGSTOP)  # SIGSTOP: nobody answers for longer than the nodes' own lease of 5 s.
        time.sleep(9)
        for tag in "ab":
            self.assertNotIn("has answered nothing", self.read(f"err.{tag}"))
        self.musterd.send_signal(signal.SIGCONT)
        self.tell("finish")
        self.ends(a=0, b=0)


if __name__ == "__main__":
    sys.exit(main())
