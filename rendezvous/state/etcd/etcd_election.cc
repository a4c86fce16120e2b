#include "rendezvous/state/etcd/etcd_election.h"

#include <chrono>
#include <ctime>
#include <utility>

#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/printable_text.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr Duration kAskAgainAfter = std::chrono::milliseconds(200);
// A watch is restarted after this time, at another member if this one does not answer: a member
// that hangs keeps its connections open and sends no events.
constexpr Duration kMaxWatch = std::chrono::seconds(10);
constexpr Duration kReportTroubleAgainAfter = std::chrono::seconds(5);
constexpr Duration kMaxMember = std::chrono::seconds(1);

/// CLOCK_BOOTTIME. Unlike CLOCK_MONOTONIC it includes the time while the machine is suspended.
std::int64_t boot_time_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

EtcdElection::EtcdElection(asio::io_context& loop, Options options, Handlers handlers)
    : loop_(loop),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      channel_(loop.get_executor(), options_.peers),
      watch_channel_(loop.get_executor(), options_.peers),
      campaign_timer_(loop),
      lease_timer_(loop),
      end_timer_(loop) {}

void EtcdElection::start() {
  spawn_task(loop_.get_executor(), "etcd_campaign", campaign());
}

bool EtcdElection::is_held() const {
  return boot_time_ns() < held_until_ns_.load(std::memory_order_relaxed);
}

/// The time limit for one member, so that all members can be asked while the lease lasts.
Duration EtcdElection::member_timeout() const {
  return std::chrono::seconds(options_.lease_seconds) /
         static_cast<Duration::rep>(options_.peers->members.size() + 1);
}

void EtcdElection::lose(const std::string& why) {
  held_until_ns_.store(0, std::memory_order_relaxed);
  if (std::exchange(lost_, true)) return;
  handlers_.on_lost(why);
}

void EtcdElection::stand_by(const std::string& why) {
  trouble_at_.reset();
  if (why == std::exchange(standing_by_, why)) return;
  handlers_.on_standing_by(why);
}

void EtcdElection::report_trouble(const std::string& why) {
  if (trouble_at_ && now() - *trouble_at_ < kReportTroubleAgainAfter) return;
  trouble_at_ = now();
  if (why == std::exchange(standing_by_, why)) return;
  handlers_.on_standing_by(why);
}

void EtcdElection::read_error(const EtcdError& error) {
  const std::string why = "etcd cannot be asked who leads: " + error.text;
  if (error.refused && handlers_.on_refused) handlers_.on_refused(why);
  report_trouble(why);
}

void EtcdElection::report_leader(const std::string& value) {
  trouble_at_.reset();
  standing_by_.clear();
  handlers_.on_leader(value);
}

asio::awaitable<void> EtcdElection::pause(asio::steady_timer& timer) {
  timer.expires_after(kAskAgainAfter);
  co_await timer.async_wait(kNoThrow);
}

asio::awaitable<EtcdResult<EtcdRange>> EtcdElection::read_key(EtcdChannel& channel) {
  std::string request = encode_range(options_.key, {}, 1);
  const auto answer = co_await channel.ask("/v3/kv/range", std::move(request), kMaxMember);
  if (!answer) co_return answer.error();
  auto range = decode_range(*answer);
  if (!range) co_return EtcdError(range.error().reason, false);
  co_return *std::move(range);
}

// --- the campaign --------------------------------------------------------------------------------

asio::awaitable<void> EtcdElection::campaign() {
  for (;;) {
    const auto key = co_await read_key(channel_);
    if (!key) {
      read_error(key.error());
      co_await pause(campaign_timer_);
      continue;
    }
    if (key->found.empty()) {
      if (handlers_.on_leader) report_leader({});
      if (co_await take_key()) co_return;
      co_await pause(campaign_timer_);
      continue;
    }
    const std::string& leader = key->found.front().value;
    handlers_.on_leader ? report_leader(leader) : stand_by(printable_text(leader) + " leads");
    const std::int64_t next = key->revision + 1;
    std::string watch = handlers_.on_leader ? encode_watch(options_.key, next)
                                            : encode_watch_deletion(options_.key, next);
    const auto news = co_await watch_channel_.watch(std::move(watch), kMaxMember, kMaxWatch);
    if (!news) co_await pause(campaign_timer_);
  }
}

