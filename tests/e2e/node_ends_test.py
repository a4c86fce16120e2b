#!/usr/bin/env python3
"""Tests what happens to nodes that have finished or are lost, and what nodes print while they wait."""
import os
import shutil
import signal
import subprocess
import sys
import time

from mixed import SHORT_LEASE_S, MusterdTest
from musterd import MUSTERD
from nodes import NodesTest
from support import MUSTER, agent_of, main, wait_for

GUEST = ["--rdzv-conf=is_host=false"]


class Finished(NodesTest):
    def lose_the_last(self, lose, *, finished="a", lost="b", nodes=2):
        tags = finished + lost
        for tag in tags:
            self.node(tag, nodes, *([] if tag == "a" else GUEST))
        self.round_of(nodes)
        for tag in finished:
            self.tell(f"finish.{tag}")
            self.node_finished(tag)
        lose(self.nodes[lost])
        self.ends(**{tag: 0 for tag in finished})
        for tag in finished:
            self.assertRegex(self.read(f"err.{tag}"),
                             "workers of this node have succeeded, but the job has not: .*gone "
                             "before its part was finished")

    def test_the_last_unfinished_node_is_killed(self):
        self.lose_the_last(lambda node: node.kill())

    def test_the_last_unfinished_node_is_stopped_by_a_signal(self):
        self.lose_the_last(lambda node: node.terminate())
        self.ends(b=1)
        self.assertRegex(self.read("err.a"), "it left")

    def test_the_last_unfinished_node_falls_silent(self):
        def silence(node):
            # The test kills the other processes at its end.
            os.kill(agent_of(node.pid), signal.SIGSTOP)
        self.lose_the_last(silence, finished="ab", lost="c", nodes=3)
        self.assertRegex(self.read("err.b"), "not heard for 5 s")
        self.kill("c")

    def test_a_finished_node_names_the_nodes_that_it_waits_for(self):
        self.node("a", 2)
        self.node("b", 2, *GUEST)
        self.round_of(2)
        self.tell("finish.a")
        self.node_finished("a")
        self.assertRegex(self.read("err.a"), r"1 has finished, still at work: 127\.0\.0\.1_\d+_0 \(rank 1\)")
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_the_host_is_killed_before_the_end_is_known(self):
        self.node("a", 2)
        self.node("b", 2, *GUEST)
        self.round_of(2)
        self.tell("finish.b")
        self.node_finished("b")
        self.kill("a")
        self.ends(b=0)
        self.assertIn("before the end of the job was known", self.read("err.b"))


# Makes the promise of docs/worker_channel.md, saves at the notice, and ends. SIGTERM kills it.
SAVES = """#!/usr/bin/env python3
import json, os, socket, time
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["MUSTER_WORKER_CHANNEL"])
for line in ({"type": "hello", "local_rank": 0}, {"type": "ends_itself"}):
    channel.sendall(json.dumps(line).encode() + b"\\n")
tag = os.environ["NODE_TAG"] + os.environ["TORCHELASTIC_RESTART_COUNT"]
with open("ready.new." + tag, "w") as ready:
    ready.write(str(os.getpid()))
os.rename("ready.new." + tag, "ready." + tag)
if b"preempt" in channel.recv(4096):
    open("saved." + tag, "w").close()
while os.path.exists("waits." + tag): time.sleep(0.01)
"""


class Notices(NodesTest):
    """Workers that have promised to end by themselves save on every node, if no node has failed."""

    def begin(self, *options):
        worker = self.script("saves.py", SAVES)
        for tag, guest in (("a", []), ("b", GUEST)):
            self.node(tag, 2, *options, *guest, command=["--no-python", str(worker)])
        self.wait_for_files("ready.a0", "ready.b0")

    def wait_for_files(self, *names):
        wait_for(lambda: all((self.dir / name).exists() for name in names), " and ".join(names))

    def test_one_node_is_stopped_by_a_signal(self):
        self.begin()
        self.nodes["b"].terminate()
        self.wait_for_files("saved.a0", "saved.b0")
        self.ends(b=1)
        self.assertIn("it left", self.read("err.a"))

    def test_all_nodes_are_stopped_by_a_signal(self):
        (self.dir / "waits.a0").touch()
        self.begin()
        self.nodes["b"].terminate()
        self.wait_for_files("saved.a0", "saved.b0")
        self.nodes["a"].terminate()
        wait_for(lambda: "Received 15 death signal" in self.read("err.a"), "the signal")
        (self.dir / "waits.a0").unlink()
        self.ends(a=1, b=1)

    def test_a_node_is_lost(self):
        self.begin("--max-restarts=1")
        self.kill("b")
        wait_for(lambda: not os.path.exists("/proc/" + self.read("ready.a0")), "the end of the worker")
        self.nodes["a"].terminate()
        self.ends(a=1)
        self.assertFalse((self.dir / "saved.a0").exists())


class FullLogs(NodesTest):
    def test_the_other_nodes_learn_that_a_node_has_no_room_for_logs(self):
        worker = self.script("fills.sh", "#!/bin/sh\n[ $NODE_TAG = a ] || sleep 1000\n"
                                         "yes | head -c 3000000; sleep 1000\n")
        for tag, extra in (("a", ["-r3", "--log-dir=logs", "--log-on-full=fail"]), ("b", GUEST)):
            limit = ["sh", "-c", 'ulimit -f 64; exec "$@"', "sh"] if tag == "a" else []
            self.launchers = {**self.launchers, tag: [*limit, MUSTER]}
            self.node(tag, 2, *extra, command=["--no-python", str(worker)])
        self.ends(a=1, b=1)
        self.assertRegex(self.read("err.b"), "the job has failed: node .*: .*(too large|full|limit)")


