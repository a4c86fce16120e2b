"""Tests jobs of several muster nodes: rounds, failures, and nodes that come and go."""
import os
import signal
import time

from nodes import NodesTest
from ports import free_port
from support import agent_of, main, wait_for


class Rounds(NodesTest):
    def test_two_nodes_meet_and_finish(self):
        self.node("a", 2, "--nproc-per-node=2")
        self.node("b", 2, "--nproc-per-node=3")
        workers = self.round_of(5)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in workers}, {"0"})
        self.assertEqual({e["MASTER_ADDR"] for e in workers}, {"127.0.0.1"})
        self.tell("finish")
        self.ends(a=0, b=0)
        self.assert_nothing_left()

    def test_generations_begin_at_the_clock_in_milliseconds(self):
        # Otherwise a checkpoint of an agent's run would be older than one of a run at musterd.
        before = time.time_ns() // 1_000_000
        _, out, _ = self.run_muster("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint()}",
                                    "--rdzv-conf=last_call_timeout=1", "--no-python", "sh", "--", "-c",
                                    "echo $MUSTER_GENERATION", expect=0)
        self.assertGreaterEqual(int(out), before)

    def test_the_nodes_may_come_in_any_order(self):
        self.node("b", 3, "--rdzv-conf=is_host=false")
        self.node("c", 3, "--rdzv-conf=is_host=false")
        wait_for(lambda: len(self.token.processes()) >= 2, "both")
        self.node("a", 3)
        self.assertEqual(self.round_of(3)[0]["node"], "a")  # The host is rank 0.
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_node_rank_orders_the_nodes(self):
        self.node("c", 3, "--node-rank=2")
        self.node("a", 3, "--node-rank=0")
        self.node("b", 3, "--node-rank=1")
        self.assertEqual([e["node"] for e in self.round_of(3)], ["a", "b", "c"])
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_a_schedulers_index_orders_the_nodes(self):
        self.node("b", 2, env={"SLURM_NODEID": "1"})
        self.node("a", 2, env={"SLURM_NODEID": "0"})
        self.assertEqual([e["node"] for e in self.round_of(2)], ["a", "b"])
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_roles_are_counted_apart(self):
        self.node("a", 2, "--role=train", "--node-rank=0", "--nproc-per-node=2")
        self.node("b", 2, "--role=serve", "--node-rank=1")
        workers = self.round_of(3)
        self.assertEqual([(e["ROLE_RANK"], e["ROLE_WORLD_SIZE"]) for e in workers],
                         [("0", "2"), ("1", "2"), ("0", "1")])
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_one_node_with_a_network_rendezvous_needs_no_other(self):
        self.node("a", "1:1")
        self.round_of(1)
        self.tell("finish")
        self.ends(a=0)


    def test_two_jobs_of_one_node_may_have_the_same_endpoint(self):
        self.node("a", 1, "--rdzv-id=first")
        self.round_of(1)
        self.node("b", 1, "--rdzv-id=second")
        self.round_of(1, after=1, nodes="b")
        self.tell("finish.a")
        self.ends(a=0)
        self.tell("finish.b")
        self.ends(b=0)


