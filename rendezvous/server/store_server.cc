#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "base/check.h"
#include "base/printable_text.h"
#include "base/system/system_random.h"
#include "rendezvous/server/run_effects.h"
#include "rendezvous/server/store_server_impl.h"

namespace muster {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Duration kRetryDeadlines = std::chrono::milliseconds(200);

/// A random number for RoundComplete::life. It is below 2^52, so that JSON readers that use doubles
/// read it exactly, and it always has the same number of digits.
std::int64_t random_life() {
  constexpr std::int64_t kLeast = std::int64_t{1} << 51;
  // All numbers are equally likely, because kLeast is a power of 2.
  return kLeast + static_cast<std::int64_t>(random_number() % kLeast);
}

/// Returns whether there was memory for the line.
bool log_failed_event(LogLimiter& log, Instant now, const Connection* connection,
                      const std::exception& error) noexcept {
  try {
    const auto peer = connection != nullptr ? connection->peer_address() : asio::ip::address();
    if (const auto left_out = log.admit(now, "event failed", peer))
      spdlog::error("store_event_failed peer={} error=\"{}\" left_out={}",
                    connection != nullptr ? connection->peer() : "-", printable_text(error.what()),
                    *left_out);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

boost::system::result<void, ListenError> StoreServer::Impl::start() {
  MUSTER_CHECK(listeners_.empty());
  auto listening = options_.descriptors.empty() ? listen_on(options_.addresses, options_.port)
                                                : take_over(options_.descriptors);
  if (!listening) return listening.error();
  const auto failed = [](const char* call, const Listener& listener) {
    const error_code why(errno, boost::system::system_category());  // to_string() changes errno.
    return ListenError{call, listener.endpoint.address().to_string(), listener.endpoint.port(),
                       why};
  };
  listeners_ = std::move(*listening);
  if (const char* call = set_.open()) return failed(call, listeners_.front());
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    if (!set_.add(listeners_[i].fd.get(), EPOLLIN, kListenerTag | i))
      return failed("epoll_ctl", listeners_[i]);
  read_clock();
  begin_runs();
  wait_for_events();
  return {};
}

void StoreServer::Impl::wait_for_events() {
  set_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec || !self->set_.is_open()) return;
    try {
      self->set_.run_turn(self->serve_);
    } catch (...) {  // Out of memory: the loop logs it. The next events are served all the same.
      if (self->set_.is_open()) self->wait_for_events();
      throw;
    }
    if (self->set_.is_open()) self->wait_for_events();
  });
}

void StoreServer::Impl::on_events(std::span<const epoll_event> events, Instant now) {
  if (!may_serve()) return;
  set_now(now);
  begin_turn();
  for (const epoll_event& event : events)
    if (set_.is_open()) guard(connection_at(event.data.u64), [&] { on_event(event); });
  if (has_work_left() && set_.is_open()) continue_work();
  if (set_.is_open()) apply_pending_effects();
  record_runs();
}

void StoreServer::Impl::begin_turn() {
  shared_.turn_work = kTurnWork;
}

void StoreServer::Impl::begin_slice() {
  slice_begun_ = shared_.turn_work > 0 ? kSliceWork : kSmallSliceWork;
  shared_.slice_work = slice_begun_;
}

void StoreServer::Impl::end_slice() {
  shared_.turn_work -= slice_begun_ - shared_.slice_work;
}

/// Continues what earlier turns have left, while this turn lasts. Before the next turn, new events
/// of other connections are handled.
void StoreServer::Impl::continue_work() {
  // However many events there are, they leave some work for this.
  shared_.turn_work = std::max(shared_.turn_work, 2 * kSliceWork);
  finish_leaving(shared_.turn_work / 2);
  resume_yielded();
  if (has_work_left()) resume_later();
}

/// Continues to serve the connections that have yielded, one slice each.
void StoreServer::Impl::resume_yielded() {
  while (!resume_.empty() && shared_.turn_work > 0) {
    const ConnectionId id = resume_.front();
    resume_.pop_front();
    Slot& slot = slot_of(id);
    slot.resumes = false;
    if (!slot.connection) continue;
    guard(slot.connection.get(), [&] {
      begin_slice();
      slot.connection->resume();
      end_slice();
      update_slot(slot_of(id));
      finish_event();
    });
  }
}

