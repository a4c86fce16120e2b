// A run service whose state is recorded: effects wait until changes are durable, and a restarted
// service continues with the record.

#include "tests/unit/rendezvous/host/run_recording_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE_METHOD(RecordingTest, "recording: no node gets a rank before it is durable",
                 "[unit][rendezvous]") {
  two_join();
  CHECK(take().empty());
  REQUIRE(turn_ends());
  CHECK(take().empty());
  commit();
  REQUIRE(messages<PrepareStore>().size() == 1);
  tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
  REQUIRE(turn_ends());
  CHECK(take().empty());
  commit();
  CHECK(messages<RoundComplete>().size() == 2);
  CHECK_FALSE(turn_ends());
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: with a shared state nothing is sent while writing fails",
                 "[unit][rendezvous]") {
  RunServiceOptions options;
  options.recorded = options.shared_state = true;
  reset(std::move(options));
  state.begin_host();
  service->restore(state.load(), at());
  two_join();
  REQUIRE(turn_ends());
  service->recorded({.durable = 0, .problem = "no majority"}, at());
  CHECK(messages<PrepareStore>().empty());
  CHECK(service->state_problem() == "no majority");
  CHECK_THAT(*service->operate("job", {OperatorAsked::What::Exclude, "host1"}, at(), 5),
             Catch::Contains("no majority"));
  now += std::chrono::minutes(1);
  service->time_passed(at());
  CHECK(messages<PrepareStore>().empty());
  commit();
  CHECK(messages<PrepareStore>().size() == 1);
}

TEST_CASE_METHOD(RecordingTest, "recording: a keep-alive is answered without the disk",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  const auto answer = tell(2, KeptAlive{});
  REQUIRE(answer.reply);
  CHECK(std::holds_alternative<NativeAlive>(*answer.reply));
  CHECK(take().empty());
}

TEST_CASE_METHOD(RecordingTest, "recording: messages for a closed connection go to no other client",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  const bool are_taken = GENERATE(true, false);
  if (are_taken) CHECK(take().empty());
  service->disconnect({2}, at());
  hello_resumes(2);  // Another client with the same number.
  end_turn();
  const auto told = messages<RestartRound>();
  CHECK(told.contains(1));
  CHECK_FALSE(told.contains(2));
}

TEST_CASE_METHOD(RecordingTest, "recording: a restarted host knows the round and resumes it",
                 "[unit][rendezvous]") {
  two_recorded();
  begin_recorded();
  REQUIRE(service->rendezvous("job") != nullptr);
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
  CHECK(service->rendezvous("job")->generation() == rounds.at(1).generation);
  resume(1, 11);
  resume(2, 12);
  end_turn();
  CHECK(messages<Resumed>().size() == 2);
  CHECK_THAT(notes, Catch::Contains("round_resumed run=job round=0"));
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a node that does not come back is lost, and the others meet again",
                 "[unit][rendezvous]") {
  two_recorded();
  begin_recorded();
  resume(1, 11);
  end_turn();
  CHECK(messages<Resumed>().size() == 1);
  service->time_passed(at(3s));
  tell(11, KeptAlive{});
  service->time_passed(at(3s));
  end_turn();
  CHECK(messages<RestartRound>().at(11).cause == RestartCause::NodeLost);
}

TEST_CASE_METHOD(RecordingTest, "recording: if no node is back yet, none is lost for ten minutes",
                 "[unit][rendezvous]") {
  two_recorded();
  begin_recorded();
  service->time_passed(at(9min));
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
  service->time_passed(at(1min));
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Gathering);
}

TEST_CASE_METHOD(RecordingTest, "recording: the next agent that hosts waits for the lease only",
                 "[unit][rendezvous]") {
  begin_handed_over();
  CHECK_FALSE(service->has_state(kKey));  // The run is unknown until a node comes.
  two_recorded();
  begin_handed_over();
  service->time_passed(at(5900ms));
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
  service->time_passed(at(100ms));
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Gathering);
}

