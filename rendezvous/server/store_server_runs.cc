// StoreServer: the runs whose rendezvous it hosts. Applies the effects of the run service, records
// the changes of its state, and passes on what people ask of it.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/system/clock.h"
#include "base/system/system_random.h"
#include "rendezvous/server/run_effects.h"
#include "rendezvous/server/store_server.h"

namespace muster {

namespace asio = boost::asio;

namespace {

/// A random number for RoundComplete::life. It is below 2^52, so that JSON readers that use doubles
/// read it exactly, and it always has the same number of digits.
std::int64_t random_life() {
  constexpr std::int64_t kLeast = std::int64_t{1} << 51;
  // All numbers are equally likely, because kLeast is a power of 2.
  return kLeast + static_cast<std::int64_t>(random_number() % kLeast);
}

}  // namespace

void StoreServer::begin_runs() {
  if (!options_.runs) return;
  shared_.codec.native_door = true;
  RunServiceOptions runs = *options_.runs;
  runs.numbers_events_by_clock = true;
  runs.recorded = options_.state != nullptr;
  runs.shared_state = options_.state && options_.state->is_shared();
  if (runs.setup.life == 0) runs.setup.life = random_life();
  // Without a state that is kept, each process has its own.
  if (runs.only_run.empty()) runs.state_id = random_id();
  const bool nodes_prove =
      shared_.tokens || (options_.tls && options_.tls->context()->asks_certificate());
  shared_.runs_apart = runs.only_nodes_close = nodes_prove;
  runs.setup.generation_floor = wall_now().microseconds / 1'000;
  shared_.runs = std::make_unique<RunService>(std::move(runs));
  shared_.runs->count_in(&shared_.table.account());
  begin_state();
  apply_run_effects();
}

/// Applies the effects of an event, keeps the limits, and applies the effects of the connections
/// that were closed for it.
void StoreServer::finish_event() {
  if (shared_.runs)
    apply_run_effects();
  else if (drained_)
    check_drained();
  enforce_unread_limits();
  apply_pending_effects();
}

/// An effect names connections by their numbers, and a new connection gets the number of a closed
/// one. So no effect may be left when a connection is accepted.
void StoreServer::apply_pending_effects() {
  if (shared_.runs && shared_.runs->has_effects()) apply_run_effects();
}

/// Applies the effects of the run service, which may concern other connections.
void StoreServer::apply_run_effects() {
  const auto connection = [this](ConnectionId id) { return connection_of(id); };
  while (shared_.runs->has_effects())
    for (const RunEffect& effect : shared_.runs->take_effects()) {
      const auto to = recipient_of(effect);
      guard(to ? connection_of(*to) : nullptr, [&] {
        if (const auto touched = apply(effect, shared_, connection)) update_slot(slot_of(*touched));
      });
    }
  arm_timer_for(shared_.runs->next_deadline());
  if (drained_) check_drained();
}

void StoreServer::drain(Instant deadline, std::function<void()> done) {
  MUSTER_CHECK(!drained_by_);
  drained_by_ = deadline;
  drained_ = std::move(done);
  if (shared_.runs) shared_.runs->drain();
  read_clock();
  arm_timer();
  check_drained();
}

void StoreServer::check_drained() {
  MUSTER_CHECK(drained_by_.has_value());
  const auto owes = [](const Slot& slot) {
    return slot.connection && slot.connection->has_unread_replies();
  };
  const bool all_left = shared_.runs ? shared_.runs->state_clients() == 0 : acceptor_.open() == 0;
  const bool drained = all_left && std::none_of(slots_.begin(), slots_.end(), owes);
  if (!drained && shared_.now < *drained_by_) return;
  // Called from the loop, because the callback may destroy this server.
  asio::post(set_.executor(), std::exchange(drained_, nullptr));
}

void StoreServer::begin_state() {
  if (!options_.state) return;
  shared_.runs->restore(options_.state->load(), shared_.time());
  // The state calls this on another thread, which must not use the server.
  options_.state->listen(
      [alive = std::weak_ptr(alive_), executor = set_.executor()](const StateReport& report) {
        asio::post(executor, [alive, report] {
          const auto server = alive.lock();
          if (server && (*server)->set_.is_open()) (*server)->on_recorded(report);
        });
      });
  record_runs();
}

/// Whether this process may still serve. If another process has taken over the shared state, only
/// that process may answer, and this server stops. This process may have been suspended since its
/// last turn, so it checks before each turn.
bool StoreServer::may_serve() {
  if (!options_.state || options_.state->is_held()) return true;
  stop();
  return false;
}

/// Called at the end of a turn. All changes of the turn become durable together.
void StoreServer::record_runs() {
  if (!options_.state || !set_.is_open()) return;
  auto changes = shared_.runs->take_changes(shared_.time());
  if (!changes) return;
  options_.state->record(*std::move(changes));
  arm_timer_for(shared_.runs->next_deadline());
}

void StoreServer::on_recorded(const StateReport& report) {
  if (!may_serve()) return;
  read_clock();
  shared_.runs->recorded(report, shared_.time());
  apply_run_effects();
  record_runs();
}

std::optional<std::string> StoreServer::operate(const std::string& run_id,
                                                const OperatorAsked& asked,
                                                std::function<void(std::string)> done) {
  if (!shared_.runs || !set_.is_open() || !may_serve()) return std::nullopt;
  read_clock();
  const std::uint64_t number = ++shared_.callers.last_operation;
  auto objection = shared_.runs->operate(run_id, asked, shared_.time(), number);
  if (objection && objection->empty()) shared_.callers.operations.emplace(number, std::move(done));
  apply_run_effects();
  record_runs();
  return objection;
}

std::optional<std::string> StoreServer::ask(const std::string& run_id, int rank, NodeAsked question,
                                            std::function<void(NodeAnswered)> done) {
  if (!shared_.runs || !set_.is_open()) return std::nullopt;
  read_clock();
  const std::uint64_t number = question.number;
  auto objection = shared_.runs->ask(run_id, rank, question, shared_.time());
  if (objection && objection->empty()) shared_.callers.questions.emplace(number, std::move(done));
  apply_run_effects();
  return objection;
}

void StoreServer::forget_question(std::uint64_t number) {
  shared_.callers.questions.erase(number);
  if (shared_.runs) shared_.runs->forget_question(number);
}

}  // namespace muster
