#include "rendezvous/net/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <span>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "rendezvous/core/check.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/connection.h"
#include "rendezvous/net/deadline_list.h"
#include "rendezvous/net/event_set.h"
#include "rendezvous/net/log_limiter.h"
#include "rendezvous/net/run_effects.h"

namespace muster {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kAcceptsAtOnce = 256;  // Before connections that are there have theirs.
constexpr Duration kAcceptRetry = std::chrono::milliseconds(200);
constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 63;
constexpr std::uint32_t kGenerations = std::uint32_t{1} << 31;  // Below kListenerTag in a tag.

std::chrono::steady_clock::time_point to_steady(Instant at) {
  return std::chrono::steady_clock::time_point(at.time_since_epoch());
}

/// Exact as a number of JSON, also for those who read it as a double; always as many digits.
std::int64_t random_life() {
  constexpr std::int64_t kLeast = std::int64_t{1} << 51;
  std::random_device random;
  return std::uniform_int_distribution<std::int64_t>(kLeast, 2 * kLeast - 1)(random);
}

}  // namespace

class StoreServer::Impl : public std::enable_shared_from_this<StoreServer::Impl> {
 public:
  Impl(asio::io_context& loop, StoreServerOptions options)
      : options_(std::move(options)),
        shared_(options_.codec, options_.table, options_.queued_bytes),
        set_(loop),
        serve_([this](auto events, Instant now) { on_events(events, now); }),
        timer_(loop),
        unvalidated_(options_.validate_within),
        stalled_(options_.stalled_after) {
    shared_.wake = [this](ConnectionId id) { wake(id); };
  }

  boost::system::result<void, ListenError> start();
  void reset();
  void drain(Instant deadline, std::function<void()> done);
  void stop();
  StoreServerStats stats() const;
  const std::vector<Listener>& listeners() const { return listeners_; }

 private:
  // One client's place; `generation` tells an event for it from one for who had the place before.
  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    DeadlineList* waits_in = nullptr;
    DeadlineList::Place deadline;
  };

  void wait_for_events();
  void on_events(std::span<const epoll_event> events, Instant now);
  void on_event(const epoll_event& event);
  void accept_from(std::size_t listener);
  void admit(OwnedFd fd, const tcp::endpoint& peer);
  void pause_accepting(int error);
  void resume_accepting();
  bool watch_listeners(std::uint32_t events);
  void wake(ConnectionId id);
  void settle(Slot& slot);
  void set_deadline(Slot& slot, DeadlineList* list);
  void close(Slot& slot, const std::string& reason, bool warn);
  void close_all();
  void arm_timer();
  void on_timer();
  void read_clock() { set_now(muster::now()); }
  void set_now(Instant now) { now_ = shared_.now = now; }
  void begin_runs();
  void carry_out_runs();
  void check_drained();
  Connection* connection_of(ConnectionId id) { return slot_of(id).connection.get(); }
  Slot& slot_of(ConnectionId id) { return slots_[id.value]; }
  static std::uint64_t tag_of(const Slot& slot, ConnectionId id) {
    return std::uint64_t{slot.generation} << 32 | id.value;
  }

  StoreServerOptions options_;
  ConnectionShared shared_;
  EventSet set_;
  EventSet::Serve serve_;
  asio::steady_timer timer_;
  std::optional<Instant> timer_at_;
  std::vector<Listener> listeners_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  DeadlineList unvalidated_;
  DeadlineList stalled_;
  std::optional<Instant> accept_again_;  // Out of descriptors until then.
  std::optional<Instant> drained_by_;
  std::function<void()> drained_;
  LogLimiter log_;
  Instant now_{};
  std::uint64_t accepted_ = 0;
  std::size_t open_ = 0;
};

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
    self->set_.take_turn(self->serve_);
    if (self->set_.is_open()) self->wait_for_events();
  });
}

void StoreServer::Impl::on_events(std::span<const epoll_event> events, Instant now) {
  set_now(now);
  for (const epoll_event& event : events)
    if (set_.is_open()) on_event(event);
}