TEST_CASE_METHOD(RecordingTest, "recording: an agent that hosts is not the run's last host",
                 "[unit][rendezvous]") {
  begin_handed_over();
  const auto answer = tell(7, NativeHello{kNativeProtocolVersion, "9.9", "job", true});
  CHECK(std::get<NativeWelcome>(*answer.reply).outlives_nodes);
  CHECK_FALSE(tell(8, NativeHello{kNativeProtocolVersion, "9.9", "other", true}).close.empty());
  two_recorded();
  const std::int64_t generation = rounds.at(1).generation;
  for (const std::uint32_t client : {1, 2})
    tell(client, NodeFinished{{}, 0, true, ""});
  end_turn();
  CHECK(messages<RunEnded>().size() == 2);
  // The next host tells the outcome to a node of the run. New nodes begin a new run.
  begin_handed_over();
  resume(2, 12, NodeResumed::State::Finished);
  end_turn();
  CHECK(messages<RunEnded>().at(12).succeeded);
  service->disconnect({12}, at());
  agents = " of the new run";
  two_recorded();
  CHECK(rounds.at(1).restart_count == 0);
  CHECK(rounds.at(1).generation > generation);
}

TEST_CASE_METHOD(RecordingTest, "recording: a restart that was counted is not counted again",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  state.commit();  // The restart is durable, but no node was told.
  begin_recorded();
  CHECK(service->rendezvous("job")->restarts_used() == 1);
  resume(2, 12);
  end_turn();
  CHECK_THAT(messages<Rejoin>().at(12).why, Catch::Contains("rank 0 exited with 1"));
  CHECK(service->rendezvous("job")->restarts_used() == 1);
}

TEST_CASE_METHOD(RecordingTest, "recording: the first failure is known after two further hosts",
                 "[unit][rendezvous]") {
  const auto failure = [this] {
    const auto view = service->view_run("job", {}, at());
    return view->summary.first_failure;
  };
  two_recorded();
  CHECK_FALSE(failure());
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  end_turn();
  const RunEvent before = *failure();
  for (int i = 0; i < 2; ++i) {
    at(30s);
    begin_recorded();
    at(5s);
    const RunEvent now_known = *failure();
    CHECK(now_known.kind == RunEvent::Kind::RoundRestarts);
    CHECK(now_known.cause == RestartCause::WorkersFailed);
    CHECK(now_known.node == before.node);
    CHECK(now_known.rank == before.rank);
    CHECK(now_known.round == 0);
    CHECK(now_known.text == "rank 0 exited with 1");
    CHECK(std::chrono::abs(now_known.at - before.at) <= 1ms);
    service->time_passed(at(3s));  // The nodes are lost, which is no first failure.
    end_turn();
  }
}

TEST_CASE_METHOD(RecordingTest, "recording: a later host shows an ended run with its failure",
                 "[unit][rendezvous]") {
  kept_ended_runs = 2;
  begin_recorded();
  two_recorded();
  const auto report = [](const std::string& last_lines) {
    return NodeReport{
        .from = {},
        .round = 0,
        .starts = 1,
        .workers = 1,
        .listed = {},
        .failure = FailureReport{
            .exit = "exited with 3", .because = {}, .message = {}, .stderr_end = last_lines}};
  };
  tell(1, report(""));
  tell(1, NodeFinished{{}, 0, false, "rank 0 exited with 3"});
  end_turn();
  tell(1, report("ValueError: boom"));  // After the end of the run.
  for (const std::uint32_t client : {1, 2})
    service->disconnect({client}, at());
  end_turn();
  for (int host = 0; host < 2; ++host) {
    at(24h);
    begin_recorded();
    service->time_passed(at(1h));
    const auto view = service->view_run("job", {0, 10}, at());
    REQUIRE(view);
    CHECK(view->summary.state == RunStanding::Failed);
    REQUIRE(view->summary.ended_before);
    CHECK(std::chrono::abs(*view->summary.ended_before - (host + 1) * 25h) < 1s);
    REQUIRE(view->summary.began_before);
    CHECK(std::chrono::abs(*view->summary.began_before - (host + 1) * 25h) < 1s);
    REQUIRE(view->first_failure_report);
    CHECK(view->first_failure_report->stderr_end == "ValueError: boom");
    end_turn();
  }
  // Another run of this id has it as the run before, also at the next host.
  hello(5, "job");
  join(5, 1);
  end_turn();
  begin_recorded();
  const auto next = service->view_run("job", {0, 10}, at());
  REQUIRE(next);
  CHECK(next->summary.state != RunStanding::Failed);
  REQUIRE(next->previous);
  CHECK(next->previous->failure_report->stderr_end == "ValueError: boom");
  CHECK(next->previous->first_failure.has_value());
}