class Failures(NodesTest):
    def test_a_failure_restarts_everybody_and_is_counted_once(self):
        for tag in "abc":
            self.node(tag, 3, "--max-restarts=2")
        first = self.round_of(3)
        self.tell("exit.b", "7")
        second = self.round_of(3, after=3)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"1"})
        # Nodes keep their ranks.
        self.assertEqual([e["node"] for e in second], [e["node"] for e in first])
        self.tell("exit.c", "7")
        third = self.round_of(3, after=6)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in third}, {"2"})
        self.tell("finish")
        self.ends(a=0, b=0, c=0)

    def test_the_last_failure_ends_the_job_on_all_nodes_which_name_the_failed_rank(self):
        for tag in "abc":
            self.node(tag, 3)
        self.round_of(3)
        self.tell("exit.b", "7")
        self.ends(a=1, b=1, c=1)
        self.assertIn("exitcode  : 7", self.read("err.b"))
        for tag in "ac":
            self.assertRegex(self.read("err." + tag), r"the job has failed: .*rank \d exited with 7")
        self.assert_nothing_left()

    def test_a_failing_host_ends_the_job_everywhere(self):
        self.node("a", 2, "--node-rank=0")
        self.node("b", 2, "--node-rank=1", "--rdzv-conf=is_host=false")
        self.round_of(2)
        self.tell("exit.a", "3")
        self.ends(a=1, b=1)
        self.assertIn("rank 0 exited with 3", self.read("err.b"))

    def test_a_program_that_is_not_there_ends_the_job_everywhere(self):
        self.node("a", 2)
        self.node("b", 2, "--no-python", command=["./not-there"])
        self.ends(a=1, b=1)
        self.assertIn("./not-there", self.read("err.a"))
        self.assertIn("./not-there", self.read("err.b"))

    def test_settings_that_differ_are_refused_with_both_sides_named(self):
        self.node("a", 2)
        wait_for(lambda: "waiting for" in self.read("err.a"), "a to wait")
        self.node("b", 3, "--rdzv-conf=is_host=false")
        self.ends(b=1)
        self.assertRegex(self.read("err.b"), r"this node \(\S+\) has --nnodes=3, and the host has --nnodes=2: give all nodes the same")
        self.node("c", 2)
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, c=0)

    def test_static_nodes_that_differ_in_their_number_end_with_both_sides_named(self):
        self.arguments = lambda tag, nnodes, extra: [f"--nnodes={nnodes}", "--master-addr=127.0.0.1",
                                                     f"--master-port={self.port}", *extra]
        self.node("a", 4, "--node-rank=1")
        self.node("b", 2, "--node-rank=0")
        self.ends(a=1, b=1)
        for tag in "ab":
            said = self.read(f"err.{tag}")
            self.assertIn("the nodes differ in --nnodes", said)
            self.assertIn("--nnodes=4", said)
            self.assertIn("--nnodes=2", said)

    def test_a_static_host_ends_when_the_others_have_read_why(self):
        self.arguments = lambda tag, nnodes, extra: [f"--nnodes={nnodes}", "--master-addr=127.0.0.1",
                                                     f"--master-port={self.port}", *extra]
        self.node("host", 3, "--node-rank=0")
        slow = self.node("slow", 3, "--node-rank=1")
        wait_for(lambda: "waiting for node rank 0, which assigns" in self.read("err.slow"), "the slow node to wait")
        agent = agent_of(slow.pid)
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: slow.poll() is None and os.kill(agent, signal.SIGCONT))
        self.node("other", 5, "--node-rank=2")
        wait_for(lambda: "the nodes differ" in self.read("err.host"), "the host to end")
        time.sleep(0.5)
        os.kill(agent, signal.SIGCONT)
        self.ends(host=1, slow=1, other=1)
        self.assertIn("the nodes differ in --nnodes", self.read("err.slow"))


class Membership(NodesTest):
    def test_a_killed_node_is_missed_at_once(self):
        for tag in "abcd":
            self.node(tag, "2:4", "--rdzv-conf=last_call_timeout=600" +
                      ("" if tag == "a" else ",is_host=false"))
        self.round_of(4)
        begin = time.monotonic()
        self.kill("c")
        second = self.round_of(3, after=4, nodes="abd")
        # The nodes have waited neither for a lease nor for a last call.
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"0"})
        self.tell("finish")
        self.ends(a=0, b=0, d=0)

    def test_a_replacement_takes_the_place_and_the_rank(self):
        self.node("a", 2, "--node-rank=0")
        self.node("b", 2, "--node-rank=1", "--rdzv-conf=is_host=false")
        self.round_of(2)
        self.kill("b")
        wait_for(lambda: "is missing" in self.read("err.a") or "waiting for" in self.read("err.a"),
                 "a to say whom it waits for")
        self.node("c", 2, "--rdzv-conf=is_host=false")
        second = self.round_of(2, after=2, nodes="ac")
        self.assertEqual([e["node"] for e in second], ["a", "c"])
        self.tell("finish")
        self.ends(a=0, c=0)

    def test_a_late_joiner_makes_the_world_larger(self):
        conf = "--rdzv-conf=last_call_timeout=1"
        self.node("a", "1:2", conf)
        self.round_of(1)
        self.node("b", "1:2", conf, )
        second = self.round_of(2, after=1)
        self.assertEqual(second[0]["node"], "a")
        self.assertEqual({e["TORCHELASTIC_RESTART_COUNT"] for e in second}, {"0"})
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_late_joiner_may_have_to_wait_for_a_restart(self):
        more = ["--rdzv-conf=last_call_timeout=1", "--scale-policy=at-restart", "--max-restarts=1"]
        self.node("a", "1:2", *more)
        self.round_of(1)
        self.node("b", "1:2", *more)
        wait_for(lambda: "waiting for" in self.read("err.b"), "b to wait")
        self.assertEqual(len(self.starts()), 1)
        self.tell("exit.a", "1")
        self.round_of(2, after=1)
        self.tell("finish")
        self.ends(a=0, b=0)

    def test_a_spare_steps_in(self):
        self.node("a", 2)
        self.node("b", 2, "--rdzv-conf=is_host=false")
        self.round_of(2)
        self.node("s", 2, "--spare")
        wait_for(lambda: "waiting for" in self.read("err.s"), "the spare to wait")
        self.kill("b")
        self.round_of(2, after=2, nodes="as")
        self.tell("finish")
        self.ends(a=0, s=0)

    def test_a_spare_that_is_never_needed_ends_well(self):
        self.node("a", 1)
        self.round_of(1)
        self.node("s", 1, "--spare")
        wait_for(lambda: "waiting for" in self.read("err.s"), "the spare to wait")
        self.tell("finish")
        self.ends(a=0, s=0)

    def test_a_signal_takes_one_node_out_and_the_others_go_on(self):
        for tag in "ab":
            self.node(tag, "1:2", *([] if tag == "a" else ["--rdzv-conf=is_host=false"]))
        self.round_of(2)
        self.nodes["b"].send_signal(signal.SIGTERM)
        self.ends(b=1)
        self.round_of(1, after=2, nodes="a")
        self.tell("finish")
        self.ends(a=0)

    def test_a_node_that_finishes_first_waits_for_the_others(self):
        self.node("a", 2)
        self.node("b", 2, "--rdzv-conf=is_host=false")
        self.round_of(2)
        self.tell("finish.b")
        self.worker_ended("b")
        self.assertIsNone(self.nodes["b"].poll())
        self.tell("finish.a")
        self.ends(a=0, b=0)

    def test_a_failure_after_others_have_finished_is_known_at_once(self):
        self.node("a", 2)
        self.node("b", 2, "--rdzv-conf=is_host=false")
        self.round_of(2)
        self.tell("finish.b")
        self.node_finished("b")
        self.tell("exit.a", "5")
        self.ends(a=1)
        self.ends(b=0)
        self.assertIn("exited with 5", self.read("err.b"))


