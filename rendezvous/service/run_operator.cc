// What a person asks of a run, and not one of its nodes.

#include "rendezvous/service/run_guard.h"

namespace muster {

std::optional<std::string> RunService::operate(std::string_view id, const OperatorAsked& asked,
                                               Time time, std::optional<std::uint64_t> number) {
  Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  std::string objection = run->rendezvous->objection_to(asked);
  if (!objection.empty()) return objection;
  const bool done = guard(*run, time.now, [&] {
    note_operation(*run, asked, time.now);
    carry_out(*run, run->rendezvous->step(asked, time.now), time.now);
    run->may_tell = true;
    settle(*run, time.now);
  });
  if (!done) return "the run was broken by it: see the log of musterd";
  if (number) effects_.emplace_back(OperatorAnswered{*number, run->rendezvous->operator_answer()});
  return std::string();
}

}  // namespace muster
