// The store server's side of a state that outlives it: changes out, reports in.

#include <boost/asio/post.hpp>

#include "rendezvous/net/store_server_impl.h"

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

/// Whoever has taken over a shared state must be the only one who answers for it: this process may
/// have been suspended since its last turn.
bool StoreServer::Impl::may_serve() {
  if (!options_.state || options_.state->is_held()) return true;
  stop();
  return false;
}

/// At the end of a turn: all of its changes become durable together.
void StoreServer::Impl::record_runs() {
  if (!options_.state || !set_.is_open()) return;
  auto changes = shared_.runs->take_changes({now_, wall_now()});
  if (!changes) return;
  options_.state->record(*std::move(changes));
  set_.end_turn();  // The report comes through the loop.
  if (const auto next = shared_.runs->next_deadline(); next && (!timer_at_ || *next < *timer_at_))
    arm_timer();
}

void StoreServer::Impl::on_recorded(const StateReport& report) {
  if (!may_serve()) return;
  read_clock();
  shared_.runs->recorded(report, {now_, wall_now()});
  carry_out_runs();
  record_runs();
}

}  // namespace muster