class Waiting(NodesTest):
    def test_an_unreachable_host_is_an_error_with_reason_and_option(self):
        self.node("b", 2, "--rdzv-conf=is_host=false,read_timeout=1")
        self.ends(b=1)
        text = self.read("err.b")
        self.assertIn(f"cannot reach the rendezvous at {self.endpoint()}", text)
        self.assertIn("refused", text)
        self.assertIn("read_timeout", text)

    def test_a_join_that_takes_too_long_names_the_nodes_that_have_joined(self):
        self.node("a", 2, "--rdzv-conf=join_timeout=1")
        self.ends(a=1)
        self.assertRegex(self.read("err.a"), r"no round within 1 s .*join_timeout.*1 .*2")

    def test_a_signal_while_waiting_is_answered_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            node = self.node("a", 2)
            wait_for(lambda: "waiting for" in self.read("err.a"), "a to wait")
            node.send_signal(number)
            self.ends(a=-number)

    def test_a_wait_says_for_whom_where_until_when_and_what_they_must_run(self):
        for address, doubt in (("127.0.0.1", "127.0.0.1 means this machine alone, so no other machine can come"),
                               ("203.0.113.7", "203.0.113.7 is no address of this machine, but node rank 0 hosts the store "
                                               "there: is this node another rank")):
            port = free_port()
            more = f"--master-port={port}"
            process = self.start("--nnodes=2", "--node-rank=0", f"--master-addr={address}", more, "--no-python", "true")
            wait_for(lambda: "waiting for node rank 1" in self.read("err"), "node 0 to wait")
            said = self.read("err")
            self.assertIn(f"waiting for node rank 1 at {address}:{port}, for 900 s at most (--rdzv-conf timeout); each "
                          f"missing node runs the same command with its own --node-rank, --master-addr={address} and {more}", said)
            self.assertIn(doubt, said)
            process.kill()
            process.wait()

    def test_a_silent_stranger_does_not_hang_us(self):
        import socket
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            self.port = stranger.getsockname()[1]
            self.node("a", 2, "--rdzv-conf=is_host=false,read_timeout=1")
            self.ends(a=1)
            self.assertIn("did not answer in time (it accepts connections: is another program at this port?)",
                          self.read("err.a"))

    def test_a_join_timeout_alone_bounds_a_host_that_accepts_and_never_answers(self):
        import socket
        import time
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            self.port = stranger.getsockname()[1]
            begun = time.monotonic()
            self.node("a", 2, "--rdzv-conf=is_host=false,join_timeout=3")
            self.ends(a=1)
            self.assertLess(time.monotonic() - begun, 25)
            self.assertIn("tried for 3 s; --rdzv-conf join_timeout=SECONDS", self.read("err.a"))

    def test_a_port_in_use_is_named_where_this_node_must_host(self):
        import socket
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            self.port = holder.getsockname()[1]
            self.node("a", 2, "--rdzv-conf=is_host=true")
            self.ends(a=1)
            self.assertIn(str(self.port), self.read("err.a"))
            self.assertIn("in use", self.read("err.a"))


if __name__ == "__main__":
    main()
