// A run service with its clients, without a network.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/host/run_service.h"
#include "rendezvous/torchrun/state_codec.h"
#include "tests/support/trace.h"

namespace muster::testing {

using namespace std::chrono_literals;

inline const std::string kKey = "/torch.rendezvous.job";

inline RunSettings for_nodes(int count) {
  return {.min_nodes = count, .max_nodes = count, .max_restarts = 1};
}

struct RunServiceTest {
  RunServiceTest() { reset({}); }
  void reset(RunServiceOptions options) {
    options.muster_version = "9.9";
    options.setup.life = std::int64_t{1000} * ++hosts;
    service = std::make_unique<RunService>(std::move(options));
    take();
  }

  RunService::Time at(Duration elapsed = 0s) {
    now += elapsed;
    return {now, {1'700'000'000'000'000 + now.time_since_epoch().count() / 1000}};
  }
  /// The effects so far, without log lines.
  std::vector<RunEffect> take() {
    std::vector<RunEffect> effects;
    for (RunEffect& effect : service->take_effects())
      if (const auto* log = std::get_if<LogLine>(&effect))
        notes += log->line + "\n";
      else
        effects.push_back(std::move(effect));
    return effects;
  }
  /// The messages of one kind among the effects so far, by client.
  template <typename Message>
  std::map<std::uint32_t, Message> messages() {
    std::map<std::uint32_t, Message> found;
    for (const RunEffect& effect : take())
      if (const auto* send = std::get_if<SendNative>(&effect))
        if (const auto* message = std::get_if<Message>(&send->message))
          found.emplace(send->to.value, *message);
    return found;
  }

  NativeAnswer tell(std::uint32_t client, const NativeRequest& request) {
    const std::string frame = encode(request);
    NativeAnswer answer =
        service->receive({client}, std::string_view(frame).substr(1 + kNativeLengthBytes),
                         "10.0.0." + std::to_string(client), at());
    Trace::now().add(frame);
    Trace::now().add(answer.reply ? encode(*answer.reply) : answer.close);
    return answer;
  }
  void hello(std::uint32_t client, const std::string& run_id = "job") {
    const auto answer = tell(client, NativeHello{kNativeProtocolVersion, "9.9", run_id});
    REQUIRE(answer.close.empty());
    REQUIRE(std::holds_alternative<NativeWelcome>(*answer.reply));
  }
  void join(std::uint32_t client, int nodes, std::int64_t last_round = -1) {
    NodeJoined joined;
    joined.name = {"host" + std::to_string(client), client, 0};
    joined.run = for_nodes(nodes);
    joined.last_round = last_round;
    REQUIRE(tell(client, joined).close.empty());
  }
  /// Two muster nodes in a round, with clients 1 and 2.
  void two_in_a_round() {
    for (const std::uint32_t client : {1, 2}) {
      hello(client);
      join(client, 2);
    }
    REQUIRE(messages<PrepareStore>().size() == 1);
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    REQUIRE(messages<RoundComplete>().size() == 2);
  }

  CompareSetOutcome compare_set(std::uint32_t client, std::string_view expected,
                                std::string_view desired, const std::string& key = kKey) {
    CompareSetOutcome outcome = service->compare_set({client}, {key, expected, desired}, at());
    Trace::now().add(desired);
    if (const auto* state = std::get_if<StateNow>(&outcome)) Trace::now().add(state->text.view());
    return outcome;
  }
  std::string text(const CompareSetOutcome& outcome) {
    REQUIRE(std::holds_alternative<StateNow>(outcome));
    return std::string(std::get<StateNow>(outcome).text.view());
  }
  RendezvousState state(const std::string& from) {
    const auto decoded = decode_state(from);
    REQUIRE(decoded.has_value());
    return decoded->value_or(RendezvousState{});
  }
  /// What a torchrun node does first: it begins the run, or reads its state.
  std::string begin(std::uint32_t client) { return text(compare_set(client, "", kNoStateText)); }
  /// The state that a torchrun node writes to join after it has read `seen`.
  std::string joined_by(std::uint32_t client, const std::string& seen) {
    RendezvousState next = state(seen);
    const NodeName name{"host" + std::to_string(client), client, 0};
    next.participants.set(name, 0);
    next.last_heartbeats.set(name, at().wall);
    return encode_state(next);
  }

  Instant now{1h};
  int hosts = 0;
  std::unique_ptr<RunService> service;
  std::string notes;
};

}  // namespace muster::testing
