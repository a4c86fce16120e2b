#include "rendezvous/tls/tls_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/from_errno.h"
#include "base/system/thread_without_signals.h"
#include "rendezvous/tls/tls_link.h"

namespace muster {

namespace {

using Clock = std::chrono::steady_clock;
using boost::system::error_code;

// Links have numbers from 1 on. The tag of a TCP socket is twice the link's number. The tag of a
// plain socket is one more.
constexpr std::uint64_t kWakeTag = 0;
constexpr int kEventsInBatch = 256;
constexpr int kFinishPollMs = 50;
constexpr int kTurnPollMs = 100;
constexpr std::uint64_t kTurnRounds = 2;

/// Whether the peer has ended the connection, or its sending direction. No client of TLS does the
/// latter before its handshake. Bytes that it has sent before may still be unread.
bool has_ended(int fd) {
  pollfd polled{fd, POLLRDHUP, 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Clock::duration time_for(TlsLink::Phase phase) {
  if (phase == TlsLink::Phase::Handshake) return kTlsHandshakeWithin;
  return phase == TlsLink::Phase::Draining ? Clock::duration(kTlsDrainWithin)
                                           : Clock::duration(kTlsCloseWithin);
}

}  // namespace

class TlsPump::Impl {
 public:
  Impl(SharedTlsContext context, OnFailed on_failed)
      : context_(std::move(context)), on_failed_(std::move(on_failed)) {}
  ~Impl();

  void renew(SharedTlsContext context) {
    const std::lock_guard lock(mutex_);
    context_ = std::move(context);
  }
  SharedTlsContext context() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }
  boost::system::result<TlsConnection> join(OwnedFd tcp, const std::string& peer);

 private:
  struct Joined {
    OwnedFd tcp;
    OwnedFd plain;
    std::shared_ptr<TlsStatus> status;
    SharedTlsContext context;  // The context at the time of join().
    std::string peer;
    Clock::time_point at;
  };
  struct Entry {
    SharedTlsContext context;  // Declared first: it must outlive the link's engine.
    std::unique_ptr<TlsLink> link;
    std::string peer;
    TlsLink::Phase phase = TlsLink::Phase::Handshake;  // The phase that `deadline` belongs to.
    Clock::time_point deadline;
    bool has_turn = false;  // It is one of the kMaxTlsHandshakesAtOnce.
    // When its turn began, or its client last sent something, and how often the thread had handled
    // all events by then.
    Clock::time_point moved_at;
    std::uint64_t moved_round = 0;
    std::uint32_t tcp_watched = 0;
    std::uint32_t plain_watched = 0;
  };
  struct Handshakes {
    std::size_t now = 0;
    std::deque<Joined> waiting;
  };
  using Entries = std::map<std::uint64_t, Entry>;

  error_code start();
  void wake();
  void run();
  void begin_joined();
  void begin_next();
  bool begin_next_of(const std::string& address);
  void drop(const Joined& joined, const char* why);
  void pass_turns_on();
  void end_turn(std::uint64_t number, Entry& entry);
  void begin(Joined joined);
  void on_event(const epoll_event& event);
  void update(Entries::iterator at);
  void enter_phase(Entries::iterator at, TlsLink::Phase phase);
  void leave_handshake(const std::string& peer);
  void forget(Entries::iterator at);
  bool watch(int fd, std::uint32_t wanted, std::uint32_t& watched, std::uint64_t tag);
  void expire();
  void drop_stale(Clock::time_point now);
  int wait_ms() const;
  bool has_finished(bool had_events);

  mutable std::mutex mutex_;
  SharedTlsContext context_;    // The mutex protects this and the two members below.
  std::vector<Joined> joined_;  // Connections that the thread has not begun yet.
  bool stopped_ = false;
  OnFailed on_failed_;
  OwnedFd set_;
  OwnedFd wake_;
  std::thread thread_;

  // Used by the thread only.
  Entries entries_;
  std::uint64_t last_ = 0;
  std::set<std::pair<Clock::time_point, std::uint64_t>> deadlines_;
  std::map<std::string, Handshakes> handshakes_;  // At a server, by the client's address.
  std::size_t waiting_ = 0;  // The number of waiting connections in all of `handshakes_`.
  std::deque<std::string>
      addresses_;                   // Those with waiting connections, in the order of their turns.
  std::set<std::uint64_t> turns_;   // The connections that have_turn.
  std::uint64_t event_rounds_ = 0;  // How often all events that were ready have been handled.
  std::size_t closing_ = 0;
  std::optional<Clock::time_point> finish_by_;  // The object is being destroyed.
  bool has_unsent_ = false;  // Set by has_finished(): a connection still has bytes to send.
};

TlsPump::Impl::~Impl() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake();
  thread_.join();
}

/// Starts the thread unless it runs. The caller must hold the mutex.
error_code TlsPump::Impl::start() {
  if (thread_.joinable()) return {};
  set_ = OwnedFd(::epoll_create1(EPOLL_CLOEXEC));
  if (set_.get() < 0) return from_errno(errno);
  wake_ = OwnedFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (wake_.get() < 0) return from_errno(errno);
  std::uint32_t watched = 0;
  if (!watch(wake_.get(), EPOLLIN, watched, kWakeTag)) return from_errno(errno);
  try {
    thread_ = thread_without_signals([this] { run(); });
  } catch (const std::system_error& error) {
    return from_errno(error.code().value());
  }
  return {};
}

void TlsPump::Impl::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

boost::system::result<TlsConnection> TlsPump::Impl::join(OwnedFd tcp, const std::string& peer) {
  const int flags = ::fcntl(tcp.get(), F_GETFL);
  if (flags < 0 || ::fcntl(tcp.get(), F_SETFL, flags | O_NONBLOCK) < 0) return from_errno(errno);
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0)
    return from_errno(errno);
  TlsConnection connection{OwnedFd(pair[0]), std::make_shared<TlsStatus>(tcp.get())};
  OwnedFd other_end(pair[1]);
  {
    const std::lock_guard lock(mutex_);
    if (const error_code failed = start(); failed) return failed;
    joined_.push_back(
        {std::move(tcp), std::move(other_end), connection.status, context_, peer, Clock::now()});
  }
  wake();
  return connection;
}