void StoreServer::Impl::on_event(const epoll_event& event) {
  const std::uint64_t tag = event.data.u64;
  if (tag & kListenerTag) return accept_from(static_cast<std::size_t>(tag & ~kListenerTag));
  Slot& slot = slots_[tag & 0xffffffff];
  if (!slot.connection || slot.generation != tag >> 32) return;  // Closed earlier in this batch.
  Connection& connection = *slot.connection;
  if (event.events & EPOLLOUT) connection.on_writable();
  if (connection.interest().read)
    connection.on_readable();
  else if (event.events & (EPOLLHUP | EPOLLERR))
    connection.on_hang_up();
  settle(slots_[tag & 0xffffffff]);
  if (shared_.runs) carry_out_runs();
}

void StoreServer::Impl::wake(ConnectionId id) {
  Slot& slot = slot_of(id);
  if (!slot.connection) return;
  slot.connection->wake();
  settle(slot);
}

// What follows from an event: closed, watched for something else, another deadline.
void StoreServer::Impl::settle(Slot& slot) {
  Connection& connection = *slot.connection;
  if (connection.done()) return close(slot, connection.reason(), connection.violation());
  const Connection::Interest interest = connection.interest();
  if (interest != connection.watched) {
    set_.change(connection.fd(), (interest.read ? EPOLLIN : 0U) | (interest.write ? EPOLLOUT : 0U),
                tag_of(slot, connection.id()));
    connection.watched = interest;
  }
  if (!connection.validated()) return;  // Its deadline stands.
  set_deadline(slot, connection.in_between() ? &stalled_ : nullptr);
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

void StoreServer::Impl::accept_from(std::size_t listener) {
  if (accept_again_) return;
  for (int i = 0; i < kAcceptsAtOnce && set_.is_open(); ++i) {
    tcp::endpoint peer;
    socklen_t size = static_cast<socklen_t>(peer.capacity());
    OwnedFd fd(
        ::accept4(listeners_[listener].fd.get(), peer.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) {
      peer.resize(size);
      admit(std::move(fd), peer);
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return pause_accepting(errno);
    // Anything else is about a connection that has failed before we took it.
  }
}

void StoreServer::Impl::admit(OwnedFd fd, const tcp::endpoint& peer) {
  ++accepted_;
  const char* refused = nullptr;
  if (options_.admit && !options_.admit(unmapped(peer.address())))
    refused = "this address may not connect";
  if (open_ >= options_.connections) refused = "too many connections: limit connections is reached";
  if (refused != nullptr) {
    if (const auto left_out = log_.admit(now_))
      spdlog::warn("store_connection_refused peer={} reason=\"{}\" connections={} left_out={}",
                   to_text(peer), refused, open_, *left_out);
    return;
  }
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const ConnectionId id{free_slots_.back()};
  Slot& slot = slot_of(id);
  if (!set_.add(fd.get(), EPOLLIN, tag_of(slot, id))) return pause_accepting(errno);
  free_slots_.pop_back();
  slot.connection = std::make_unique<Connection>(shared_, std::move(fd), id, peer);
  slot.connection->watched = {.read = true};
  ++open_;
  set_deadline(slot, &unvalidated_);
}

void StoreServer::Impl::pause_accepting(int error) {
  if (!accept_again_) {
    if (const auto left_out = log_.admit(now_))
      spdlog::error(
          "store_accept_failed error=\"{}\" connections={} left_out={} advice=\"new clients "
          "wait in the kernel; raise the limit of open files (`ulimit -n`, LimitNOFILE=)\"",
          error_code(error, boost::system::system_category()).message(), open_, *left_out);
    watch_listeners(0);
  }
  accept_again_ = now_ + kAcceptRetry;
  if (!timer_at_ || *accept_again_ < *timer_at_) arm_timer();
}

void StoreServer::Impl::resume_accepting() {
  accept_again_.reset();
  watch_listeners(EPOLLIN);
}

bool StoreServer::Impl::watch_listeners(std::uint32_t events) {
  bool all = true;
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    all = set_.change(listeners_[i].fd.get(), events, kListenerTag | i) && all;
  }
  return all;
}

void StoreServer::Impl::close(Slot& slot, const std::string& reason, bool warn) {
  Connection& connection = *slot.connection;
  if (!reason.empty()) {
    if (const auto left_out = log_.admit(now_))
      spdlog::log(warn ? spdlog::level::warn : spdlog::level::info,
                  "store_connection_closed peer={} reason=\"{}\" left_out={}", connection.peer(),
                  reason, *left_out);
  }
  if (slot.waits_in != nullptr) std::exchange(slot.waits_in, nullptr)->remove(slot.deadline);
  free_slots_.push_back(connection.id().value);
  slot.connection.reset();
  slot.generation = (slot.generation + 1) % kGenerations;
  --open_;
  if (accept_again_) resume_accepting();  // A descriptor has come back.
}

void StoreServer::Impl::begin_runs() {
  if (!options_.runs) return;
  shared_.codec.native_door = true;
  RunServiceOptions runs = *options_.runs;
  if (runs.setup.life == 0) runs.setup.life = random_life();
  shared_.runs = std::make_unique<RunService>(std::move(runs));
  carry_out_runs();
}

// What the event of one connection means to others.
void StoreServer::Impl::carry_out_runs() {
  const auto connection = [this](ConnectionId id) { return connection_of(id); };
  while (shared_.runs->has_effects())
    for (const RunEffect& effect : shared_.runs->take_effects())
      if (const auto touched = carry_out(effect, shared_, connection)) settle(slot_of(*touched));
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
  // From the loop: it may well destroy this server.
  asio::post(set_.executor(), std::exchange(drained_, nullptr));
}

void StoreServer::Impl::arm_timer() {
  std::optional<Instant> next = accept_again_;
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (shared_.runs) also(shared_.runs->next_deadline());
  if (drained_) also(drained_by_);
  for (const DeadlineList* list : {&unvalidated_, &stalled_})
    if (const auto* first = list->first()) also(first->at);
  timer_at_ = next;
  if (!next) return;
  timer_.expires_at(to_steady(*next));
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (!ec && self->set_.is_open()) self->on_timer();
  });
}

