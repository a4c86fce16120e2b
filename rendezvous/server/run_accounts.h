// Counts what each run uses of a server that serves many runs, so that no run uses up what the
// others need.
//
// Pure. Runs are identified by the key of their state, as run_of_key() returns it. A run has an
// account only while it uses something. docs/protocol.md lists the limits.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/server/server_limits.h"

namespace muster {

struct RunAccount {
  std::string run;              // The key of its state.
  std::size_t connections = 0;  // Of its nodes, and of clients whose first keys were this run's.
  std::size_t names = 0;        // Its keys in the store, including keys that are only waited for.
  std::size_t bytes = 0;        // The bytes of those names and their values.
  std::size_t queued = 0;       // The bytes of replies that its connections have not read.
};

class RunAccounts {
 public:
  explicit RunAccounts(const RunLimits& limits) : limits_(limits) {}
  RunAccounts(const RunAccounts&) = delete;
  RunAccounts& operator=(const RunAccounts&) = delete;

  const RunLimits& limits() const { return limits_; }
  /// Existing connections and keys stay, even if they exceed a smaller limit.
  void set_limits(const RunLimits& limits) { limits_ = limits; }

  /// Counts a connection to this run until leave(). Null: the run has reached its limit.
  RunAccount* enter(std::string_view run);
  void leave(RunAccount& account);
  /// The bytes of replies that one connection of the run has not read have changed.
  void count_queued(RunAccount& account, std::size_t before, std::size_t now);
  bool has_too_much_queued(const RunAccount& account) const {
    return account.queued > limits_.queued_bytes;
  }

  /// A request for keys of this run has changed the store by so many names and bytes.
  void count_stored(std::string_view run, std::ptrdiff_t names, std::ptrdiff_t bytes);
  /// Why a request that adds at most so many names and bytes is refused. Empty: it is not refused.
  std::string refusal(std::string_view run, std::size_t names, std::size_t bytes) const;
  /// The reason to refuse a connection that enter() has no room for.
  std::string too_many_connections() const;
  /// To be called when the store is empty and no client is connected.
  void clear() { accounts_.clear(); }

  /// Null if the run uses nothing.
  const RunAccount* find(std::string_view run) const;
  std::size_t size() const { return accounts_.size(); }

 private:
  RunAccount& account_of(std::string_view run);
  void erase_if_empty(const RunAccount& account);

  RunLimits limits_;
  std::map<std::string, RunAccount, std::less<>> accounts_;
};

}  // namespace muster