void StoreServer::Impl::resume_later() {
  set_.end_turn();
  if (resume_posted_) return;
  asio::post(set_.executor(), [self = shared_from_this()] {
    self->resume_posted_ = false;
    if (!self->set_.is_open() || !self->may_serve()) return;
    self->set_.poll(self->serve_);  // Handles new events of other connections first.
    if (!self->set_.is_open() || !self->has_work_left() || self->resume_posted_) return;
    self->read_clock();
    self->begin_turn();
    self->continue_work();
    self->record_runs();
  });
  resume_posted_ = true;  // If post() throws for lack of memory, the next call tries again.
}

/// Null for a listener, and for a connection that was closed earlier in the same batch.
Connection* StoreServer::Impl::connection_at(std::uint64_t tag) {
  if (tag & kListenerTag) return nullptr;
  const Slot& slot = slots_[tag & 0xffffffff];
  return slot.generation == tag >> 32 ? slot.connection.get() : nullptr;
}

template <typename Work>
void StoreServer::Impl::guard(Connection* connection, const Work& work) {
  // When the exception comes, the connection may be closed already, and another connection may have
  // its slot.
  const std::uint64_t tag =
      connection == nullptr ? kListenerTag : tag_of(slot_of(connection->id()), connection->id());
  try {
    work();
  } catch (const std::exception& error) {
    shared_.replies.clear();  // The replies to this connection must not be sent to the next one.
    const Connection* const there = connection_at(tag);
    log_failed_event(shared_.log, now_, there, error);
    if (there != nullptr) close(slot_of(there->id()), {});
  }
}

void StoreServer::Impl::on_event(const epoll_event& event) {
  const std::uint64_t tag = event.data.u64;
  if (tag & kListenerTag) return accept_from(static_cast<std::size_t>(tag & ~kListenerTag));
  Connection* const connection = connection_at(tag);
  if (connection == nullptr) return;
  if (connection->may_begin_tls() && begin_tls(slots_[tag & 0xffffffff])) return;
  begin_slice();
  if (event.events & EPOLLOUT) connection->on_writable();
  if (connection->interest().read)
    connection->on_readable();
  else if (event.events & (EPOLLHUP | EPOLLERR))
    connection->on_hang_up();
  end_slice();
  update_slot(slots_[tag & 0xffffffff]);
  finish_event();
}

/// Applies the effects of an event, keeps the limits, and applies the effects of the connections
/// that were closed for it.
void StoreServer::Impl::finish_event() {
  if (shared_.runs) apply_run_effects();
  enforce_unread_limit();
  apply_pending_effects();
}

/// An effect names connections by their numbers, and a new connection gets the number of a closed
/// one. So no effect may be left when a connection is accepted.
void StoreServer::Impl::apply_pending_effects() {
  if (shared_.runs && shared_.runs->has_effects()) apply_run_effects();
}

void StoreServer::Impl::wake(ConnectionId id) {
  Slot& slot = slot_of(id);
  if (!slot.connection) return;
  slot.connection->wake();
  update_slot(slot);
}

/// Called after every event of a connection: closes the connection, or updates the events that it
/// is watched for, its unread bytes and its deadline.
void StoreServer::Impl::update_slot(Slot& slot) {
  Connection& connection = *slot.connection;
  if (connection.done())
    return close(slot, {connection.reason(), connection.cause(), connection.violation()});
  if (connection.unread_bytes() != slot.unread_bytes) record_unread(slot);
  if (connection.yielded() && !std::exchange(slot.resumes, true)) {
    resume_.push_back(connection.id());
    resume_later();  // Needed if no turn is running that would resume it, as in on_timer().
  }
  const Connection::Interest interest = connection.interest();
  if (interest != connection.watched) {
    set_.change(connection.fd(), (interest.read ? EPOLLIN : 0U) | (interest.write ? EPOLLOUT : 0U),
                tag_of(slot, connection.id()));
    connection.watched = interest;
  }
  if (connection.owes_token_proof() && slot.waits_in != &unvalidated_)
    set_deadline(slot, &unvalidated_);
  if (!connection.validated()) return;  // Its deadline does not change.
  set_deadline(slot, connection.has_unfinished_io() ? &stalled_ : nullptr);
}

