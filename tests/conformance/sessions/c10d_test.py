#!/usr/bin/env python3
"""Tests muster nodes in a c10d rendezvous that a real torchrun node hosts."""
import signal
import sys
from datetime import timedelta

import harness
from harness import agree, free_port

# Long enough for the exchange of ranks on a busy machine, which this option limits too. A node that
# has lost its store gives up after this time.
READ_TIMEOUT_S = 20


def torchrun(nodes, port, size, addr="127.0.0.2", restarts=3, nproc=1, host=False, conf="",
             environment=None):
    # A second torchrun on this machine would also try to host before it becomes a client.
    return nodes.torchrun("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=t",
                          f"--nnodes={size}", f"--local-addr={addr}", f"--max-restarts={restarts}",
                          f"--rdzv-conf=last_call_timeout=1,is_host={int(host)}{conf}",
                          nproc=nproc, environment=environment)


def muster(nodes, port, size, addr="127.0.0.3", **conf):
    minimum, _, maximum = size.partition(":")
    return nodes.muster("c10d", "localhost", port, "t", minimum, maximum or minimum,
                        local_addr=addr, last_call_timeout=1, **conf)


def one_and_one_torch_is_rank_0(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", host=True)
    ours = muster(nodes, port, "2", nproc=3)
    rounds = [torch.round(), ours.round()]
    agree(rounds, [1, 3])
    assert rounds[0]["GROUP_RANK"] == 0 and rounds[0]["MASTER"][0] == "127.0.0.2"
    assert ours.seen[-1]["job_decides"] is False
    # The exit barrier: neither node ends before the other one has finished.
    ours.tell("finish")
    torch.finish()
    assert ours.event("end")["succeeded"] is True
    assert torch.exit_code() == 0


def one_and_one_muster_is_rank_0(nodes):
    port = free_port()
    # Starts first and waits for the store.
    ours = muster(nodes, port, "2", addr="127.0.0.1", nproc=2)
    torch = torchrun(nodes, port, "2", host=True, nproc=2)
    rounds = [torch.round(), ours.round()]
    agree(rounds, [2, 2])
    assert rounds[1]["GROUP_RANK"] == 0 and rounds[1]["MASTER"][0] == "127.0.0.1"
    torch.finish()
    ours.tell("finish")
    assert ours.event("end")["succeeded"] is True
    assert torch.exit_code() == 0


def two_and_two_with_restarts_from_either_side(nodes):
    port = free_port()
    torch = [torchrun(nodes, port, "4", "127.0.0.2", host=True),
             torchrun(nodes, port, "4", "127.0.0.5")]
    ours = [muster(nodes, port, "4", "127.0.0.3", nproc=2), muster(nodes, port, "4", "127.0.0.4")]
    everybody = torch + ours
    first = [node.round() for node in everybody]
    agree(first, [1, 1, 2, 1])

    torch[1].fail_a_worker()
    for node in ours:
        assert "next round" in node.event("restart")["why"]
        node.tell("join")
    second = [node.round() for node in everybody]
    agree(second, [1, 1, 2, 1])
    assert [r["event"]["restart_count"] for r in second[2:]] == [0, 0]

    ours[0].tell("fail rank 3 exited with 1")
    ours[0].tell("join")
    assert "next round" in ours[1].event("restart")["why"]
    ours[1].tell("join")
    third = [node.round() for node in everybody]
    agree(third, [1, 1, 2, 1])
    assert [r["event"]["restart_count"] for r in third[2:]] == [1, 0]
    # torchrun nodes keep the first MASTER_ADDR that they read, so it must not change.
    assert first[0]["MASTER"] == second[0]["MASTER"] == third[0]["MASTER"]
    for node in torch:
        node.finish()
    for node in ours:
        node.tell("finish")
    for node in ours:
        assert node.event("end")["succeeded"] is True
    for node in torch:
        assert node.exit_code() == 0


def a_newcomer_of_torchrun_learns_the_address(nodes):
    """Scale-up: under torchrun alone, a node that joins a later round never learns MASTER_ADDR."""
    port = free_port()
    ours = muster(nodes, port, "2:3", "127.0.0.1")
    torch = torchrun(nodes, port, "2:3", "127.0.0.2", host=True)
    agree([ours.round(), torch.round()], [1, 1])
    late = torchrun(nodes, port, "2:3", "127.0.0.5")
    ours.event("restart")
    ours.tell("join")
    # The two other nodes may complete another round alone before the late node has joined.
    agree([harness.round_of_world(node, 3) for node in (ours, torch, late)], [1, 1, 1])


def a_newcomer_of_muster_learns_the_address_of_torchrun(nodes):
    """A torchrun rank 0 publishes MASTER_ADDR only in its first round."""
    port = free_port()
    torch = torchrun(nodes, port, "1:2", "127.0.0.2", host=True)
    assert torch.round()["WORLD_SIZE"] == 1
    late = muster(nodes, port, "1:2", "127.0.0.3")
    agree([harness.round_of_world(late, 2), harness.round_of_world(torch, 2)], [1, 1])


def identical_workers_need_no_exchange(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True, nproc=2,
                     environment={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"})
    ours = muster(nodes, port, "2", "127.0.0.3", nproc=2, identical=1)
    agree([torch.round(), ours.round()], [2, 2])


def who_was_dropped_comes_back(nodes):
    """The other nodes drop the muster node while it is stopped, because its last heartbeat is too
    old. A torchrun node would never notice that it was dropped."""
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True)
    ours = muster(nodes, port, "2", "127.0.0.3")
    agree([torch.round(), ours.round()], [1, 1])
    # The log of a third node shows the state: this node is a spare and does not get a place.
    spare = muster(nodes, port, "2", "127.0.0.4")
    harness.wait_for("the spare sees the round", lambda: "2 nodes of 2 in round 0" in spare.log(),
                     told=spare.log)
    ours.stop()

    def age(state):
        for node in state.last_heartbeats:
            if node.addr == "127.0.0.3":
                state.last_heartbeats[node] -= timedelta(hours=1)
    harness.change_state(harness.store_client(port), "torch.rendezvous.t", age)
    agree([torch.round(), spare.round()], [1, 1])
    ours.process.send_signal(signal.SIGCONT)
    assert "have not heard from this one" in ours.event("restart")["why"]
    ours.tell("join")  # There is no free place: this node becomes the spare.
    spare.tell("leave")
    agree([torch.round(), ours.round()], [1, 1])


def a_killed_muster_node_is_replaced(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True)
    ours = muster(nodes, port, "2", "127.0.0.3")
    agree([torch.round(), ours.round()], [1, 1])
    ours.kill()
    other = muster(nodes, port, "2", "127.0.0.4")
    torch.fail_a_worker()  # On a real node the workers' collectives would fail after some time.
    agree([torch.round(), other.round()], [1, 1])


def a_spare_takes_over_at_once_from_who_leaves(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True)
    ours = muster(nodes, port, "2", "127.0.0.3")
    agree([torch.round(), ours.round()], [1, 1])
    spare = muster(nodes, port, "2", "127.0.0.4")
    harness.wait_for("the spare sees the round", lambda: "in round 0" in spare.log(),
                     told=spare.log)
    ours.tell("leave")
    agree([torch.round(), spare.round()], [1, 1])


def a_late_node_restarts_nobody_if_it_is_told_so(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "1:2", "127.0.0.2", restarts=100, host=True)
    assert torch.round()["WORLD_SIZE"] == 1
    late = muster(nodes, port, "1:2", "127.0.0.3", scale_policy="at-restart")
    harness.wait_for("it sees the round", lambda: "in round 0" in late.log(), told=late.log)
    # A new round is open to the late node for one second. If the late node does not join in time,
    # it waits for the next failure.
    failures = 0
    world_size = 1
    while world_size == 1:
        torch.fail_a_worker()
        failures += 1
        joint = torch.round()
        world_size = joint["WORLD_SIZE"]
    agree([joint, late.round()], [1, 1])
    # torchrun counts its own workers' failures, but not the restarts that other nodes cause.
    assert joint["event"]["TORCHELASTIC_RESTART_COUNT"] == str(failures), joint


def a_marked_spare_comes_in_when_a_node_lacks(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2:3", "127.0.0.2", host=True)
    ours = muster(nodes, port, "2:3", "127.0.0.3")
    agree([torch.round(), ours.round()], [1, 1])
    spare = muster(nodes, port, "2:3", "127.0.0.4", spare="true")
    harness.wait_for("it sees the round", lambda: "in round 0" in spare.log(), told=spare.log)
    assert ours.events.empty()
    ours.kill()
    torch.fail_a_worker()  # On a real node the workers' collectives would fail after some time.
    second = torch.round()
    agree([second, spare.round()], [1, 1])
    assert second["event"]["TORCHELASTIC_RESTART_COUNT"] == "1", second


def a_spare_ends_well_when_the_run_does(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True)
    ours = muster(nodes, port, "2", "127.0.0.3")
    agree([torch.round(), ours.round()], [1, 1])
    # The muster node closes the run while the torchrun host, and so the store, still runs.
    spare = muster(nodes, port, "2", "127.0.0.4")
    harness.wait_for("the spare sees the round", lambda: "in round 0" in spare.log(),
                     told=spare.log)
    ours.tell("give_up enough")
    assert ours.event("end")["succeeded"] is False
    assert spare.event("end")["succeeded"] is True


def who_gives_up_ends_the_run_for_muster_nodes(nodes):
    """The run is closed and no node is at the exit barrier. With torchrun nodes only, the other
    nodes' workers would run on."""
    port = free_port()
    torch = torchrun(nodes, port, "3", "127.0.0.2", host=True)
    ours = [muster(nodes, port, "3", "127.0.0.3"), muster(nodes, port, "3", "127.0.0.4")]
    agree([torch.round()] + [node.round() for node in ours], [1, 1, 1])
    ours[0].tell("give_up rank 1 exited with 1")
    assert ours[0].event("end")["succeeded"] is False
    end = ours[1].event("end")
    assert end["succeeded"] is False and "given up" in end["why"]


def the_host_dies_and_the_workers_go_on(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True)
    harness.wait_until_listening(port)  # torchrun may take longer to start than the limit below.
    ours = muster(nodes, port, "2", "127.0.0.3", read_timeout=READ_TIMEOUT_S)
    agree([torch.round(), ours.round()], [1, 1])
    torch.kill()
    harness.wait_for("the loss is told", lambda: "rendezvous_store_lost" in ours.log(),
                     told=ours.log)
    assert ours.events.empty()
    ours.tell("finish")
    assert ours.event("end")["succeeded"] is True


def the_host_dies_and_a_new_round_fails_with_words(nodes):
    port = free_port()
    torch = torchrun(nodes, port, "2", "127.0.0.2", host=True)
    harness.wait_until_listening(port)  # torchrun may take longer to start than the limit below.
    ours = muster(nodes, port, "2", "127.0.0.3", read_timeout=READ_TIMEOUT_S)
    agree([torch.round(), ours.round()], [1, 1])
    torch.kill()
    ours.tell("fail rank 1 exited with 1")
    ours.tell("join")
    reason = ours.event("failed")["reason"]
    assert f"localhost:{port}" in reason and "read_timeout" in reason, reason


if __name__ == "__main__":
    harness.needs_torch()
    harness.run_tests([one_and_one_torch_is_rank_0, one_and_one_muster_is_rank_0,
                       two_and_two_with_restarts_from_either_side,
                       a_newcomer_of_torchrun_learns_the_address,
                       a_newcomer_of_muster_learns_the_address_of_torchrun,
                       identical_workers_need_no_exchange, who_was_dropped_comes_back,
                       a_killed_muster_node_is_replaced,
                       a_spare_takes_over_at_once_from_who_leaves,
                       a_late_node_restarts_nobody_if_it_is_told_so,
                       a_marked_spare_comes_in_when_a_node_lacks,
                       a_spare_ends_well_when_the_run_does,
                       who_gives_up_ends_the_run_for_muster_nodes,
                       the_host_dies_and_the_workers_go_on,
                       the_host_dies_and_a_new_round_fails_with_words], sys.argv[1:])
