// The election of a leader among several hosts: the host that has created the leader's key leads
// while its lease lasts. The hosts are musterds that share a state, or the agents of one run.
//
// The create revision of the key is the fencing token: etcd refuses every transaction of a leader
// whose key is gone. docs/decisions/0017-etcd-client.md.
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

#include "rendezvous/state/etcd/etcd_client.h"
#include "rendezvous/state/etcd/etcd_json.h"

namespace muster {

/// To be used on the loop's thread, except is_held(). Must outlive the loop's last turn.
class EtcdElection {
 public:
  struct Options {
    EtcdPeersPtr peers;
    std::string key;
    std::string name;  // The name of this process in the logs of the others.
    std::int64_t lease_seconds = 3;
  };
  struct Handlers {
    /// Called each time that the reason changes: another host leads, or etcd cannot be asked.
    std::function<void(const std::string& why)> on_standing_by;
    /// Optional. Called instead of on_standing_by if another host leads, each time that the
    /// leader's key was read or has changed, with the key's value. An empty value: no host leads.
    std::function<void(const std::string& value)> on_leader;
    /// Optional. etcd refuses to say which host leads. Asking again will not help.
    std::function<void(const std::string& why)> on_refused;
    std::function<void()> on_won;
    /// Called once after on_won: from now on nothing may be acknowledged.
    std::function<void(const std::string& why)> on_lost;
  };
  EtcdElection(boost::asio::io_context& loop, Options options, Handlers handlers);

  void start();
  /// After on_won: every write must have this guard.
  const EtcdGuard& guard() const { return guard_; }
  /// A change that sets another value of the leader's key, for a guarded write. The key stays bound
  /// to the lease.
  EtcdChange leader_key_change(std::string value) const {
    return {.key = options_.key, .value = std::move(value), .lease = lease_.id};
  }
  const EtcdOwnAddress& own_address() const { return channel_.own_address(); }
  /// Whether the lease certainly still lasts. May be called on any thread. Correct also right after
  /// a pause of this process or of the machine, before any timer has fired.
  bool is_held() const;
  bool is_lost() const { return lost_; }
  /// This host does not lead any more, for example because a guarded write was refused.
  void lose(const std::string& why);
  /// Calls on_standing_by if the reason has changed, but not for each of many reasons: each try may
  /// fail for another one.
  void report_trouble(const std::string& why);
  /// Ends the leadership by this host's own wish: on_lost is not called. Revokes the lease, so that
  /// the next host can lead at once.
  boost::asio::awaitable<void> resign();

 private:
  boost::asio::awaitable<void> campaign();
  boost::asio::awaitable<bool> take_key();
  boost::asio::awaitable<void> revoke_lease();
  boost::asio::awaitable<EtcdResult<EtcdRange>> read_key(EtcdChannel& channel);
  boost::asio::awaitable<void> pause(boost::asio::steady_timer& timer);
  boost::asio::awaitable<void> keep_lease();
  boost::asio::awaitable<void> end_with_lease();
  boost::asio::awaitable<void> watch_own_key();
  void stand_by(const std::string& why);
  void read_error(const EtcdError& error);
  void report_leader(const std::string& value);
  void extend(std::int64_t asked_at_ns, std::int64_t seconds);
  Duration member_timeout() const;

  boost::asio::io_context& loop_;
  Options options_;
  Handlers handlers_;
  EtcdChannel channel_;        // For the campaign, and after it for the lease.
  EtcdChannel watch_channel_;  // For the watches.
  boost::asio::steady_timer campaign_timer_;
  boost::asio::steady_timer lease_timer_;
  boost::asio::steady_timer end_timer_;
  std::string standing_by_;            // The latest reason given to on_standing_by.
  std::optional<Instant> trouble_at_;  // When report_trouble() last reported.
  EtcdGuard guard_;
  EtcdLease lease_;
  std::string last_error_;
  bool lost_ = false;
  std::atomic<std::int64_t> held_until_ns_{0};  // CLOCK_BOOTTIME.
};

}  // namespace muster