void StoreServer::Impl::record_unread(Slot& slot) {
  const std::uint32_t id = slot.connection->id().value;
  if (slot.unread_bytes > 0) unread_.erase({slot.unread_bytes, id});
  count_unread(slot, std::exchange(slot.unread_bytes, slot.connection->unread_bytes()));
  if (slot.unread_bytes > 0) unread_.emplace(slot.unread_bytes, id);
  shared_.queued_bytes += slot.connection->unread_memory() - slot.unread_memory;
  slot.unread_memory = slot.connection->unread_memory();
}

void StoreServer::Impl::count_unread(Slot& slot, std::size_t before) {
  if (slot.account != nullptr) shared_.accounts.count_queued(*slot.account, before, 0);
  slot.account = slot.connection->account();
  if (slot.account == nullptr) return;
  shared_.accounts.count_queued(*slot.account, 0, slot.unread_bytes);
  if (shared_.accounts.has_too_much_queued(*slot.account)) run_has_too_much_ = true;
}

/// While the unread replies of all clients exceed the limit, closes the client with the most. A
/// client that reads its replies has few of them, so it is not closed because of other clients.
void StoreServer::Impl::enforce_unread_limit() {
  while (shared_.unread_bytes() > options_.limits.queued_total_bytes && !unread_.empty())
    close_for(slots_[unread_.rbegin()->second],
              "it has the most of all unread replies: limit queued_total_bytes");
  if (std::exchange(run_has_too_much_, false)) enforce_run_unread_limits();
}

/// Does the same within each run that exceeds the limit of one run. Not called by count_unread(),
/// because the connection with the most unread replies may be the one that is being served.
void StoreServer::Impl::enforce_run_unread_limits() {
  std::vector<std::uint32_t> most_first;
  for (auto each = unread_.rbegin(); each != unread_.rend(); ++each)
    most_first.push_back(each->second);
  for (const std::uint32_t id : most_first) {
    Slot& slot = slots_[id];
    if (slot.account != nullptr && shared_.accounts.has_too_much_queued(*slot.account))
      close_for(slot, "it has the most of its run's unread replies: limit run_queued_bytes");
  }
}

void StoreServer::Impl::set_deadline(Slot& slot, DeadlineList* list) {
  if (slot.waits_in == list) {
    if (list != nullptr) list->renew(slot.deadline, now_);
    return;
  }
  if (slot.waits_in != nullptr) slot.waits_in->remove(slot.deadline);
  slot.waits_in = list;
  if (list == nullptr) return;
  slot.deadline = list->add(slot.connection->id(), now_);
  if (!timer_at_ || slot.deadline->at < *timer_at_) arm_timer();
}

void StoreServer::Impl::begin_runs() {
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

/// Applies the effects of the run service, which may concern other connections.
void StoreServer::Impl::apply_run_effects() {
  const auto connection = [this](ConnectionId id) { return connection_of(id); };
  while (shared_.runs->has_effects())
    for (const RunEffect& effect : shared_.runs->take_effects()) {
      const auto to = recipient_of(effect);
      guard(to ? connection_of(*to) : nullptr, [&] {
        if (const auto touched = apply(effect, shared_, connection)) update_slot(slot_of(*touched));
      });
    }
  if (const auto next = shared_.runs->next_deadline(); next && (!timer_at_ || *next < *timer_at_))
    arm_timer();
  if (drained_) check_drained();
}

void StoreServer::Impl::drain(Instant deadline, std::function<void()> done) {
  MUSTER_CHECK(!drained_by_);
  drained_by_ = deadline;
  drained_ = std::move(done);
  if (shared_.runs) shared_.runs->drain();
  read_clock();
  arm_timer();
  check_drained();
}

void StoreServer::Impl::check_drained() {
  MUSTER_CHECK(drained_by_.has_value());
  const auto owes = [](const Slot& slot) {
    return slot.connection && slot.connection->unread_replies();
  };
  const bool all_left = !shared_.runs || shared_.runs->state_clients() == 0;
  const bool drained = all_left && std::none_of(slots_.begin(), slots_.end(), owes);
  if (!drained && now_ < *drained_by_) return;
  // Called from the loop, because the callback may destroy this server.
  asio::post(set_.executor(), std::exchange(drained_, nullptr));
}

/// Sets the timer to the next deadline, but not to a time before `earliest`. A deadline that has
/// passed already is no sign that the timer fires late.
void StoreServer::Impl::arm_timer(Instant earliest) {
  std::optional<Instant> next = accept_again_;
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (shared_.runs) also(shared_.runs->next_deadline());
  if (drained_) also(drained_by_);
  for (const DeadlineList* list : {&unvalidated_, &stalled_})
    if (const auto* first = list->first()) also(first->at);
  if (next) next = std::max({*next, earliest, muster::now()});
  timer_at_ = next;
  if (!next) return;
  timer_.expires_at(to_steady(*next));
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (!ec && self->set_.is_open()) self->on_timer();
  });
}

