// What a person asks of a run, and not one of its nodes.

#include "rendezvous/service/run_guard.h"

namespace muster {

std::optional<std::string> RunService::operate(std::string_view id, OperatorAsked::What what,
                                               Time time) {
  Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  std::string objection(run->rendezvous->objection_to(what));
  if (!objection.empty()) return objection;
  const bool done = guard(*run, time.now, [&] {
    carry_out(*run, run->rendezvous->step(OperatorAsked{what}, time.now), time.now);
    settle(*run, time.now);
  });
  return done ? std::string() : "the run was broken by it: see the log of musterd";
}

}  // namespace muster