void TlsPump::Impl::run() {
  std::array<epoll_event, kEventsInBatch> events;
  for (;;) {
    const int count = ::epoll_wait(set_.get(), events.data(), kEventsInBatch, wait_ms());
    for (int i = 0; i < count; ++i)
      on_event(events[static_cast<std::size_t>(i)]);
    if (count < kEventsInBatch) ++event_rounds_;
    begin_joined();
    expire();
    pass_turns_on();
    begin_next();
    if (has_finished(count > 0)) return;
  }
}

/// Whether the thread must end: the object is being destroyed, and nothing is left to send.
bool TlsPump::Impl::has_finished(bool had_events) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) return false;
  }
  const auto now = Clock::now();
  if (!finish_by_) finish_by_ = now + kTlsFinishWithin;
  const auto unsent = [](const auto& each) { return each.second.link->has_unsent(); };
  has_unsent_ = std::any_of(entries_.begin(), entries_.end(), unsent);
  return now >= *finish_by_ || (!had_events && !has_unsent_);
}

int TlsPump::Impl::wait_ms() const {
  if (finish_by_) return has_unsent_ ? kFinishPollMs : 0;
  // To check which of the waiting ones have waited too long, and which turns have come to nothing.
  const int most = waiting_ > 0 ? (turns_.empty() ? 1'000 : kTurnPollMs) : -1;
  if (deadlines_.empty()) return most;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadlines_.begin()->first - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, most > 0 ? most : 60'000));
}

void TlsPump::Impl::begin_joined() {
  std::vector<Joined> joined;
  {
    const std::lock_guard lock(mutex_);
    joined.swap(joined_);
  }
  for (Joined& each : joined) {
    if (each.context->side() == TlsSide::Client) {
      begin(std::move(each));
      continue;
    }
    const std::string address = each.peer;
    auto& waiting = handshakes_[address].waiting;
    if (waiting.empty()) addresses_.push_back(address);
    waiting.push_back(std::move(each));
    ++waiting_;
  }
}

// First come, first served, and few at once: a handshake that has begun is finished before too many
// others begin. If all of them advanced side by side, then none would end before the clients give
// up, and all the work would be for nothing. The addresses take turns, so that one of them cannot
// keep the others waiting.
void TlsPump::Impl::begin_next() {
  std::size_t blocked = 0;  // The addresses in a row of which none could begin.
  while (blocked < addresses_.size() && turns_.size() < kMaxTlsHandshakesAtOnce) {
    const std::string address = std::move(addresses_.front());
    addresses_.pop_front();
    const bool begun = begin_next_of(address);
    if (begun) blocked = 0;
    const auto known = handshakes_.find(address);
    if (known == handshakes_.end()) continue;
    if (!known->second.waiting.empty()) {
      addresses_.push_back(address);
      if (!begun) ++blocked;
    } else if (known->second.now == 0) {
      handshakes_.erase(known);
    }
  }
}

/// Begins the next handshake of the address. Returns whether there was one that could begin.
bool TlsPump::Impl::begin_next_of(const std::string& address) {
  Handshakes& of_address = handshakes_[address];
  while (!of_address.waiting.empty() && of_address.now < kMaxTlsHandshakesPerAddress) {
    Joined next = std::move(of_address.waiting.front());
    of_address.waiting.pop_front();
    --waiting_;
    if (has_ended(next.tcp.get()) || has_ended(next.plain.get())) {
      drop(next, "it has gone before its TLS handshake");
      continue;
    }
    ++of_address.now;
    begin(std::move(next));
    return true;
  }
  return false;
}

/// Drops a connection before its handshake, which would cost a signature.
void TlsPump::Impl::drop(const Joined& joined, const char* why) {
  const TlsFailure failure{TlsFailure::Kind::Lost, why};
  joined.status->set_failure(failure);
  joined.status->forget_tcp();
  if (on_failed_) on_failed_(joined.peer, failure);
}

/// A client that does not go on with its handshake must not keep the others waiting. Its handshake
/// continues when it does.
void TlsPump::Impl::pass_turns_on() {
  if (waiting_ == 0) return;
  const auto now = Clock::now();
  for (auto turn = turns_.begin(); turn != turns_.end();) {
    const std::uint64_t number = *turn++;
    const auto at = entries_.find(number);
    if (at == entries_.end()) {
      turns_.erase(number);
      continue;
    }
    // What the client has sent would have been handled by now, however busy this thread is.
    const bool is_silent = event_rounds_ >= at->second.moved_round + kTurnRounds;
    if (is_silent && now - at->second.moved_at >= kTlsTurnStalled) end_turn(number, at->second);
  }
}

void TlsPump::Impl::end_turn(std::uint64_t number, Entry& entry) {
  entry.has_turn = false;
  turns_.erase(number);
}

void TlsPump::Impl::begin(Joined joined) {
  const std::uint64_t number = ++last_;
  Entry entry;
  entry.context = std::move(joined.context);
  entry.peer = std::move(joined.peer);
  entry.link =
      std::make_unique<TlsLink>(std::move(joined.tcp), std::move(joined.plain),
                                entry.context->new_engine(entry.peer), std::move(joined.status));
  const auto at = entries_.emplace(number, std::move(entry)).first;
  if (at->second.context->side() == TlsSide::Server) {
    at->second.has_turn = true;
    at->second.moved_at = Clock::now();
    at->second.moved_round = event_rounds_;
    turns_.insert(number);
  }
  enter_phase(at, TlsLink::Phase::Handshake);
  at->second.link->start();
  update(at);
}

void TlsPump::Impl::on_event(const epoll_event& event) {
  if (event.data.u64 == kWakeTag) {
    std::uint64_t times = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &times, sizeof times);
    return;
  }
  const auto at = entries_.find(event.data.u64 / 2);
  if (at == entries_.end()) return;  // An earlier event of this batch has ended the connection.
  TlsLink& link = *at->second.link;
  try {
    if (event.data.u64 % 2 == 0)
      link.on_tcp(event.events);
    else
      link.on_plain(event.events);
  } catch (const std::exception&) {  // Out of memory: only this connection ends.
    link.end();
  }
  if (at->second.has_turn) {
    at->second.moved_at = Clock::now();
    at->second.moved_round = event_rounds_ + 1;
  }
  update(at);
}