class Waiting(NodesTest):
    def test_missing_nodes_are_named_and_a_spare_says_that_all_places_are_taken(self):
        self.node("a", 2, "--node-rank=0")
        self.node("b", 2, "--node-rank=1", *GUEST)
        self.round_of(2)
        self.node("c", 2, *GUEST)
        wait_for(lambda: "2 of 2 places are taken: this node waits as a spare" in self.read("err.c"),
                 "c to say that there is no place")
        self.kill("c")
        lost = self.nodes["b"].pid
        self.kill("b")
        self.assertNotEqual(lost, 0)
        wait_for(lambda: "1 more must come in place of" in self.read("err.a"), "a to say whom it misses")
        self.assertRegex(self.read("err.a"), r"in place of 127\.0\.0\.1_\d+_0 \(was rank 1\)")
        self.node("d", 2, *GUEST)
        self.round_of(2, after=2, nodes="ad")
        self.tell("finish")
        self.ends(a=0, d=0)

    def test_a_node_that_never_had_a_place_does_not_end_with_success(self):
        self.node("a", 2)
        self.node("b", 2, *GUEST)
        self.round_of(2)
        self.node("c", 2, *GUEST)
        self.node("s", 2, "--spare", *GUEST)
        wait_for(lambda: "2 of 2 places are taken" in self.read("err.c"), "no place to be left for c")
        wait_for(lambda: "this node is a spare" in self.read("err.s"), "the spare to wait")
        self.tell("finish")
        self.ends(a=0, b=0, c=1, s=0)
        self.assertIn("this node never had a place in it", self.read("err.c"))

    def test_a_join_timeout_is_not_called_a_refusal(self):
        self.node("a", 2, "--rdzv-conf=join_timeout=1")
        self.ends(a=1)
        self.assertNotIn("refused this node", self.read("err.a"))

    def test_a_lost_host_is_named_with_the_limit_and_its_option(self):
        self.node("a", 2)
        self.node("b", 2, "--rdzv-conf=is_host=false,read_timeout=1")
        self.round_of(2)
        self.kill("a")
        self.ends(b=1)
        self.assertRegex(self.read("err.b"), r"was lost .*tried for 1 s; --rdzv-conf read_timeout=SECONDS")

    def test_a_key_without_effect_is_named(self):
        self.node("a", 1, "--rdzv-conf=heartbeat_timeout=7")
        self.round_of(1)
        self.tell("finish")
        self.ends(a=0)
        self.assertIn("heartbeat_timeout has no effect", self.read("err.a"))


class TwoJobs(MusterdTest):
    """Two jobs with one run id at one musterd."""

    def test_nodes_with_different_commands_are_told_of_each_other(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.node("c", 2, command=["--no-python", "sh", "-c", "exit 0"])
        wait_for(lambda: "2 of 2 places are taken" in self.read("err.c"), "c to wait")
        self.tell("finish")
        self.ends(a=0, b=0, c=1)
        self.assertRegex(self.read("err.c"), "runs another command than node .*--rdzv-id")
        told = [tag for tag in "ab" if "runs another command" in self.read(f"err.{tag}")]
        self.assertEqual(len(told), 1, "only the first node is told")
        self.assertIn("commands_differ run=job", self.read("err.musterd1"))


class CrashLoop(MusterdTest):
    conf = "is_host=false,last_call_timeout=1"

    def test_agents_of_one_address_that_are_killed_again_and_again_are_held_back(self):
        self.node("a", "1:3", "--max-restarts=1")
        self.round_of(1)
        for number in range(5):
            tag, before = f"b{number}", len(self.starts())
            self.node(tag, "1:3", "--max-restarts=1")
            self.round_of(2, after=before, nodes=("a", tag))
            before = len(self.starts())
            time.sleep(1.1)  # The host counts several ends within one second once.
            self.kill(tag)
            self.round_of(1, after=before, nodes=("a",))
        starts = len(self.starts())
        self.node("b5", "1:3", "--max-restarts=1")
        wait_for(lambda: "node_held_back run=job" in self.read("err.musterd1"), "the next agent to be held back")
        wait_for(lambda: "at this node's address were gone soon after" in self.read("err.b5"), "that agent to hear why")
        self.assertEqual(len(self.starts()), starts, self.all_output())
        self.tell("finish")
        self.ends(a=0)


class Lease(MusterdTest):
    lease_s = SHORT_LEASE_S
    conf = "lease=30,is_host=false"

    def test_a_node_keeps_alive_by_the_hosts_lease(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.says("ab", "that counts, and not --rdzv-conf lease=30")
        # A third node in another run serves as a clock: it ends after its join timeout of 10 s,
        # which is five of musterd's leases. With keep-alives by their own lease, a and b would be
        # lost after the first of them.
        self.conf = "lease=30,is_host=false,join_timeout=10"
        self.run_id = "clock"
        self.node("c", 2)
        self.ends(c=1)
        self.assertEqual(len(self.starts()), 2, self.all_output())
        self.tell("finish")
        self.ends(a=0, b=0)


class AtMusterd(MusterdTest):
    def test_a_lost_node_is_noted(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.kill("b")
        wait_for(lambda: "node_lost run=job" in self.read("err.musterd1"), "musterd to note it")
        self.node("b", 2)
        self.round_of(2, after=2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_agents_with_one_pid_are_two_nodes(self):
        unshare = shutil.which("unshare")
        alone = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child"]
        if unshare is None or subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no process namespaces here: root is needed")
        self.launchers = {tag: [*alone, MUSTER] for tag in "ab"}
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)


if __name__ == "__main__":
    if not os.access(MUSTERD, os.X_OK):
        print(f"skipped: MUSTERD_BIN={MUSTERD} is not there")
        sys.exit(77)
    main()
