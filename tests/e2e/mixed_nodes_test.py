"""Tests jobs of muster nodes and real torchrun nodes, also with the static backend."""
import signal
import sys

from mixed import MixedTest, have_torch
from nodes import TORCH_PYTHON
from support import PATIENCE_S, main, wait_for


class MusterHosts(MixedTest):
    def test_they_meet_reduce_and_finish(self):
        self.workers_reduce_first()
        self.pair(2, "--nproc-per-node=2")
        self.round_of(4)
        self.tell("finish")
        self.ends(a=0, t=0)
        self.assert_nothing_left()

    def test_a_failure_on_muster_restarts_both_and_they_reduce_again(self):
        self.workers_reduce_first()
        self.pair(2, "--max-restarts=1")
        self.round_of(2)
        self.tell("exit.a", "7")
        self.round_of(2, after=2, nodes="at")
        self.tell("finish")
        self.ends(a=0, t=0)

    def test_a_failure_on_torchrun_restarts_both(self):
        self.pair(2, "--max-restarts=1")
        self.round_of(2)
        self.tell("exit.t", "7")
        self.round_of(2, after=2, nodes="at")
        self.tell("finish")
        self.ends(a=0, t=0)

    def test_a_torchrun_that_comes_late_is_taken_in(self):
        self.node("a", "1:3", self.host, "--local-addr=127.0.0.1")
        self.round_of(1)
        self.node("t", "1:3", self.no_host, "--local-addr=127.0.0.1")
        self.round_of(2, after=1, nodes="at")
        started = len(self.starts())
        self.node("b", "1:3", self.no_host, "--local-addr=127.0.0.1")
        self.round_of(3, after=started, nodes="abt")
        self.tell("finish")
        self.ends(a=0, b=0, t=0)

    def test_a_killed_muster_node_is_missed_at_once(self):
        # The first round waits for the third node. The second one does not wait for the end of the last call.
        host, no_host = (conf.replace("timeout=3", "timeout=600") for conf in (self.host, self.no_host))
        self.node("a", "2:3", host, "--local-addr=127.0.0.1")
        self.listens("a")
        self.node("b", "2:3", no_host, "--local-addr=127.0.0.1")
        self.node("t", "2:3", no_host, "--local-addr=127.0.0.1")
        self.round_of(3)
        self.kill("b")
        self.round_of(2, after=3, nodes="at")
        self.tell("finish")
        self.ends(a=0, t=0)

    def test_a_failure_for_good_ends_both(self):
        self.pair(2)
        self.round_of(2)
        self.tell("exit.a", "7")
        self.ends(a=1)
        self.tell("exit.t", "7")  # In a real job the workers' collectives would fail.
        self.ends(t=1)


class TorchrunHosts(MixedTest):
    def test_they_meet_reduce_and_finish(self):
        self.workers_reduce_first()
        self.pair_at_torchrun(2, "--nproc-per-node=2")
        self.round_of(4)
        self.tell("finish")
        self.ends(a=0, t=0)
        self.assert_nothing_left()

    def test_a_failure_on_either_restarts_both(self):
        self.pair_at_torchrun(2, "--max-restarts=2")
        self.round_of(2)
        self.tell("exit.a", "7")
        self.round_of(2, after=2, nodes="at")
        self.tell("exit.t", "7")
        self.round_of(2, after=4, nodes="at")
        self.tell("finish")
        self.ends(a=0, t=0)


    def test_a_node_that_is_stopped_while_it_waits_leaves(self):
        # Nobody takes it for lost, so it is gone only because it has left.
        self.host += ",keep_alive_interval=600"
        self.no_host += ",keep_alive_interval=600"
        self.pair_at_torchrun(3)
        self.state_is("len(state.participants) == 2")
        self.nodes["a"].send_signal(signal.SIGTERM)
        self.nodes["a"].wait(PATIENCE_S)
        self.state_is("len(state.participants) == 1")


class Static(MixedTest):
    backend = "static"

    def arguments(self, tag, nnodes, extra):
        return [f"--nnodes={nnodes}", "--master-addr=127.0.0.1", f"--master-port={self.port}",
                *extra]

    def finish_two(self):
        workers = self.round_of(3)
        self.assertEqual({e["MASTER_ADDR"] for e in workers}, {"127.0.0.1"})
        self.assertEqual({e["MASTER_PORT"] for e in workers}, {str(self.port)})
        self.tell("finish")

    def test_muster_with_muster(self):
        self.workers_reduce_first()
        self.node("b", 2, "--node-rank=1", "--nproc-per-node=2")
        self.node("a", 2, "--node-rank=0")
        self.finish_two()
        self.ends(a=0, b=0)

    def test_torchrun_at_muster(self):
        self.node("a", 2, "--node-rank=0", "--nproc-per-node=2")
        self.node("t", 2, "--node-rank=1")
        self.finish_two()
        self.ends(a=0, t=0)

    def test_muster_at_torchrun(self):
        self.node("t", 2, "--node-rank=0", "--nproc-per-node=2")
        self.node("a", 2, "--node-rank=1")
        self.finish_two()
        self.ends(a=0, t=0)

    def test_a_signal_while_waiting_is_answered_at_once(self):
        for rank in (0, 1):
            node = self.node("a", 2, f"--node-rank={rank}")
            wait_for(lambda: "wait" in self.read("err.a") or node.poll() is not None, "a to wait")
            node.send_signal(signal.SIGTERM)
            self.ends(a=-signal.SIGTERM)


if __name__ == "__main__":
    if not have_torch():
        print(f"skipped: there is no torch: {TORCH_PYTHON}")
        sys.exit(77)
    main()
