#include "rendezvous/messages/native_codec.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/rounds/kept_out.h"
#include "rendezvous/rounds/limits.h"
#include "tests/support/prng.h"

namespace muster::testing {
namespace {

using Json = nlohmann::json;

// The JSON after the length field. Checks that the length is right.
std::string json_of(const std::string& frame, std::size_t before) {
  REQUIRE(frame.size() >= before + kNativeLengthBytes);
  const auto length = read_native_length(frame.substr(before, kNativeLengthBytes));
  REQUIRE(length.has_value());
  std::string json = frame.substr(before + kNativeLengthBytes);
  REQUIRE(json.size() == *length);
  return json;
}
std::string json_of(const NativeRequest& request) {
  const std::string frame = encode(request);
  REQUIRE(static_cast<std::uint8_t>(frame.at(0)) == kNativeQuery);
  return json_of(frame, 1);
}
std::string json_of(const NativeMessage& message) {
  return json_of(encode(message), 0);
}

NodeJoined full_join() {
  return {.from = {},
          .name = {"node-\xc3\xa9", 4711, 1},
          .instance = "0123456789abcdef",
          .local_world_size = 8,
          .role = "trainer",
          .run = {.min_nodes = 2,
                  .max_nodes = 4,
                  .max_restarts = 3,
                  .scale_policy = ScalePolicy::Never,
                  .join_timeout = std::chrono::nanoseconds(1'500'000'001),
                  .last_call_timeout = std::chrono::milliseconds(20)},
          .protocol_version = 7,
          .muster_version = "1.2.3",
          .last_round = 12,
          .preferred_rank = 5,
          .spare = true,
          .hosts_rendezvous = true};
}

std::vector<NativeRequest> requests() {
  NodeJoined bare;
  bare.name = {"", 0, 0};
  NodeJoined again = full_join();
  again.life = 3;
  again.generation = 41;
  again.restart_count = 2;
  again.command = "0123456789abcdef";
  return {NativeHello{kNativeProtocolVersion, "0.4.1", "run \"7\"\n"},
          full_join(),
          bare,
          again,
          KeptAlive{},
          NodeLeft{},
          WorkersFailed{{}, 9, "rank 3 exited with 1"},
          RestartRequested{{}, "somebody asked"},
          StoreReady{{}, 2, "fe80::1%eth0", 65535},
          NodeFinished{{}, 4, true, ""},
          NodeFinished{{}, 4, false, "rank 0: killed by SIGSEGV"},
          NativeHello{.run_id = "r", .nonce = std::string(kProofDigits, '7')},
          NativeReach{.generation = 3, .group_rank = 1},
          NativeReach{3, 1, "r", std::string(kProofDigits, '7')},
          NativeProve{std::string(kProofDigits, 'f')},
          NodeReport{.round = 1, .starts = 1, .workers = 1, .listed = {{.pid = 7}}},
          NodeAnswered{.number = 2, .bytes = "log"},
          NativeHello{.run_id = "r", .notices = true},
          NodeNotified{{}, std::chrono::seconds(90), "spot \"2\"", 0},
          NodeSaved{{}, 3}};
}

std::vector<NativeMessage> messages() {
  RoundComplete mixed{{}, 3, {1}, 2, 1, std::nullopt, std::nullopt};
  RoundComplete native{
      {}, 3, {1}, 2, 1, WorkerRanks{{8}, 16, 4, 12}, StoreAddress{"10.0.0.7", 29500}};
  RoundComplete named = native;
  named.life = std::int64_t{1} << 52;
  return {
      NativeWelcome{kNativeProtocolVersion, "0.4.1", "::1", std::nullopt},
      NativeWelcome{kNativeProtocolVersion, "0.4.1", "::1", std::chrono::seconds(5)},
      NativeRefused{"versions differ"},
      NativeWaiting{"round 0: 1 of 2"},
      PrepareStore{{}, 5},
      mixed,
      native,
      named,
      RestartRound{{}, 5, RestartCause::NodeLost, {"b", 2, 0}, "not heard for 5 s", 1},
      RestartRound{{}, 5, RestartCause::WorkersFailed, {"b", 2, 0}, "rank 1 exited with 1", 1, 3},
      RestartRound{{}, 5, RestartCause::NodeLost, {"b", 2, 0}, "not heard for 5 s"},
      RunClosed{},
      RunEnded{{}, true, std::nullopt, "every node has finished"},
      RunEnded{{}, false, NodeName{"c", 3, 0}, "rank 1 exited with 1"},
      JoinRefused{{}, JoinRefused::Why::TooManyNodes, "the run has 65536 nodes"},
      NotAMember{},
      Resumed{{}, 5, 41, 3},
      Rejoin{{}, 5, 3, "the round has ended"},
      Rejoin{{}, 5, 3, "the round has ended", 2},
      NativeWelcome{.peer_address = "::1", .proof = std::string(kProofDigits, 'e')},
      NativeWelcome{.peer_address = "::1", .peer_end = "[::1]:1", .own_end = "[::1]:2"},
      NativeWelcome{.peer_address = "::1",
                    .state_id = std::string(kMaxStateIdBytes, 'a'),
                    .state_is_shared = true},
      NativeReached{true},
      NativeReached{true, std::chrono::milliseconds(1'500)},
      NativeReached{false, {}, std::string(kProofDigits, 'e')},
      NativeChallenge{std::string(kProofDigits, '0')},
      NativeWelcome{.peer_address = "::1", .notices = true},
      RestartRound{{}, 5, RestartCause::Notice, {"b", 2, 0}, "it will go", 1},
      RunEnded{.succeeded = false, .why = "a node will go", .preempted = true},
      PreemptionNotice{.round = 3,
                       .left = std::chrono::seconds(60),
                       .reason = "spot",
                       .nodes = {"a_1_0", "b_2_0"},
                       .doomed = 3,
                       .ranks = {{0, 7}, {16, 16}},
                       .this_node = true,
                       .stops = false}};
}

}  // namespace

TEST_CASE("native codec: every request comes back as it was", "[unit][rendezvous]") {
  for (const NativeRequest& request : requests()) {
    const std::string json = json_of(request);
    INFO(json);
    const auto decoded = decode_native_request(json, ConnectionId{77});
    REQUIRE(decoded.has_value());
    CHECK(decoded->index() == request.index());
    CHECK(json_of(*decoded) == json);  // Every field is written, so equal bytes mean equal fields.
    std::visit(
        [](const auto& message) {
          if constexpr (requires { message.from; }) CHECK(message.from.value == 77);
        },
        *decoded);
  }
}

TEST_CASE("native codec: every message comes back as it was", "[unit][rendezvous]") {
  for (const NativeMessage& message : messages()) {
    const std::string json = json_of(message);
    INFO(json);
    const auto decoded = decode_native_message(json);
    REQUIRE(decoded.has_value());
    CHECK(decoded->index() == message.index());
    CHECK(json_of(*decoded) == json);
  }
}

TEST_CASE("native codec: why a node is no member any more is optional", "[unit][rendezvous]") {
  for (const char* why : {"", "the workers' store was not ready within 30 s"}) {
    const std::string frame = encode(NativeMessage(NotAMember{{}, why}));
    CHECK((frame.find("why") != std::string::npos) == !std::string(why).empty());
    const auto decoded = decode_native_message(frame.substr(kNativeLengthBytes));
    REQUIRE(decoded.has_value());
    CHECK(std::get<NotAMember>(*decoded).why == why);
  }
}

TEST_CASE("native codec: an older muster can read a restart for a notice", "[unit][rendezvous]") {
  const Json json = Json::parse(json_of(
      NativeMessage(RestartRound{{}, 5, RestartCause::Notice, {"b", 2, 0}, "it will go", 1})));
  CHECK(json["cause"] == "requested");
  CHECK(json["for_notice"] == true);
  const auto decoded = decode_native_message(json.dump());
  REQUIRE(decoded.has_value());
  CHECK(std::get<RestartRound>(*decoded).cause == RestartCause::Notice);
}

TEST_CASE("native codec: a notice is bounded", "[unit][rendezvous]") {
  const std::string longest(kMaxNoticeReasonBytes, 'x');
  for (const std::string& reason : {longest + "x", std::string(5'000, '\xff')}) {
    const auto decoded =
        decode_native_request(json_of(NativeRequest(NodeNotified{{}, {}, reason, 0})), {});
    REQUIRE(decoded.has_value());
    CHECK(std::get<NodeNotified>(*decoded).reason.size() <= kMaxNoticeReasonBytes);
  }
  const std::string start = R"({"type":"notified","left_ns":1,"reason":")";
  CHECK(decode_native_request(start + longest + "\"}", {}).has_value());
  CHECK(decode_native_request(start + longest + "x\"}", {}).error().field == "reason");
  PreemptionNotice full{.reason = longest, .nodes = {}, .doomed = 1'000};
  for (int i = 0; i < 100; ++i) {
    full.nodes.push_back(std::string(kMaxNodeTextBytes, 'n'));
    full.ranks.emplace_back(2 * i, 2 * i);
  }
  const auto decoded = decode_native_message(json_of(NativeMessage(full)));
  REQUIRE(decoded.has_value());
  CHECK(std::get<PreemptionNotice>(*decoded).nodes.size() == kMaxNoticeNodes);
  CHECK(std::get<PreemptionNotice>(*decoded).ranks.size() == kMaxNoticeRanges);
  const auto reversed = decode_native_message(
      R"({"type":"preemption","round":1,"left_ns":0,"reason":"","follow":"stop","this_node":true,)"
      R"("doomed":1,"nodes":[],"ranks":[{"first":3,"last":2}]})");
  CHECK(reversed.error().field == "ranks[0].last");
}

TEST_CASE("native codec: --on-notice is one of the run's settings", "[unit][rendezvous]") {
  NodeJoined join = full_join();
  CHECK(Json::parse(json_of(NativeRequest(join)))["run"].count("on_notice") == 0);
  for (const OnNotice policy : {OnNotice::Auto, OnNotice::Stop, OnNotice::Shrink}) {
    join.run.on_notice = policy;
    const auto decoded = decode_native_request(json_of(NativeRequest(join)), {});
    REQUIRE(decoded.has_value());
    CHECK(std::get<NodeJoined>(*decoded).run == join.run);
  }
}

TEST_CASE("native codec: restarts and progress are carried, and an older muster's are read",
          "[unit][rendezvous]") {
  NodeJoined join = full_join();
  CHECK(Json::parse(json_of(NativeRequest(join)))["run"].count("restart_policy") == 0);
  for (const RestartPolicy& policy :
       {RestartPolicy{}, RestartPolicy{.on = true, .hangs = 2, .nodes = 7}}) {
    join.run.restart_policy = policy;
    join.has_progress_file = policy.on;
    const auto decoded = decode_native_request(json_of(NativeRequest(join)), {});
    REQUIRE(decoded.has_value());
    CHECK(std::get<NodeJoined>(*decoded).run == join.run);
    CHECK(std::get<NodeJoined>(*decoded).has_progress_file == policy.on);
  }
  Json wrong = Json::parse(json_of(NativeRequest(join)));
  wrong["run"]["restart_policy"] = "hang=2";
  CHECK(decode_native_request(wrong.dump(), {}).error().field == "run.restart_policy");
  for (const auto& step : {std::optional<std::int64_t>(), std::optional<std::int64_t>(12)}) {
    const auto told =
        decode_native_request(json_of(NativeRequest(NodeProgressed{{}, 3, step})), {});
    REQUIRE(told.has_value());
    CHECK(std::get<NodeProgressed>(*told).round == 3);
    CHECK(std::get<NodeProgressed>(*told).step == step);
    RoundComplete round{.round = 3, .best_step = step};
    const auto complete = decode_native_message(json_of(NativeMessage(round)));
    REQUIRE(complete.has_value());
    CHECK(std::get<RoundComplete>(*complete).best_step == step);
  }
  const auto failed =
      decode_native_request(json_of(NativeRequest(WorkersFailed{{}, 3, "it", true})), {});
  REQUIRE(failed.has_value());
  CHECK(std::get<WorkersFailed>(*failed).hung);
  const RunEnded ended{.succeeded = false, .why = "x", .without_progress = 3, .hopeless = true};
  const auto end = decode_native_message(json_of(NativeMessage(ended)));
  REQUIRE(end.has_value());
  CHECK(std::get<RunEnded>(*end).without_progress == 3);
  CHECK(std::get<RunEnded>(*end).hopeless);
}

TEST_CASE("native codec: a join's settings are exact, to the nanosecond", "[unit][rendezvous]") {
  const auto decoded = decode_native_request(json_of(NativeRequest(full_join())), {});
  REQUIRE(decoded.has_value());
  const auto& join = std::get<NodeJoined>(*decoded);
  CHECK(join.run == full_join().run);
  CHECK(join.name == full_join().name);
  CHECK(join.preferred_rank == 5);
  CHECK(join.spare);
}

TEST_CASE("native codec: fields of newer versions are optional", "[unit][rendezvous]") {
  NodeJoined join = full_join();
  join.instance.clear();
  const std::string older = json_of(NativeRequest(join));
  CHECK(older.find("instance") == std::string::npos);
  CHECK(std::get<NodeJoined>(*decode_native_request(older, {})).instance.empty());
  join.instance.assign(65, 'x');
  const auto long_one = decode_native_request(json_of(NativeRequest(join)), {});
  REQUIRE_FALSE(long_one.has_value());
  CHECK(long_one.error().field == "instance");
  const auto no_lease = decode_native_message(
      R"({"type":"welcome","protocol_version":1,"muster_version":"1","peer_address":"a"})");
  CHECK_FALSE(std::get<NativeWelcome>(*no_lease).lease);
  CHECK_FALSE(
      decode_native_message(R"({"type":"welcome","protocol_version":1,"muster_version":"1",)"
                            R"("peer_address":"a","lease_ns":0})")
          .has_value());
}

TEST_CASE("native codec: a node can resume only a round that it was in", "[unit][rendezvous]") {
  NodeResumed resumed;
  resumed.join = full_join();
  resumed.group_world_size = 1;
  resumed.join.last_round = 0;
  CHECK(decode_native_request(json_of(NativeRequest(resumed)), {}).has_value());
  resumed.join.last_round = -1;
  const auto decoded = decode_native_request(json_of(NativeRequest(resumed)), {});
  REQUIRE(decoded.has_error());
  CHECK(decoded.error().field == "join.last_round");
}

TEST_CASE("native codec: of another protocol version only the versions are read",
          "[unit][rendezvous]") {
  for (const int version : {0, kNativeProtocolVersion + 1}) {
    const std::string start =
        R"(","protocol_version":)" + std::to_string(version) + R"(,"muster_version":"7.0",)";
    for (const std::string rest :
         {R"("run_id":5,"peer_address":[],"lease_ns":"long"})", R"("of_that_protocol":null})"}) {
      const std::string end = start + rest;
      INFO(end);
      const auto hello = decode_native_request(R"({"type":"hello)" + end, {});
      REQUIRE(hello.has_value());
      CHECK(std::get<NativeHello>(*hello).protocol_version == version);
      CHECK(std::get<NativeHello>(*hello).muster_version == "7.0");
      const auto welcome = decode_native_message(R"({"type":"welcome)" + end);
      REQUIRE(welcome.has_value());
      CHECK(std::get<NativeWelcome>(*welcome).protocol_version == version);
      CHECK(std::get<NativeWelcome>(*welcome).muster_version == "7.0");
    }
  }
  CHECK(decode_native_request(R"({"type":"hello","protocol_version":2})", {}).error().field ==
        "muster_version");
}

TEST_CASE("native codec: the documented bytes of a frame", "[unit][rendezvous]") {
  const std::string json = R"({"type":"keep_alive"})";
  CHECK(encode(NativeRequest(KeptAlive{})) == std::string("m\x15\0\0\0\0\0\0\0", 9) + json);
  CHECK(encode(NativeMessage(PrepareStore{{}, 4})) ==
        std::string("\x22\0\0\0\0\0\0\0", 8) + R"({"type":"prepare_store","round":4})");
}

TEST_CASE("native codec: fields that are not known are ignored", "[unit][rendezvous]") {
  CHECK(decode_native_request(R"({"new":{"a":[1]},"type":"keep_alive"})", {}).has_value());
  CHECK(decode_native_message(R"({"type":"prepare_store","round":1,"later":null})").has_value());
}

TEST_CASE("native codec: a type that is not known is named", "[unit][rendezvous]") {
  const auto decoded = decode_native_request(R"({"type":"levitate"})", {});
  REQUIRE(decoded.has_error());
  CHECK(decoded.error().field == "type");
  CHECK_THAT(describe(decoded.error()), Catch::Contains("levitate") && Catch::Contains("hello"));
  // A message of a host is not a request, and the reverse.
  CHECK(decode_native_request(R"({"type":"run_closed"})", {}).has_error());
  CHECK(decode_native_message(R"({"type":"keep_alive"})").has_error());
}

TEST_CASE("native codec: a message that is no object with a type is refused",
          "[unit][rendezvous]") {
  for (const char* text : {"", "nonsense", "[]", "3", "null", "{", R"({"type":"keep_alive"} x)",
                           "{\"type\":\"keep_alive\xff\"}"}) {
    INFO(text);
    const auto decoded = decode_native_request(text, {});
    REQUIRE(decoded.has_error());
    CHECK(!decoded.error().reason.empty());
  }
  CHECK(decode_native_request("{}", {}).error().field == "type");
  CHECK(decode_native_request(R"({"type":5})", {}).error().field == "type");
  CHECK(decode_native_request(std::string(300'000, '['), {}).has_error());
}

namespace {

const std::set<std::string> kOptional = {
    "preferred_rank", "workers",    "store",           "instance", "lease_ns",   "who",
    "life",           "generation", "restart_count",   "age_ns",   "command",    "peer_end",
    "own_end",        "state_id",   "state_is_shared", "notices",  "for_notice", "preempted"};
// Fields that are optional in other messages, but not in messages of these types.
const std::map<std::string, std::set<std::string>> kNeeded = {{"restart_round", {"who"}},
                                                              {"round", {"restart_count"}},
                                                              {"resumed", {"life", "generation"}},
                                                              {"rejoin", {"life"}},
                                                              {"reach", {"generation"}}};

// Removes every field of `whole`, by path, or replaces it by a value of a wrong kind.
void spoil(const Json& whole, const Json::json_pointer& at, const std::vector<Json>& wrong,
           const std::function<void(const Json&, const std::string&)>& check) {
  for (const auto& [name, value] : whole.at(at).items()) {
    const auto path = at / name;
    std::string field = path.to_string().substr(1);
    std::replace(field.begin(), field.end(), '/', '.');
    const auto needed = kNeeded.find(whole["type"]);
    const bool is_needed = needed != kNeeded.end() && needed->second.count(field) > 0;
    // Fields that are there only with a token. They are needed only in the token's two messages.
    const bool is_tokens = (field == "nonce" && whole["type"] != "challenge") ||
                           (field == "proof" && whole["type"] != "prove");
    const bool optional = (kOptional.count(field) > 0 && !is_needed) || is_tokens;
    if (!optional) {
      Json without = whole;
      without.at(at).erase(name);
      check(without, field);
    }
    for (const Json& other : wrong) {
      if (other.type() == value.type() || (other.is_number_integer() && value.is_number_integer()))
        continue;
      Json spoilt = whole;
      spoilt[path] = other;
      check(spoilt, field);
    }
    if (value.is_number_integer()) {
      Json spoilt = whole;
      for (const Json& number : {Json(-2), Json(18446744073709551615U)}) {
        spoilt[path] = number;
        check(spoilt, field);
      }
    }
    if (value.is_string()) {
      Json spoilt = whole;
      spoilt[path] = std::string(kMaxNativeTextBytes + 1, 'x');
      check(spoilt, field);
    }
    if (value.is_object()) spoil(whole, path, wrong, check);
  }
}

const std::vector<Json> kWrong = {Json(true),    Json("text"),   Json(1.5),
                                  Json::array(), Json::object(), Json(3)};

}  // namespace

TEST_CASE("native codec: each field that is missing or wrong is named", "[unit][rendezvous]") {
  int checked = 0;
  const auto expect = [&](const auto& decoded, const Json& json, const std::string& field) {
    INFO(json.dump().substr(0, 500));
    REQUIRE(decoded.has_error());
    CHECK(decoded.error().field == field);
    CHECK(!decoded.error().reason.empty());
    ++checked;
  };
  for (const NativeRequest& request : requests())
    spoil(Json::parse(json_of(request)), Json::json_pointer(), kWrong,
          [&](const Json& json, const std::string& f) {
            expect(decode_native_request(json.dump(), {}), json, f);
          });
  for (const NativeMessage& message : messages())
    spoil(Json::parse(json_of(message)), Json::json_pointer(), kWrong,
          [&](const Json& json, const std::string& f) {
            expect(decode_native_message(json.dump()), json, f);
          });
  CHECK(checked > 300);
}

TEST_CASE("native codec: fields must fit each other", "[unit][rendezvous]") {
  Json join = Json::parse(json_of(NativeRequest(full_join())));
  join["run"]["max_nodes"] = 1;
  CHECK(decode_native_request(join.dump(), {}).error().field == "run.max_nodes");
  const auto round = decode_native_message(
      R"({"type":"round","round":0,"group_rank":2,"group_world_size":2,"restart_count":0})");
  CHECK(round.error().field == "group_rank");
  const auto port =
      decode_native_request(R"({"type":"store_ready","round":0,"addr":"a","port":65536})", {});
  CHECK_THAT(describe(port.error()), Catch::Contains("port") && Catch::Contains("65535"));
}

TEST_CASE("native codec: a long reason is cut, and always fits a frame", "[unit][rendezvous]") {
  // A control character takes six bytes in JSON. The cut is in the middle of a character.
  for (const char* piece : {"\x01", "\xe2\x82\xac", "\xff"}) {
    std::string what;
    while (what.size() < 3 * kMaxNativeTextBytes)
      what += piece;
    const auto decoded =
        decode_native_message(json_of(NativeMessage(RestartRound{{}, 0, {}, {"a", 1, 0}, what})));
    REQUIRE(decoded.has_value());
    CHECK(std::get<RestartRound>(*decoded).what.size() >= kMaxNativeTextBytes - 5);
  }
}

TEST_CASE("native codec: a short reason of any bytes is whole", "[unit][rendezvous]") {
  const auto decoded = decode_native_message(json_of(NativeMessage(NativeRefused{"ab\xff"})));
  REQUIRE(decoded.has_value());
  CHECK(std::get<NativeRefused>(*decoded).text == "ab\xef\xbf\xbd");
}

TEST_CASE("native codec: any bytes are read or refused", "[unit][rendezvous]") {
  Prng prng(7);
  std::vector<std::string> seeds;
  for (const NativeRequest& request : requests())
    seeds.push_back(json_of(request));
  std::size_t read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string json = seeds[prng.below(seeds.size())];
    for (auto changes = 1 + prng.below(3); changes > 0 && !json.empty(); --changes) {
      const auto at = prng.below(json.size());
      if (prng.below(4) == 0)
        json.erase(at, 1 + prng.below(8));
      else
        json[at] = static_cast<char>(prng.below(2) == 0 ? prng.below(256) : '0' + prng.below(10));
    }
    const auto decoded = decode_native_request(json, {});
    ++(decoded.has_value() ? read : refused);
    // A message that was read can be written again, and the result is the same.
    if (!decoded) continue;
    const std::string again = json_of(*decoded);
    const auto twice = decode_native_request(again, {});
    REQUIRE(twice.has_value());
    REQUIRE(json_of(*twice) == again);
  }
  CHECK(read > 500);
  CHECK(refused > 1'000);
}

namespace {

std::string repeated(const std::string& piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i)
    text += piece;
  return text;
}

}  // namespace

TEST_CASE("native codec: the values and levels of a message are limited", "[unit][rendezvous]") {
  const auto message = [](const std::string& unknown) {
    return decode_native_message(R"({"type":"prepare_store","round":1,"new":)" + unknown + "}");
  };
  const auto reason = [&](const std::string& unknown) { return message(unknown).error().reason; };
  // There are four values besides the elements: the message, its type, its round and the array.
  const auto array = [](std::size_t elements) { return "[" + repeated("0,", elements - 1) + "0]"; };
  CHECK(message(array(kMaxNativeValues - 4)).has_value());
  CHECK(reason(array(kMaxNativeValues - 3)) == "more than 256 values");
  const auto nested = [](std::size_t levels) {
    return repeated("[", levels) + repeated("]", levels);
  };
  CHECK(message(nested(kMaxNativeDepth - 1)).has_value());
  CHECK(reason(nested(kMaxNativeDepth)) == "more than 8 levels");
}

TEST_CASE("native codec: a large message of many names costs no more than its bytes",
          "[unit][rendezvous]") {
  std::string hello = R"({"type":"hello")";
  for (int i = 0; hello.size() < kMaxNativeBytes - 20; ++i)
    hello += ",\"" + std::to_string(i) + "\":0";
  hello += "}";
  const auto used_ms = [] {  // Of a processor, by this thread.
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<std::int64_t>(used.tv_sec) * 1000 + used.tv_nsec / 1'000'000;
  };
  const std::int64_t before = used_ms();
  CHECK(decode_native_request(hello, {}).error().reason == "more than 256 values");
  CHECK(used_ms() - before < 100);
}

TEST_CASE("native codec: each text has a limit of its own", "[unit][rendezvous]") {
  const auto join_error = [](void (*change)(Json&, std::size_t), std::size_t bytes) {
    Json join = Json::parse(json_of(NativeRequest(full_join())));
    change(join, bytes);
    const auto decoded = decode_native_request(join.dump(), {});
    return decoded ? std::string() : describe(decoded.error());
  };
  const auto addr = [](Json& join, std::size_t bytes) {
    join["name"]["addr"] = std::string(bytes, 'a');
  };
  CHECK(join_error(addr, kMaxAddressBytes).empty());
  CHECK(join_error(addr, kMaxAddressBytes + 1) == "field name.addr: longer than 256 bytes");
  const auto role = [](Json& join, std::size_t bytes) { join["role"] = std::string(bytes, 'r'); };
  CHECK(join_error(role, kMaxRoleBytes).empty());
  CHECK(join_error(role, kMaxRoleBytes + 1) == "field role: longer than 256 bytes");
  const auto instance = [](Json& join, std::size_t bytes) {
    join["instance"] = std::string(bytes, 'i');
  };
  CHECK(join_error(instance, kMaxInstanceBytes + 1) == "field instance: longer than 64 bytes");
  const auto version = [](Json& join, std::size_t bytes) {
    join["muster_version"] = std::string(bytes, 'v');
  };
  CHECK(join_error(version, kMaxVersionBytes + 1) == "field muster_version: longer than 256 bytes");
  const auto hello = [](std::size_t bytes) {
    return json_of(NativeHello{kNativeProtocolVersion, "1", std::string(bytes, 'j')});
  };
  CHECK(decode_native_request(hello(kMaxRunIdBytes), {}).has_value());
  CHECK(decode_native_request(hello(kMaxRunIdBytes + 1), {}).error().field == "run_id");
}

TEST_CASE("native codec: a type that is not known is named in printable characters",
          "[unit][rendezvous]") {
  const auto decoded = decode_native_request(R"({"type":"a\nb\u001b[2J\""})", {});
  CHECK_THAT(decoded.error().reason, Catch::StartsWith(R"("a\x0ab\x1b[2J\"" is none of)"));
}

TEST_CASE("native codec: a length above the limit is refused", "[unit][rendezvous]") {
  CHECK(*read_native_length(std::string("\0\0\x2\0\0\0\0\0", 8)) == kMaxNativeBytes);
  const auto length = read_native_length(std::string("\1\0\x2\0\0\0\0\0", 8));
  REQUIRE(length.has_error());
  CHECK_THAT(describe(length.error()), Catch::Contains("131073"));
  CHECK(read_native_length(std::string(8, '\xff')).has_error());
  CHECK(decode_native_message(std::string(kMaxNativeBytes + 1, ' ')).has_error());
}

}  // namespace muster::testing