void StoreServer::Impl::on_timer() {
  // After a pause longer than a lease (a stopped machine, a starved one) all the keep-alives of
  // that time wait to be read: who has spoken is heard before anybody is taken for silent.
  for (std::size_t looks = 0; looks <= slots_.size(); ++looks) {
    const bool more = set_.look(serve_);
    if (!set_.is_open()) return;
    if (!more) break;
  }
  read_clock();
  if (accept_again_ && *accept_again_ <= now_) resume_accepting();
  while (const auto* first = unvalidated_.first()) {
    if (first->at > now_) break;
    close(slot_of(first->who), "no VALIDATE in time: limit validate_seconds", true);
  }
  while (const auto* first = stalled_.first()) {
    if (first->at > now_) break;
    Slot& slot = slot_of(first->who);
    close(slot,
          slot.connection->unread_replies() ? "replies are not read: limit stalled_seconds"
                                            : "half a request: limit stalled_seconds",
          true);
  }
  if (shared_.runs) {
    shared_.runs->time_passed({now_, wall_now()});
    carry_out_runs();
  }
  if (drained_) check_drained();
  arm_timer();
}

void StoreServer::Impl::close_all() {
  read_clock();
  shared_.table.clear();
  for (Slot& slot : slots_)
    if (slot.connection) close(slot, {}, false);
}

void StoreServer::Impl::reset() {
  close_all();
  begin_runs();
}

void StoreServer::Impl::stop() {
  if (!set_.is_open()) return;
  close_all();
  listeners_.clear();
  timer_.cancel();
  set_.close();
}

StoreServerStats StoreServer::Impl::stats() const {
  return {open_,
          shared_.table.waiting(),
          shared_.table.num_keys(),
          shared_.table.bytes(),
          accepted_,
          shared_.requests,
          shared_.runs ? shared_.runs->runs() : 0};
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
StoreServerStats StoreServer::stats() const {
  return impl_->stats();
}

}  // namespace muster
