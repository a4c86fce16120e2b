// StoreServer: sends the changes of the runs to the RunState, and handles its reports.

#include <boost/asio/post.hpp>

#include "rendezvous/server/store_server_impl.h"

namespace muster {

void StoreServer::Impl::begin_state() {
  if (!options_.state) return;
  shared_.runs->restore(options_.state->load(), {now_, wall_now()});
  options_.state->listen(
      [weak = weak_from_this(), executor = set_.executor()](const StateReport& report) {
        boost::asio::post(executor, [weak, report] {
          const auto self = weak.lock();
          if (self && self->set_.is_open()) self->on_recorded(report);
        });
      });
  record_runs();
}

/// Whether this process may still serve. If another process has taken over the shared state, only
/// that process may answer, and this server stops. This process may have been suspended since its
/// last turn, so it checks before each turn.
bool StoreServer::Impl::may_serve() {
  if (!options_.state || options_.state->is_held()) return true;
  stop();
  return false;
}

/// Called at the end of a turn. All changes of the turn become durable together.
void StoreServer::Impl::record_runs() {
  if (!options_.state || !set_.is_open()) return;
  auto changes = shared_.runs->take_changes({now_, wall_now()});
  if (!changes) return;
  options_.state->record(*std::move(changes));
  set_.end_turn();  // The report comes through the loop, which must run for it.
  if (const auto next = shared_.runs->next_deadline(); next && (!timer_at_ || *next < *timer_at_))
    arm_timer();
}

void StoreServer::Impl::on_recorded(const StateReport& report) {
  if (!may_serve()) return;
  read_clock();
  shared_.runs->recorded(report, {now_, wall_now()});
  apply_run_effects();
  record_runs();
}

}  // namespace muster
