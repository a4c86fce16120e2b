#include "rendezvous/server/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

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

namespace muster {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::uint32_t kGenerations = std::uint32_t{1} << 31;  // In a tag, below kListenerTag.
constexpr Duration kRetryDeadlines = std::chrono::milliseconds(200);

/// Returns whether there was memory for the line.
bool log_failed_event(LogLimiter& log, Instant now, const Connection* connection,
                      const std::exception& error) noexcept {
  try {
    const auto peer =
        connection != nullptr ? connection->socket().peer_address() : asio::ip::address();
    if (const auto left_out = log.admit(now, "event failed", peer))
      spdlog::error("store_event_failed peer={} error=\"{}\" left_out={}",
                    connection != nullptr ? connection->peer() : "none",
                    printable_text(error.what()), *left_out);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

StoreServer::StoreServer(asio::io_context& loop, StoreServerOptions options)
    : options_(std::move(options)),
      shared_(options_.codec, options_.table, options_.limits, options_.run_limits,
              C10dDoor(options_.c10d_allow)),
      set_(loop),
      serve_([this](auto events, Instant now) { on_events(events, now); }),
      acceptor_(
          shared_, set_, [this](const auto& peer) { return may_connect(peer); },
          [this](OwnedFd fd, const auto& peer) { return add_connection(std::move(fd), peer); }),
      timer_(loop),
      unvalidated_(options_.validate_within),
      stalled_(options_.stalled_after),
      unread_(shared_) {
  shared_.wake = [this](ConnectionId id) { wake(id); };
  shared_.reach = options_.reach;
  shared_.codec.native_door = static_cast<bool>(shared_.reach);
  set_run_tokens(std::move(options_.run_tokens));
  shared_.token_run = options_.token_run;
  shared_.tls = static_cast<bool>(options_.tls);
  shared_.tls_rules = options_.tls_rules;
  if (shared_.tokens) shared_.codec.short_native_messages = 2;  // A hello and its proof.
}

StoreServer::~StoreServer() {
  stop();
}

void StoreServer::set_run_tokens(HostTokens::OfRuns tokens) {
  if (options_.token)
    shared_.tokens = std::make_shared<const HostTokens>(options_.token, std::move(tokens));
}

/// Whether a peer may connect.
bool StoreServer::may_connect(const asio::ip::address& peer) {
  // An effect names connections by their numbers, and a new connection gets the number of a closed
  // one. So no effect may be left when a connection is accepted.
  apply_pending_effects();
  if (options_.admit) return options_.admit(peer);
  // Without a native door, the store is the only service: other clients are refused at once.
  const bool only_store = !options_.runs && !options_.reach;
  return !only_store || !options_.c10d_allow || options_.c10d_allow->lists(peer);
}

boost::system::result<void, ListenError> StoreServer::start() {
  MUSTER_CHECK(acceptor_.listeners().empty());
  auto listening = options_.descriptors.empty() ? listen_on(options_.addresses, options_.port)
                                                : take_over(options_.descriptors);
  if (!listening) return listening.error();
  if (const char* call = set_.open()) {
    const error_code why(errno, boost::system::system_category());  // to_string() changes errno.
    const tcp::endpoint& first = listening->front().endpoint;
    return ListenError{call, first.address().to_string(), first.port(), why};
  }
  if (const auto begun = acceptor_.begin(*std::move(listening)); !begun) return begun.error();
  read_clock();
  begin_runs();
  wait_for_events();
  return {};
}

void StoreServer::wait_for_events() {
  set_.async_wait(while_alive([](StoreServer& server, const error_code& ec) {
    if (ec || !server.set_.is_open()) return;
    try {
      server.set_.run_turn(server.serve_);
    } catch (...) {  // Out of memory: the loop logs it. The next events are served all the same.
      if (server.set_.is_open()) server.wait_for_events();
      throw;
    }
    if (server.set_.is_open()) server.wait_for_events();
  }));
}

void StoreServer::on_events(std::span<const epoll_event> events, Instant now) {
  if (!may_serve()) return;
  shared_.now = now;
  shared_.work.begin_turn();
  for (const epoll_event& event : events)
    if (set_.is_open()) guard(connection_at(event.data.u64), [&] { on_event(event); });
  if (has_work_left() && set_.is_open()) continue_work();
  if (set_.is_open()) apply_pending_effects();
  record_runs();
}

/// Continues what earlier turns have left, while this turn lasts. Before the next turn, new events
/// of other connections are handled.
void StoreServer::continue_work() {
  shared_.work.keep_some_for_the_rest();
  finish_leaving(shared_.work.left_in_turn() / 2);
  resume_yielded();
  if (has_work_left()) resume_later();
}

/// Continues to serve the connections that have yielded, one slice each.
void StoreServer::resume_yielded() {
  while (!resume_.empty() && !shared_.work.turn_is_used_up()) {
    const ConnectionId id = resume_.front();
    resume_.pop_front();
    Slot& slot = slot_of(id);
    slot.resumes = false;
    if (!slot.connection) continue;
    guard(slot.connection.get(), [&] {
      shared_.work.begin_slice();
      slot.connection->resume();
      shared_.work.end_slice();
      update_slot(slot_of(id));
      finish_event();
    });
  }
}

void StoreServer::resume_later() {
  if (resume_posted_) return;
  asio::post(set_.executor(), while_alive([](StoreServer& server) {
               server.resume_posted_ = false;
               if (!server.set_.is_open() || !server.may_serve()) return;
               server.set_.poll(server.serve_);  // Handles new events of other connections first.
               if (server.set_.is_open() && !server.resume_posted_) server.begin_extra_turn();
             }));
  resume_posted_ = true;  // If post() throws for lack of memory, the next call tries again.
}

/// A turn for what earlier turns have left, without new events.
void StoreServer::begin_extra_turn() {
  if (!has_work_left()) return;
  read_clock();
  shared_.work.begin_turn();
  continue_work();
  record_runs();
}

/// Null for a listener, and for a connection that was closed earlier in the same batch.
Connection* StoreServer::connection_at(std::uint64_t tag) {
  if (tag & Acceptor::kListenerTag) return nullptr;
  const Slot& slot = slots_[tag & 0xffffffff];
  return slot.generation == tag >> 32 ? slot.connection.get() : nullptr;
}

/// `tag` is the connection's at the beginning of the work: it may be closed already, and another
/// connection may have its slot.
void StoreServer::on_failed_event(std::uint64_t tag, const std::exception& error) {
  shared_.replies.clear();  // The replies to this connection must not be sent to the next one.
  const Connection* const there = connection_at(tag);
  log_failed_event(shared_.log, shared_.now, there, error);
  if (there != nullptr) close(slot_of(there->id()), {});
}

void StoreServer::on_event(const epoll_event& event) {
  const std::uint64_t tag = event.data.u64;
  if (tag & Acceptor::kListenerTag) {
    acceptor_.accept_from(tag);
    return arm_timer_for(acceptor_.paused_until());
  }
  Connection* const connection = connection_at(tag);
  if (connection == nullptr) return;
  if (connection->may_begin_tls() && begin_tls(slots_[tag & 0xffffffff])) return;
  shared_.work.begin_slice();
  if (event.events & EPOLLOUT) connection->on_writable();
  if (connection->interest().read)
    connection->on_readable();
  else if (event.events & (EPOLLHUP | EPOLLERR))
    connection->on_hang_up();
  shared_.work.end_slice();
  update_slot(slots_[tag & 0xffffffff]);
  finish_event();
}

/// Returns 0, or the errno if the event set cannot watch the socket.
int StoreServer::add_connection(OwnedFd fd, const tcp::endpoint& peer) {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const ConnectionId id{free_slots_.back()};
  Slot& slot = slot_of(id);
  auto connection = std::make_unique<Connection>(shared_, std::move(fd), id, peer);
  if (!set_.add(connection->socket().fd(), EPOLLIN, tag_of(slot, id))) return errno;
  acceptor_.on_opened(connection->socket().peer_address());
  free_slots_.pop_back();
  slot.connection = std::move(connection);
  slot.connection->watched = {.read = true};
  set_deadline(slot, &unvalidated_);
  return 0;
}

/// Looks at the first byte of a connection. Returns true if the client speaks TLS and the socket is
/// now the plain end, or if the connection was closed.
bool StoreServer::begin_tls(Slot& slot) {
  Connection& connection = *slot.connection;
  unsigned char first = 0;
  if (::recv(connection.socket().fd(), &first, 1, MSG_PEEK) != 1)
    return false;  // on_readable() handles it.
  if (first != kTlsFirstByte) {
    connection.socket().stay_plain();
    return false;
  }
  const ConnectionId id = connection.id();
  set_.remove(connection.socket().fd());
  auto joined = options_.tls->join(connection.socket().release(),
                                   connection.socket().peer_address().to_string());
  int error = 0;
  if (joined) {
    connection.socket().become_secure(*std::move(joined));
    if (set_.add(connection.socket().fd(), EPOLLIN, tag_of(slot, id))) return true;
    error = errno;
  } else {
    error = joined.error().value();
  }
  close(slot, {"TLS cannot begin: " + error_code(error, boost::system::system_category()).message(),
               "TLS cannot begin"});
  return true;
}

void StoreServer::wake(ConnectionId id) {
  Slot& slot = slot_of(id);
  if (!slot.connection) return;
  slot.connection->wake();
  update_slot(slot);
}

/// Called after every event of a connection: closes the connection, or updates the events that it
/// is watched for, its unread bytes and its deadline.
void StoreServer::update_slot(Slot& slot) {
  Connection& connection = *slot.connection;
  if (connection.done()) return close(slot, connection.ending());
  if (connection.unread_bytes() != slot.unread.bytes)
    unread_.update(connection.id(), slot.unread,
                   {.bytes = connection.unread_bytes(),
                    .memory = connection.unread_memory(),
                    .account = connection.runs().account()});
  if (connection.yielded() && !std::exchange(slot.resumes, true)) {
    resume_.push_back(connection.id());
    resume_later();  // Needed if no turn is running that would resume it, as in on_timer().
  }
  const Connection::Interest interest = connection.interest();
  if (interest != connection.watched) {
    set_.change(connection.socket().fd(),
                (interest.read ? EPOLLIN : 0U) | (interest.write ? EPOLLOUT : 0U),
                tag_of(slot, connection.id()));
    connection.watched = interest;
  }
  if (connection.owes_token_proof() && slot.waits_in != &unvalidated_)
    set_deadline(slot, &unvalidated_);
  if (!connection.validated()) return;  // Its deadline does not change.
  set_deadline(slot, connection.has_unfinished_io() ? &stalled_ : nullptr);
}

/// Closes the clients with the most unread replies while these exceed a limit. Not called while a
/// connection is served, because it may be one of them.
void StoreServer::enforce_unread_limits() {
  while (const auto id = unread_.first_beyond_limit())
    close_for(slot_of(*id), "it has the most of all unread replies: limit queued_total_bytes");
  if (!unread_.take_run_beyond_limit()) return;
  for (const ConnectionId id : unread_.most_first())
    if (Slot& slot = slot_of(id); unread_.is_of_run_beyond_limit(slot.unread))
      close_for(slot, "it has the most of its run's unread replies: limit run_queued_bytes");
}

void StoreServer::set_deadline(Slot& slot, DeadlineList* list) {
  if (slot.waits_in == list) {
    if (list != nullptr) list->renew(slot.deadline, shared_.now);
    return;
  }
  if (slot.waits_in != nullptr) slot.waits_in->remove(slot.deadline);
  slot.waits_in = list;
  if (list == nullptr) return;
  slot.deadline = list->add(slot.connection->id(), shared_.now);
  arm_timer_for(slot.deadline->at);
}

/// Sets the timer to the next deadline, but not to a time before `earliest`. A deadline that has
/// passed already is no sign that the timer fires late.
void StoreServer::arm_timer(Instant earliest) {
  std::optional<Instant> next = acceptor_.paused_until();
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (shared_.runs) also(shared_.runs->next_deadline());
  if (drained_) also(drained_by_);
  for (const DeadlineList* list : {&unvalidated_, &stalled_})
    if (const auto* first = list->first()) also(first->at);
  if (next) next = std::max({*next, earliest, now()});
  timer_at_ = next;
  if (!next) return;
  timer_.expires_at(to_steady(*next));
  timer_.async_wait(while_alive([](StoreServer& server, const error_code& ec) {
    if (!ec && server.set_.is_open()) server.on_timer();
  }));
}

/// Sets the timer to the deadline if that is earlier.
void StoreServer::arm_timer_for(std::optional<Instant> deadline) {
  if (deadline && (!timer_at_ || *deadline < *timer_at_)) arm_timer();
}

void StoreServer::on_timer() {
  if (!may_serve()) return;
  const Duration late = timer_at_ ? now() - *timer_at_ : Duration::zero();
  try {
    handle_deadlines(late);
  } catch (...) {  // Out of memory: the loop logs it. The deadlines are handled a little later.
    if (set_.is_open()) arm_timer(now() + kRetryDeadlines);
    throw;
  }
  if (set_.is_open()) arm_timer();
}

void StoreServer::handle_deadlines(Duration late) {
  // After a pause longer than a lease (the machine was stopped or starved), the keep-alives of that
  // time wait to be read. They are read before any node is taken for silent. The set serves its
  // ready sockets in turn, so this many calls of poll() read each socket once. More calls are not
  // made: clients that always have something to read must not hold up the deadlines.
  for (std::size_t looks = 0; looks <= acceptor_.open() / std::size_t{EventSet::kEventsAtOnce};
       ++looks) {
    const bool more = set_.poll(serve_);
    if (!set_.is_open()) return;
    if (!more) break;
  }
  read_clock();
  acceptor_.on_time();
  while (const auto* first = unvalidated_.first()) {
    if (first->at > shared_.now) break;
    Slot& slot = slot_of(first->who);
    close_for(slot, slot.connection->owes_token_proof()
                        ? "no proof of the token in time: limit validate_seconds"
                        : "no VALIDATE in time: limit validate_seconds");
  }
  while (const auto* first = stalled_.first()) {
    if (first->at > shared_.now) break;
    Slot& slot = slot_of(first->who);
    close_for(slot, slot.connection->has_unread_replies()
                        ? "replies are not read: limit stalled_seconds"
                        : "half a request: limit stalled_seconds");
  }
  if (shared_.runs) {
    guard(nullptr, [&] {
      shared_.runs->woke_late(late, shared_.time());
      shared_.runs->time_passed(shared_.time());
    });
    apply_run_effects();
    record_runs();
  }
  if (drained_) check_drained();
}

void StoreServer::reset() {
  close_all();
  shared_.c10d.forget_introduced();
  begin_runs();
}

void StoreServer::stop() {
  if (!set_.is_open()) return;
  close_all();
  acceptor_.close();
  options_.state.reset();  // The state posts reports to the loop, so it must end before the loop.
  timer_.cancel();
  set_.close();
}

void StoreServer::close(Slot& slot, const ConnectionEnding& ending) {
  dismiss(slot, ending);
  finish_leaving(0);
  if (!leaving_.empty()) resume_later();
}

/// Closes the connection, and leaves it to finish_leaving().
void StoreServer::dismiss(Slot& slot, const ConnectionEnding& ending) {
  Connection& connection = *slot.connection;
  const asio::ip::address peer = connection.socket().peer_address();
  if (!ending.reason.empty()) {
    if (ending.violation) ++shared_.closed[ending.cause];
    if (const auto left_out = shared_.log.admit(shared_.now, ending.cause, peer))
      spdlog::log(ending.violation ? spdlog::level::warn : spdlog::level::info,
                  "store_connection_closed peer={} reason=\"{}\" left_out={}", connection.peer(),
                  printable_text(ending.reason), *left_out);
  }
  if (slot.waits_in != nullptr) std::exchange(slot.waits_in, nullptr)->remove(slot.deadline);
  unread_.remove(connection.id(), slot.unread);
  slot.generation = (slot.generation + 1) % kGenerations;
  connection.leave();
  leaving_.push_back(std::move(slot.connection));
  acceptor_.on_closed(peer);
}

/// Destroys closed connections, as long as more than `reserved` of the turn's work is left. Each
/// may have waited for so many keys that the loop would stand still if all of them were destroyed
/// at once.
void StoreServer::finish_leaving(std::int64_t reserved) {
  while (!leaving_.empty() && shared_.work.left_in_turn() > reserved) {
    const std::unique_ptr<Connection> left = std::move(leaving_.front());
    leaving_.pop_front();
    shared_.work.spend_of_turn(left->work_left());
    free_slots_.push_back(left->id().value);
  }
}

void StoreServer::close_all() {
  read_clock();
  shared_.table.clear();
  for (Slot& slot : slots_)
    if (slot.connection) dismiss(slot, {});
  shared_.work.begin_turn();
  finish_leaving(0);  // The table is empty, so nothing of their waits is left.
  shared_.accounts.clear();
}

void StoreServer::set_limits(const StoreServerLimits& limits) {
  const CodecLimits before = shared_.codec;
  shared_.codec = limits.codec;
  shared_.codec.native_door = before.native_door;
  shared_.codec.short_native_messages = before.short_native_messages;
  shared_.table.set_limits(shared_.limits = limits.table);
  shared_.connections = limits.connections;
  shared_.accounts.set_limits(limits.of_a_run);
  unvalidated_.set_after(limits.validate_within);
  stalled_.set_after(limits.stalled_after);
  if (shared_.runs) shared_.runs->set_limits(limits.runs, limits.forget_run_after);
  if (options_.runs) {
    options_.runs->runs = limits.runs;
    options_.runs->forget_after = limits.forget_run_after;
  }
  if (!set_.is_open()) return;
  read_clock();
  arm_timer();
}

StoreServerStats StoreServer::stats() const {
  const StoreTable& table = shared_.table;
  const RunService* runs = shared_.runs.get();
  return {.connections = acceptor_.open(),
          .waiting = table.waiting(),
          .keys = table.num_keys(),
          .table_bytes = table.bytes(),
          .unread_bytes = shared_.unread_bytes(),
          .accepted = acceptor_.total_accepted(),
          .traffic = shared_.traffic,
          .runs = runs != nullptr ? runs->runs() : 0,
          .refused = acceptor_.total_refused(),
          .state_problem = runs != nullptr ? runs->state_problem() : std::string(),
          .draining = drained_by_.has_value(),
          .closed = shared_.closed};
}

std::uint16_t StoreServer::port() const {
  const auto& listeners = acceptor_.listeners();
  return listeners.empty() ? std::uint16_t{0} : listeners.front().endpoint.port();
}

std::vector<tcp::endpoint> StoreServer::endpoints() const {
  std::vector<tcp::endpoint> endpoints;
  endpoints.reserve(acceptor_.listeners().size());
  for (const Listener& listener : acceptor_.listeners())
    endpoints.push_back(listener.endpoint);
  return endpoints;
}

const RunService* StoreServer::runs() const {
  return shared_.runs.get();
}

}  // namespace muster
