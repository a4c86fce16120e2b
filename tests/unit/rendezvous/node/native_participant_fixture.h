// The fixture of the tests of NativeParticipant: a node, and what its host sends.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/node/native_participant.h"

namespace muster::testing {

using namespace std::chrono_literals;
using Participant = NativeParticipant;

struct ParticipantTest {
  explicit ParticipantTest(std::optional<Duration> host_absent = {}, Duration join_timeout = 600s) {
    Participant::Options options;
    options.settings.run.join_timeout = join_timeout;
    options.settings.host_absent = host_absent;
    options.settings.run_id = "job";
    options.node.name = {"a", 1, 0};
    options.node.instance = "instance";
    options.host_text = "host:29400";
    options.advice = "each runs the same command";
    participant = std::make_unique<Participant>(std::move(options));
  }
  Participant::Actions feed(const Participant::Event& event) {
    return participant->step(event, now += 1ms);
  }
  Participant::Actions hear(const NativeMessage& message) {
    return feed(Participant::MessageReceived{message});
  }
  Participant::Actions connect() {
    return feed(Participant::Connected{{.lease = 5s, .resumes = true, .outlives_nodes = true}});
  }
  /// The requests of this kind that are sent to the host.
  template <typename Request>
  static std::vector<Request> sent(const Participant::Actions& actions) {
    std::vector<Request> found;
    for (const auto& action : actions)
      if (const auto* send = std::get_if<Participant::Send>(&action))
        if (const auto* request = std::get_if<Request>(&send->request)) found.push_back(*request);
    return found;
  }
  template <typename Action>
  static bool has(const Participant::Actions& actions) {
    for (const auto& action : actions)
      if (std::holds_alternative<Action>(action)) return true;
    return false;
  }
  void run_round(int group_rank = 0, int group_world_size = 2) {
    connect();
    REQUIRE(sent<NodeJoined>(feed(Participant::JoinAsked{})).size() == 1);
    RoundComplete round{.round = 4,
                        .group_rank = {group_rank},
                        .group_world_size = group_world_size,
                        .life = 7,
                        .generation = 40};
    round.workers = WorkerRanks{};
    round.store = StoreAddress{"store", 29500};
    REQUIRE(has<Participant::BeginRound>(hear(round)));
  }
  Instant now{1h};
  std::unique_ptr<Participant> participant;
};

}  // namespace muster::testing