TEST_CASE_METHOD(RecordingTest, "recording: a first failure of a node without a rank is known, too",
                 "[unit][rendezvous]") {
  two_recorded();
  spare_joins(3);
  end_turn();
  service->disconnect({3}, at());
  service->time_passed(at(2s));
  end_turn();
  const auto before = service->view_run("job", {}, at())->summary.first_failure;
  REQUIRE(before);
  begin_recorded();
  const auto after = service->view_run("job", {}, at())->summary.first_failure;
  REQUIRE(after);
  CHECK(after->node == before->node);
}

TEST_CASE_METHOD(RecordingTest, "recording: a node was not lost before the host was started",
                 "[unit][rendezvous]") {
  at(24h);
  two_recorded();
  tell(2, NodeLeft{});
  end_turn();
  begin_recorded();
  const auto view = service->view_run("job", {}, at(2s));
  int gone = 0;
  for (const MissingNode& node : view->missing) {
    if (node.expected) continue;
    ++gone;
    CHECK((node.since && *node.since <= 2s));
  }
  CHECK(gone == 1);
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: kept-out nodes and strikes are durable before the operator's answer",
                 "[unit][rendezvous]") {
  using What = OperatorAsked::What;
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  end_turn();
  take();
  CHECK(service->operate("job", {What::Exclude, "host1"}, at(), 5) == "");
  CHECK(take().empty());
  REQUIRE(turn_ends());
  commit();
  const auto effects = take();
  REQUIRE(effects.size() == 1);
  const auto& answer = std::get<OperatorAnswered>(effects.front());
  CHECK(answer.number == 5);
  CHECK_THAT(answer.text, Catch::Contains("warning: without it 1 node is left"));
  CHECK_THAT(answer.text, !Catch::Contains("recorded"));
  begin_recorded();
  hello_resumes(11);
  NodeJoined again = joining(1);
  again.instance = "another instance";
  tell(11, again);
  end_turn();
  const auto view = service->view_run("job", {0, 9}, at());
  REQUIRE(view);
  CHECK(view->kept_out == std::vector<KeptOutEntry>{{"host1", KeptOutHow::Excluded}});
  CHECK(view->strikes == std::vector<HostStrikes>{{"host1", {1, 0}}});
  CHECK(view->nodes.back().state == NodeState::KeptOut);
  CHECK(service->operate("job", {What::Allow, "host1"}, at()) == "");
  end_turn();
  begin_recorded();
  CHECK(service->view_run("job", {0, 9}, at())->kept_out.empty());
  service->recorded({.durable = 0, .problem = "disk full"}, at());
  CHECK(service->operate("job", {What::Exclude, "host2"}, at(), 6) == "");
  std::string told;
  for (const RunEffect& effect : take())
    if (const auto* answered = std::get_if<OperatorAnswered>(&effect)) told = answered->text;
  CHECK_THAT(told, Catch::Contains("warning: this change cannot be recorded now (disk full)"));
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a change that was not durable is undone by the next host",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  begin_recorded();
  CHECK(service->rendezvous("job")->restarts_used() == 0);
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a round that was complete, but recorded as prepared, goes on",
                 "[unit][rendezvous]") {
  two_join();
  end_turn();
  tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
  REQUIRE(turn_ends());
  service->recorded({.durable = 0, .problem = "disk is full"}, at());
  rounds = messages<RoundComplete>();
  REQUIRE(rounds.size() == 2);
  begin_recorded();
  REQUIRE(service->rendezvous("job")->phase() == Rendezvous::Phase::Preparing);
  SECTION("with nodes that have heard it") {
    resume(2, 12);
    resume(1, 11);
    end_turn();
    std::size_t resumed = 0;
    for (const RunEffect& effect : take()) {
      if (const auto* sent = std::get_if<SendNative>(&effect))
        resumed += std::holds_alternative<Resumed>(sent->message) ? 1U : 1000U;
    }
    CHECK(resumed == 2);  // No other message: a RoundComplete would begin the round once more.
  }
  SECTION("with one that has not") {
    hello_resumes(11);
    tell(11, joining(1));  // On a new connection, which replaces the old one.
    resume(2, 12);
    end_turn();
    CHECK(messages<RoundComplete>().count(11) == 1);
  }
  SECTION("with one that has finished already") {
    resume(2, 12, NodeResumed::State::Finished);
    resume(1, 11, NodeResumed::State::Finished);
    end_turn();
    CHECK(messages<RunEnded>().at(11).succeeded);
    return;
  }
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Running);
  CHECK(service->rendezvous("job")->generation() == rounds.at(1).generation);
}

