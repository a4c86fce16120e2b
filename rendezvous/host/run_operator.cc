// RunService: the requests of an operator.

#include "rendezvous/host/run_guard.h"

namespace muster {

std::optional<std::string> RunService::operate(std::string_view id, const OperatorAsked& asked,
                                               Time time, std::optional<std::uint64_t> number) {
  Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  // The operation cannot be recorded now, so the next host would not know of it.
  if (options_.shared_state && !gate_.works())
    return "changes cannot be recorded now (" + gate_.problem() + "): ask again later";
  std::string objection = run->rendezvous->objection_to(asked);
  if (!objection.empty()) return objection;
  const bool done = guard(*run, time.now, [&] {
    if (run->rendezvous->has_effect(asked)) log_operation(*run, asked, time.now);
    apply(*run, run->rendezvous->step(asked, time.now), time.now);
    run->notify_pending = true;
    finish_change(*run, time.now);
  });
  if (!done) return "this has broken the run: see the log of musterd";
  if (!number) return std::string();
  std::string text = run->rendezvous->operator_answer();
  if (!text.empty() && !gate_.works())
    text += "\nwarning: this change cannot be recorded now (" + gate_.problem() +
            "): a musterd that is started again before it is recorded does not know it";
  gate_.send(OperatorAnswered{*number, std::move(text)});
  return std::string();
}

}  // namespace muster
