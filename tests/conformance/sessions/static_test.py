#!/usr/bin/env python3
"""Tests muster nodes and real torchrun nodes with the static backend; either kind may be the host."""
import sys

import harness
from harness import agree, free_port


def torchrun(nodes, port, rank, size=2, restarts=0, nproc=1):
    return nodes.torchrun(f"--master-addr=127.0.0.1", f"--master-port={port}", f"--nnodes={size}",
                          f"--node-rank={rank}", f"--max-restarts={restarts}", nproc=nproc)


def muster(nodes, port, rank, size=2, **conf):
    return nodes.muster("static", "127.0.0.1", port, "none", size, size, node_rank=rank, **conf)


def both_finish(torch, ours):
    """The exit barrier: the node that finishes first waits for the other one."""
    ours.tell("finish")
    torch.finish()
    assert ours.event("end")["succeeded"] is True
    assert "exit_barrier_failed" not in ours.log(), ours.log()
    assert torch.exit_code() == 0
    assert "Error waiting on exit barrier" not in torch.log(), torch.log()


def torchrun_hosts(nodes):
    port = free_port()
    ours = muster(nodes, port, 1, nproc=3)
    torch = torchrun(nodes, port, 0)
    rounds = [torch.round(), ours.round()]
    agree(rounds, [1, 3])
    assert rounds[1]["MASTER"] == ("127.0.0.1", port)
    both_finish(torch, ours)


def muster_hosts(nodes):
    port = free_port()
    torch = torchrun(nodes, port, 1, nproc=2)
    ours = muster(nodes, port, 0)
    rounds = [ours.round(), torch.round()]
    agree(rounds, [1, 2])
    assert rounds[0]["RANK"] == 0
    torch.finish()
    ours.tell("finish")
    assert ours.event("end")["succeeded"] is True
    assert torch.exit_code() == 0
    assert "Error waiting on exit barrier" not in torch.log(), torch.log()


def a_failure_restarts_one_node_alone(nodes):
    port = free_port()
    torch = torchrun(nodes, port, 1, restarts=2)
    ours = muster(nodes, port, 0)
    agree([ours.round(), torch.round()], [1, 1])
    torch.fail_a_worker()
    again = torch.round()
    assert again["event"]["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert ours.events.empty()
    ours.tell("fail rank 0 exited with 1")
    ours.tell("join")
    mine = ours.round()
    assert mine["event"]["restart_count"] == 1
    agree([mine, again], [1, 1])
    both_finish(torch, ours)


def muster_alone_names_the_nodes_that_are_missing(nodes):
    ours = muster(nodes, free_port(), 0, size=4, timeout=6)
    other = muster(nodes, int(ours.process.args[3]), 2, size=4, timeout=60)
    reason = ours.event("failed")["reason"]
    assert "node ranks 1, 3 did not come within 6 s (--rdzv-conf timeout)" in reason, reason
    assert "waiting for node ranks 1, 3" in ours.log()
    harness.wait_for("rank 2 says what it waits for",
                     lambda: "node rank 0, which assigns the ranks" in other.log(), told=other.log)


def a_signal_does_not_wait_for_the_barrier(nodes):
    port = free_port()
    host = muster(nodes, port, 0)
    other = muster(nodes, port, 1)
    agree([host.round(), other.round()], [1, 1])
    host.tell("finish")
    host.tell("leave")
    host.process.stdin.close()
    assert host.exit_code(10) == 0


def the_barrier_is_bounded(nodes):
    port = free_port()
    host = muster(nodes, port, 0, exit_barrier=2)
    other = muster(nodes, port, 1)
    agree([host.round(), other.round()], [1, 1])
    host.tell("finish")
    assert host.event("end", 30)["succeeded"] is True
    assert "exit_barrier_failed" in host.log()


if __name__ == "__main__":
    harness.needs_torch()
    harness.run_tests([torchrun_hosts, muster_hosts, a_failure_restarts_one_node_alone,
                       muster_alone_names_the_nodes_that_are_missing,
                       a_signal_does_not_wait_for_the_barrier, the_barrier_is_bounded],
                      sys.argv[1:])