TEST_CASE_METHOD(RecordingTest, "recording: finished nodes and the outcome are remembered",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(2, NodeFinished{{}, 0, true, {}});
  end_turn();
  begin_recorded();
  resume(1, 11, NodeResumed::State::Finished);
  end_turn();
  CHECK(messages<RunEnded>().at(11).succeeded);
  begin_recorded();
  resume(2, 22, NodeResumed::State::Finished);
  end_turn();
  CHECK(messages<RunEnded>().at(22).why == "every node has finished");
  REQUIRE(service->history().size() == 1);
  CHECK(service->history().front().run_id == "job");
  CHECK(service->history().front().nodes == 2);
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a spare that comes back after the end of the run is told so",
                 "[unit][rendezvous]") {
  two_recorded();
  const NodeJoined spare = spare_joins(3);
  end_turn();
  begin_recorded();
  resume(1, 11);
  resume(2, 12);
  for (const std::uint32_t client : {11, 12})
    tell(client, NodeFinished{{}, 0, true, {}});
  end_turn();
  const bool also_later = GENERATE(false, true);
  if (also_later) begin_recorded();
  hello_resumes(13);
  tell(13, spare);
  end_turn();
  const auto ended = messages<RunEnded>();
  REQUIRE(ended.contains(13));
  CHECK(ended.at(13).succeeded);
  spare_joins(4);  // Of the next job of this id.
  end_turn();
  CHECK_FALSE(messages<RunEnded>().contains(4));
  CHECK_THAT(notes, Catch::Contains("run_begins_again run=job"));
}

TEST_CASE_METHOD(RecordingTest, "recording: an ended run is forgotten on disk, too",
                 "[unit][rendezvous]") {
  two_recorded();
  for (const std::uint32_t client : {1, 2})
    tell(client, NodeFinished{{}, 0, true, {}});
  for (const std::uint32_t client : {1, 2})
    service->disconnect({client}, at());
  end_turn();
  CHECK(state.runs() == 1);
  service->time_passed(at(61s));
  end_turn();
  CHECK(state.runs() == 0);
  CHECK(state.load().ended.size() == 1);
}

