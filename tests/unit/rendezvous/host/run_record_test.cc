// The record of a run, as a value and as text.

#include "tests/support/memory_state.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE("run records: written records are read back", "[unit][rendezvous]") {
  const NodeName who{"10.0.0.1", 7, 2};
  const RunRecord record{.settings = for_nodes(3),
                         .life = 9,
                         .round = 4,
                         .generation = 12,
                         .highest_generation = 13,
                         .had_round = true,
                         .complete = true,
                         .preparing = true,
                         .draining = true,
                         .closed = true,
                         .restarts_used = 2,
                         .prepare_failures = 1,
                         .last_world = 3,
                         .store = StoreAddress{"10.0.0.1", 29500},
                         .restart_who = who,
                         .restart_what = "why \"so\"\n",
                         .outcome = RunOutcome{false, who, "b\xc3\xa9"},
                         .last_call_left = 7s,
                         .ended_generation = 11,
                         .first_failure = RecordedFailure{.kind = RunEvent::Kind::NodeLost,
                                                          .at_ms = 17,
                                                          .round = 3,
                                                          .node = "a_1_0",
                                                          .rank = 2,
                                                          .cause = RestartCause::NodeLost,
                                                          .text = "it is gone"}};
  CHECK(*decode_run_record(encode(record)) == record);
  CHECK(*decode_run_record(encode(RunRecord{})) == RunRecord{});
  const MemberRecord member{.name = who,
                            .standing = MemberRecord::Standing::Lost,
                            .rank = 5,
                            .native = false,
                            .instance = "i",
                            .local_world_size = 8,
                            .role = "default",
                            .preferred_rank = -1,
                            .spare = true,
                            .hosts_rendezvous = true,
                            .why = "gone"};
  CHECK(*decode_member_record(encode(member)) == member);
  MemberRecord doomed{.name = who, .standing = MemberRecord::Standing::Member};
  for (const bool flag : {false, true}) {
    doomed.doom = RecordedDoom{1'700'000'000'123, "spot \"7\"", flag, !flag};
    CHECK(*decode_member_record(encode(doomed)) == doomed);
  }
  RunRecord stopped;
  stopped.settings.on_notice = OnNotice::Shrink;
  stopped.outcome = RunOutcome{false, std::nullopt, "a node will go", true};
  CHECK(*decode_run_record(encode(stopped)) == stopped);
  RunRecord hopeless;
  hopeless.settings.restart_policy = RestartPolicy{.on = true, .hangs = 1, .nodes = 8};
  hopeless.outcome = RunOutcome{false, who, "no progress", false, 3, true};
  for (const bool flag : {false, true}) {
    hopeless.restart_costs = RestartCosts{.failures = 5,
                                          .hangs = 1,
                                          .nodes = 2,
                                          .without_progress = 3,
                                          .since_progress = 4,
                                          .tells_progress = flag,
                                          .progressed = !flag,
                                          .judged = flag};
    if (flag) hopeless.restart_costs->best_step = 1'200;
    CHECK(*decode_run_record(encode(hopeless)) == hopeless);
  }
  for (const char* text : {"", "\"\\/", "\x01\n\x7f", "\xe2\x82\xac"}) {
    const MemberRecord odd{.name = {text, -1, 0}, .role = text, .why = text};
    CHECK(*decode_member_record(encode(odd)) == odd);
  }
  CHECK_THAT(encode(MemberRecord{.role = "\xff"}), Catch::Contains("\xef\xbf\xbd"));  // Not UTF-8.
  RunRecord over;
  over.ended_at_ms = 1'700'000'000'123;
  over.began_at_ms = 1'600'000'000'456;
  over.failure_report = FailureReport{.round = 4,
                                      .local_rank = 1,
                                      .rank = 9,
                                      .pid = 77,
                                      .exit = "exited with 3",
                                      .because = "it hung",
                                      .message = "boom",
                                      .stderr_end = "ValueError: boom"};
  CHECK(*decode_run_record(encode(over)) == over);
  over.previous =
      PreviousRun{.succeeded = false, .preempted = true, .why = "an operator has stopped it"};
  CHECK(*decode_run_record(encode(over)) == over);
  over.previous = PreviousRun{.succeeded = false,
                              .why = "rank 9 exited with 3",
                              .ended_at_ms = 1'500'000'000'789,
                              .restarts_used = 2,
                              .first_failure = RecordedFailure{.at_ms = 1'499'000'000'000,
                                                               .round = 4,
                                                               .node = "node9_1_0",
                                                               .rank = 5,
                                                               .cause = RestartCause::WorkersFailed,
                                                               .text = "rank 9 exited with 3"},
                              .failure_report = over.failure_report};
  CHECK(*decode_run_record(encode(over)) == over);
  const EndedRun ended{"job", 5, 4, 3, 2, 1, {false, who, "why"}};
  CHECK(*decode_ended_run(encode(ended)) == ended);
}