/// Called after every event of a connection: updates its deadline and the events that it is watched
/// for, or removes it.
void TlsPump::Impl::update(Entries::iterator at) {
  Entry& entry = at->second;
  TlsLink& link = *entry.link;
  if (link.phase() != entry.phase) enter_phase(at, link.phase());
  if (link.phase() == TlsLink::Phase::Closing && closing_ > kMaxTlsClosing) link.end();
  if (link.phase() == TlsLink::Phase::Over) return forget(at);
  const std::uint64_t tag = 2 * at->first;
  // A closed plain socket is no longer in the set.
  if (link.plain_fd() < 0) entry.plain_watched = 0;
  const bool watched = watch(link.tcp_fd(), link.tcp_interest(), entry.tcp_watched, tag) &&
                       watch(link.plain_fd(), link.plain_interest(), entry.plain_watched, tag + 1);
  if (!watched) forget(at);
}

/// Changes the events that a socket is watched for. With no events, the socket is removed from the
/// set: otherwise epoll would report a hang-up again and again.
bool TlsPump::Impl::watch(int fd, std::uint32_t wanted, std::uint32_t& watched, std::uint64_t tag) {
  if (wanted == watched) return true;
  const int call = wanted == 0 ? EPOLL_CTL_DEL : watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  epoll_event event{wanted, {.u64 = tag}};
  watched = wanted;
  return ::epoll_ctl(set_.get(), call, fd, &event) == 0;
}