TEST_CASE_METHOD(RecordingTest, "recording: the nodes' round counts if it is newer than the record",
                 "[unit][rendezvous]") {
  two_recorded();
  const StoredState old = state.load();
  // The disk fails, so no host records anything. Each host learns the round from the nodes.
  for (std::uint32_t host = 1; host <= 3; ++host) {
    reset({.recorded = true});
    service->restore(old, at());
    resume(1, 10 * host + 1, NodeResumed::State::Running, 3);
    CHECK(messages<Resumed>().empty());
    resume(2, 10 * host + 2, NodeResumed::State::Running, 3);
    end_turn();
    const auto resumed = messages<Resumed>();
    REQUIRE(resumed.size() == 2);
    CHECK(resumed.at(10 * host + 1).generation == rounds.at(1).generation + 3);
    CHECK(service->rendezvous("job")->round() == 3);
    for (auto& [client, round] : rounds)
      round.life = resumed.at(10 * host + client).life;
  }
}

TEST_CASE_METHOD(RecordingTest, "recording: a last call goes on where it was",
                 "[unit][rendezvous]") {
  hello_resumes(1);
  NodeJoined joined = joining(1);
  joined.run = {.min_nodes = 1, .max_nodes = 2, .last_call_timeout = 30s};
  tell(1, joined);
  end_turn();
  now += 20s;
  tell(1, KeptAlive{});
  // The record contains the time that the last call has left.
  StoredState stored = state.load();
  REQUIRE(stored.runs.size() == 1);
  CHECK(stored.runs.front().record.last_call_left == Duration(30s));
  stored.runs.front().record.last_call_left = 10s;
  reset({.recorded = true});
  service->restore(std::move(stored), at());
  hello_resumes(2);
  joined.from = {2};
  tell(2, joined);
  service->time_passed(at(9s));
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Gathering);
  tell(2, KeptAlive{});
  service->time_passed(at(1s));
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Preparing);
}

// --- torchrun nodes ------------------------------------------------------------------------------

TEST_CASE_METHOD(RecordingTest, "recording: muster nodes of a mixed round meet again, once",
                 "[unit][rendezvous]") {
  const NodeName torch{"torch", 9, 0};
  RunRecord record{.settings = for_nodes(2),
                   .life = 5,
                   .round = 3,
                   .generation = 30,
                   .highest_generation = 30,
                   .had_round = true,
                   .complete = true,
                   .last_world = 2};
  MemberRecord muster{.name = {"host1", 1, 0}, .rank = 1, .instance = "instance1"};
  StoredState stored;
  stored.runs.push_back({"job", record, {muster, {.name = torch, .rank = 0, .native = false}}});
  reset({.recorded = true});
  service->restore(std::move(stored), at());
  CHECK(service->rendezvous("job")->phase() == Rendezvous::Phase::Gathering);
  rounds[1] = RoundComplete{.round = 3, .group_rank = {1}, .life = 5, .generation = 30};
  resume(1, 11);
  state.begin_host();
  end_turn();
  CHECK_THAT(messages<Rejoin>().at(11).why, Catch::Contains("torchrun nodes cannot resume"));
  CHECK(service->rendezvous("job")->round() == 4);
  CHECK_THAT(std::string(service->rendezvous("job")->reason()), Catch::Contains("torch_9_0"));
}

TEST_CASE_METHOD(RecordingTest,
                 "recording: a run is not forgotten while a failing disk forbids new ones",
                 "[unit][rendezvous]") {
  two_recorded();
  tell(1, WorkersFailed{{}, 0, "rank 0 exited with 1"});
  REQUIRE(turn_ends());
  service->recorded({.durable = 0, .problem = "disk is full"}, at());
  for (const std::uint32_t client : {1, 2})
    service->disconnect({client}, at());
  service->time_passed(at(1s));
  service->time_passed(at(61s));
  CHECK(service->runs() == 1);
  // A deadline in the past would keep the host busy.
  CHECK(service->next_deadline().value_or(now + 1s) > now);
  resume(1, 11);
  CHECK(messages<Rejoin>().contains(11));
  service->disconnect({11}, at());
  turn_ends();
  commit();
  CHECK(service->state_problem().empty());
  service->time_passed(at(61s));
  CHECK(service->runs() == 0);
}

}  // namespace
}  // namespace muster::testing