TEST_CASE("run records: an error names the wrong field", "[unit][rendezvous]") {
  CHECK(decode_run_record("[]").error().reason == "it is no JSON object");
  CHECK(decode_run_record("{").error().reason == "it is no JSON object");
  CHECK_THAT(decode_run_record("{}").error().reason, Catch::Contains("settings: missing"));
  std::string text = encode(RunRecord{});
  text.replace(text.find("\"round\":0"), 9, "\"round\":-1");
  CHECK_THAT(decode_run_record(text).error().reason, Catch::Contains("round: -1 is not within"));
  CHECK(
      decode_run_record(encode(RunRecord{}).insert(1, R"("of a later muster":[1],)")).has_value());
  CHECK_THAT(decode_member_record(R"({"name":{"addr":1}})").error().reason,
             Catch::Contains("name.addr: a text is wanted"));
}

TEST_CASE("state changes: later ones replace earlier ones", "[unit][rendezvous]") {
  const NodeName a{"a", 1, 0}, b{"b", 1, 0};
  StateChanges all;
  StateChanges first{.number = 1};
  first.add("job", {RunRecord{.round = 1}, {{.name = a, .rank = 0}, {.name = b, .rank = 1}}, {}});
  StateChanges second{.number = 2};
  second.add("job", {RunRecord{.round = 2}, {{.name = a, .rank = 1}}, {b}});
  second.ended = {{.run_id = "1"}, {.run_id = "2"}, {.run_id = "3"}};
  all.merge(std::move(first), 2);
  all.merge(std::move(second), 2);
  CHECK(all.number == 2);
  CHECK(all.runs.at("job").record->round == 2);
  CHECK(all.runs.at("job").members.at(a)->rank == 1);
  CHECK_FALSE(all.runs.at("job").members.at(b).has_value());
  REQUIRE(all.ended.size() == 2);
  CHECK(all.ended.front().run_id == "2");
  StateChanges third{.number = 3};
  third.remove("job");
  all.merge(std::move(third), 2);
  CHECK(all.runs.at("job").removed);
  CHECK_FALSE(all.runs.at("job").record.has_value());
  StateChanges fourth{.number = 4};
  fourth.add("job", {RunRecord{.round = 9}, {}, {}});
  all.merge(std::move(fourth), 2);
  CHECK(all.runs.at("job").removed);  // The old run is removed first.
  CHECK(all.runs.at("job").record->round == 9);
  CHECK(all.runs.at("job").members.empty());
}

TEST_CASE("recording: a first failure of no round, from an earlier muster, is read back",
          "[unit][rendezvous]") {
  RunRecord record;
  record.first_failure = RecordedFailure{.round = -1, .node = "a"};
  const auto read = decode_run_record(encode(record));
  REQUIRE(read.has_value());
  CHECK(read->first_failure->round == 0);
}

TEST_CASE("recording: fields that an older muster lacks are read back, and wrong ones are refused",
          "[unit][rendezvous]") {
  RunRecord record;
  CHECK(*decode_run_record(encode(record)) == record);  // Without lists, as from an older muster.
  for (std::size_t i = 0; i < kMaxKeptOut; ++i)
    record.kept_out.push_back({"node" + std::to_string(i), KeptOutHow::Drained});
  record.kept_out.back().how = KeptOutHow::Excluded;
  record.strikes = {{"b", {1, 0}}, {"a", {0, kMaxStrikes}}};
  record.lost_agents = {"instance1", "instance2"};
  record.uncounted_generation = kMaxGeneration;
  CHECK(*decode_run_record(encode(record)) == record);
  record.kept_out.push_back({"one more", KeptOutHow::Drained});
  CHECK_THAT(decode_run_record(encode(record)).error().reason, Catch::Contains("kept_out"));
  record.kept_out.clear();
  record.strikes.back().strikes.losses = kMaxStrikes + 1;
  CHECK_THAT(decode_run_record(encode(record)).error().reason, Catch::Contains("losses"));
  record.strikes.clear();
  record.uncounted_generation = -1;
  CHECK_THAT(decode_run_record(encode(record)).error().reason, Catch::Contains("uncounted_gen"));
}

}  // namespace
}  // namespace muster::testing