asio::awaitable<bool> EtcdElection::take_key() {
  const std::int64_t asked_at = boot_time_ns();
  std::string grant = encode_lease_grant(options_.lease_seconds);
  auto answer = co_await channel_.ask("/v3/lease/grant", std::move(grant), kMaxMember);
  if (!answer) {
    report_trouble("etcd grants no lease: " + answer.error().text);
    co_return false;
  }
  const auto lease = decode_lease_grant(*answer);
  if (!lease || lease->seconds <= 0) {
    report_trouble("etcd grants no lease: " + (lease ? "it ends at once" : lease.error().reason));
    co_return false;
  }
  lease_ = *lease;
  guard_ = {options_.key, 0};
  std::vector<EtcdChange> make = {
      {.key = options_.key, .value = options_.name, .lease = lease_.id}};
  answer = co_await channel_.ask("/v3/kv/txn", encode_txn(guard_, make), kMaxMember);
  const auto made = answer ? decode_txn(*answer) : EtcdJsonError{answer.error().text};
  if (!made || !made->succeeded) {
    if (!made) report_trouble("etcd does not take the leader's key: " + made.error().reason);
    co_await revoke_lease();  // The key may have been created although the answer was lost.
    co_return false;
  }
  guard_.create_revision = made->revision;
  extend(asked_at, lease_.seconds);
  spawn_task(loop_.get_executor(), "etcd_lease", keep_lease());
  spawn_task(loop_.get_executor(), "etcd_lease_end", end_with_lease());
  spawn_task(loop_.get_executor(), "etcd_own_key", watch_own_key());
  handlers_.on_won();
  co_return true;
}

// --- leading -------------------------------------------------------------------------------------

/// The lease is held until `seconds` after the request, less a twentieth for clocks that differ.
/// etcd counts from the arrival of the request, which is later. A lease that has run out stays so,
/// although etcd still has it: the server has noticed it, or will, and stops for good.
void EtcdElection::extend(std::int64_t asked_at_ns, std::int64_t seconds) {
  const std::int64_t held_until_ns = held_until_ns_.load(std::memory_order_relaxed);
  const bool has_run_out = held_until_ns != 0 && boot_time_ns() >= held_until_ns;
  const std::int64_t whole_ns = seconds * 1'000'000'000;
  if (!lost_ && !has_run_out)
    held_until_ns_.store(asked_at_ns + whole_ns - whole_ns / 20, std::memory_order_relaxed);
}

asio::awaitable<void> EtcdElection::keep_lease() {
  while (!lost_) {
    lease_timer_.expires_after(std::chrono::milliseconds(lease_.seconds * 1000 / 3));
    co_await lease_timer_.async_wait(kNoThrow);
    bool kept = false;
    while (!kept && !lost_) {
      const std::int64_t asked_at = boot_time_ns();
      std::string body = encode_lease_id(lease_.id);
      const auto answer =
          co_await channel_.ask("/v3/lease/keepalive", std::move(body), member_timeout());
      const auto lease = answer ? decode_lease_kept(*answer) : EtcdJsonError{answer.error().text};
      if (lease && lease->seconds <= 0) co_return lose("its lease at etcd has ended");
      kept = lease.has_value();
      if (kept)
        extend(asked_at, lease->seconds);
      else
        last_error_ = lease.error().reason;
      if (!kept) co_await pause(lease_timer_);
    }
  }
}

asio::awaitable<void> EtcdElection::end_with_lease() {
  while (!lost_) {
    const std::int64_t left_ns = held_until_ns_.load(std::memory_order_relaxed) - boot_time_ns();
    if (left_ns <= 0)
      co_return lose("its lease has run out" + (last_error_.empty() ? "" : ": " + last_error_));
    end_timer_.expires_after(std::chrono::nanoseconds(left_ns));
    co_await end_timer_.async_wait(kNoThrow);
  }
}

/// Watches the leader's key, which a person may delete by hand.
asio::awaitable<void> EtcdElection::watch_own_key() {
  asio::steady_timer timer(loop_);
  std::int64_t from = guard_.create_revision + 1;
  EtcdChannel reader(loop_.get_executor(), options_.peers);
  while (!lost_) {
    std::string watch = encode_watch_deletion(options_.key, from);
    const auto news = co_await watch_channel_.watch(std::move(watch), kMaxMember, kMaxWatch);
    if (!news) co_await pause(timer);
    if (!news || !*news || lost_) continue;
    const auto key = co_await read_key(reader);
    if (!key || lost_) continue;
    if (key->found.empty() || key->found.front().create_revision != guard_.create_revision)
      co_return lose("its key was deleted from etcd");
    from = key->revision + 1;
  }
}

asio::awaitable<void> EtcdElection::resign() {
  lost_ = true;  // Other coroutines must not write, or renew the lease, while it is revoked.
  co_await revoke_lease();
}

asio::awaitable<void> EtcdElection::revoke_lease() {
  held_until_ns_.store(0, std::memory_order_relaxed);
  if (lease_.id == 0) co_return;
  EtcdChannel channel(loop_.get_executor(), options_.peers);
  std::string body = encode_lease_id(std::exchange(lease_, {}).id);
  // If etcd does not get this request, the lease runs out.
  (void)co_await channel.ask("/v3/lease/revoke", std::move(body), kMaxMember);
}

}  // namespace muster