void StoreServer::Impl::on_timer() {
  if (!may_serve()) return;
  const Duration late = timer_at_ ? muster::now() - *timer_at_ : Duration::zero();
  try {
    handle_deadlines(late);
  } catch (...) {  // Out of memory: the loop logs it. The deadlines are handled a little later.
    if (set_.is_open()) arm_timer(muster::now() + kRetryDeadlines);
    throw;
  }
  if (set_.is_open()) arm_timer();
}

void StoreServer::Impl::handle_deadlines(Duration late) {
  // After a pause longer than a lease (the machine was stopped or starved), the keep-alives of that
  // time wait to be read. They are read before any node is taken for silent. The set serves its
  // ready sockets in turn, so this many calls of poll() read each socket once. More calls are not
  // made: clients that always have something to read must not hold up the deadlines.
  for (std::size_t looks = 0; looks <= open_ / std::size_t{EventSet::kEventsAtOnce}; ++looks) {
    const bool more = set_.poll(serve_);
    if (!set_.is_open()) return;
    if (!more) break;
  }
  read_clock();
  if (accept_again_ && *accept_again_ <= now_) resume_accepting();
  while (const auto* first = unvalidated_.first()) {
    if (first->at > now_) break;
    Slot& slot = slot_of(first->who);
    close_for(slot, slot.connection->owes_token_proof()
                        ? "no proof of the token in time: limit validate_seconds"
                        : "no VALIDATE in time: limit validate_seconds");
  }
  while (const auto* first = stalled_.first()) {
    if (first->at > now_) break;
    Slot& slot = slot_of(first->who);
    close_for(slot, slot.connection->unread_replies()
                        ? "replies are not read: limit stalled_seconds"
                        : "half a request: limit stalled_seconds");
  }
  if (shared_.runs) {
    guard(nullptr, [&] {
      shared_.runs->woke_late(late, {now_, wall_now()});
      shared_.runs->time_passed({now_, wall_now()});
    });
    apply_run_effects();
    record_runs();
  }
  if (drained_) check_drained();
}

void StoreServer::Impl::reset() {
  close_all();
  shared_.c10d.forget_introduced();
  begin_runs();
}

void StoreServer::Impl::stop() {
  if (!set_.is_open()) return;
  close_all();
  listeners_.clear();
  options_.state.reset();  // The state posts reports to the loop, so it must end before the loop.
  timer_.cancel();
  set_.close();
}

StoreServer::StoreServer(asio::io_context& loop, StoreServerOptions options)
    : impl_(std::make_shared<Impl>(loop, std::move(options))) {}

StoreServer::~StoreServer() {
  impl_->stop();
}

boost::system::result<void, ListenError> StoreServer::start() {
  return impl_->start();
}

std::uint16_t StoreServer::port() const {
  return impl_->listeners().empty() ? std::uint16_t{0} : impl_->listeners().front().endpoint.port();
}

std::vector<tcp::endpoint> StoreServer::endpoints() const {
  std::vector<tcp::endpoint> endpoints;
  for (const Listener& listener : impl_->listeners())
    endpoints.push_back(listener.endpoint);
  return endpoints;
}

void StoreServer::reset() {
  impl_->reset();
}
void StoreServer::drain(Instant deadline, std::function<void()> done) {
  impl_->drain(deadline, std::move(done));
}
void StoreServer::stop() {
  impl_->stop();
}

}  // namespace muster
