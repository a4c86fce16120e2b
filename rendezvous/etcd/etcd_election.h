// Who of several hosts leads: the one that has made the leader's key, for as long as its lease
// lasts. Hosts are musterds that share a state, or the agents of one run.
//
// The key's create revision is the fencing token: etcd refuses each transaction of a leader whose
// key is gone. docs/decisions/0017-etcd-client.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/wire/etcd_json.h"

namespace muster {

/// On the loop's thread, but for is_held(). Outlives the loop's last turn.
class EtcdElection {
 public:
  struct Options {
    EtcdPeersPtr peers;
    std::string key;
    std::string name;  // Of this process, for the others' logs.
    std::int64_t lease_seconds = 3;
  };
  struct Handlers {
    /// Each time that it changes: who leads, or why nobody can be asked.
    std::function<void(const std::string& why)> on_standing_by;
    /// Empty, or instead of on_standing_by where another one leads: what the leader's key says,
    /// each time that it was read or has changed. An empty value: nobody leads.
    std::function<void(const std::string& value)> on_leader;
    /// Empty, or: etcd itself has refused to say who leads. Asking again will not help.
    std::function<void(const std::string& why)> on_refused;
    std::function<void()> on_won;
    /// After on_won, once: nothing may be acknowledged any more.
    std::function<void(const std::string& why)> on_lost;
  };
  EtcdElection(boost::asio::io_context& loop, Options options, Handlers handlers);

  void start();
  /// Of every write, after on_won.
  const EtcdGuard& guard() const { return guard_; }
  /// The leader's key with another value, for a guarded write: it goes with the lease as before.
  EtcdChange key_saying(std::string value) const {
    return {.key = options_.key, .value = std::move(value), .lease = lease_.id};
  }
  const EtcdOwnAddress& own_address() const { return channel_.own_address(); }
  /// Whether the lease cannot have ended yet. On any thread; also right after a pause of this
  /// process or of the machine, when no timer has fired yet.
  bool is_held() const;
  bool is_lost() const { return lost_; }
  /// A guarded write was refused.
  void lose(const std::string& why);
  /// Lets the next one lead at once.
  boost::asio::awaitable<void> resign();

 private:
  boost::asio::awaitable<void> campaign();
  boost::asio::awaitable<bool> take_key();
  boost::asio::awaitable<EtcdResult<EtcdRange>> read_key(EtcdChannel& channel);
  boost::asio::awaitable<void> pause(boost::asio::steady_timer& timer);
  boost::asio::awaitable<void> keep_lease();
  boost::asio::awaitable<void> end_with_lease();
  boost::asio::awaitable<void> watch_own_key();
  void stand_by(const std::string& why);
  void read_error(const EtcdError& error);
  void tell_leader(const std::string& value);
  void trouble(const std::string& why);
  void extend(std::int64_t asked_at_ns, std::int64_t seconds);
  Duration patience() const;

  boost::asio::io_context& loop_;
  Options options_;
  Handlers handlers_;
  EtcdChannel channel_;        // Of the campaign, and then of the lease.
  EtcdChannel watch_channel_;  // Of the watches.
  boost::asio::steady_timer campaign_timer_;
  boost::asio::steady_timer lease_timer_;
  boost::asio::steady_timer end_timer_;
  std::string standing_by_;            // Why, as told last.
  std::optional<Instant> trouble_at_;  // When trouble() told it.
  EtcdGuard guard_;
  EtcdLease lease_;
  std::string last_error_;
  bool lost_ = false;
  std::atomic<std::int64_t> held_until_ns_{0};  // CLOCK_BOOTTIME.
};

}  // namespace muster