void TlsPump::Impl::enter_phase(Entries::iterator at, TlsLink::Phase phase) {
  Entry& entry = at->second;
  deadlines_.erase({entry.deadline, at->first});
  if (entry.phase == TlsLink::Phase::Handshake && phase != TlsLink::Phase::Handshake) {
    if (entry.has_turn) end_turn(at->first, entry);
    leave_handshake(entry.peer);
  }
  const TlsFailure& failure = entry.link->failure();
  const bool has_ended = phase == TlsLink::Phase::Closing || phase == TlsLink::Phase::Over;
  const bool was_shaking = entry.phase == TlsLink::Phase::Handshake;
  if (has_ended && on_failed_ && failure.kind != TlsFailure::Kind::None &&
      entry.phase != TlsLink::Phase::Closing &&
      (was_shaking || failure.kind == TlsFailure::Kind::Refused))
    on_failed_(entry.peer, failure);
  if (entry.phase == TlsLink::Phase::Closing) --closing_;
  if (phase == TlsLink::Phase::Closing) ++closing_;
  entry.phase = phase;
  if (phase == TlsLink::Phase::Open || phase == TlsLink::Phase::Over) return;
  entry.deadline = Clock::now() + time_for(phase);
  deadlines_.insert({entry.deadline, at->first});
}

void TlsPump::Impl::leave_handshake(const std::string& peer) {
  const auto known = handshakes_.find(peer);
  if (known == handshakes_.end()) return;  // A client has no such limit.
  --known->second.now;
  if (known->second.now == 0 && known->second.waiting.empty()) handshakes_.erase(known);
}

void TlsPump::Impl::forget(Entries::iterator at) {
  if (at->second.phase != TlsLink::Phase::Over) enter_phase(at, TlsLink::Phase::Over);
  entries_.erase(at);
}

void TlsPump::Impl::expire() {
  const auto now = Clock::now();
  if (waiting_ > 0) drop_stale(now);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto at = entries_.find(deadlines_.begin()->second);
    at->second.link->time_out();
    update(at);
  }
}

/// Drops the connections that have waited longer than kTlsTurnWithin for their handshake: their
/// clients no longer wait for an answer.
void TlsPump::Impl::drop_stale(Clock::time_point now) {
  for (auto& [address, handshakes] : handshakes_)
    for (auto& waiting = handshakes.waiting;
         !waiting.empty() && now - waiting.front().at > kTlsTurnWithin; waiting.pop_front()) {
      --waiting_;
      drop(waiting.front(), "its turn for a TLS handshake did not come in time");
    }
}

TlsPump::TlsPump(SharedTlsContext context, OnFailed on_failed)
    : impl_(std::make_unique<Impl>(std::move(context), std::move(on_failed))) {}

TlsPump::~TlsPump() = default;

void TlsPump::renew(SharedTlsContext context) {
  impl_->renew(std::move(context));
}

SharedTlsContext TlsPump::context() const {
  return impl_->context();
}

boost::system::result<TlsConnection> TlsPump::join(OwnedFd tcp, const std::string& peer) {
  return impl_->join(std::move(tcp), peer);
}

}  // namespace muster
