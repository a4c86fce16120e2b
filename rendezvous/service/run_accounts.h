// What each run holds of a server that serves many: no run takes what the others need.
//
// Pure. A run is known here by the key of its state, as run_of_key() gives it, and only as long as
// it holds something. docs/protocol.md lists the limits.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/core/limits.h"

namespace muster {

struct RunAccount {
  std::string run;              // The key of its state.
  std::size_t connections = 0;  // Of its nodes, and of clients that began with its keys.
  std::size_t names = 0;        // Its keys in the store, those that are only waited for included.
  std::size_t bytes = 0;        // Of those names and their values.
  std::size_t queued = 0;       // Unread replies of its connections.
};

class RunAccounts {
 public:
  explicit RunAccounts(const RunLimits& limits) : limits_(limits) {}
  RunAccounts(const RunAccounts&) = delete;
  RunAccounts& operator=(const RunAccounts&) = delete;

  const RunLimits& limits() const { return limits_; }
  /// What is there already stays, also beyond a smaller limit.
  void set_limits(const RunLimits& limits) { limits_ = limits; }

  /// A connection is of this run from now on, until leave(). Null: the run has as many as it may.
  RunAccount* enter(std::string_view run);
  void leave(RunAccount& account);
  /// The replies that a connection of the run has not read.
  void queued(RunAccount& account, std::size_t before, std::size_t now);
  bool has_too_much_queued(const RunAccount& account) const {
    return account.queued > limits_.queued_bytes;
  }

  /// What has changed in the store, by a request for keys of this run.
  void stored(std::string_view run, std::ptrdiff_t names, std::ptrdiff_t bytes);
  /// Why a request that adds at most so much is refused; empty: it is not.
  std::string refusal(std::string_view run, std::size_t names, std::size_t bytes) const;
  /// The store is empty, and nobody is connected.
  void clear() { accounts_.clear(); }

  /// Nothing if the run holds nothing.
  const RunAccount* find(std::string_view run) const;
  std::size_t size() const { return accounts_.size(); }

 private:
  RunAccount& account_of(std::string_view run);
  void erase_if_empty(const RunAccount& account);

  RunLimits limits_;
  std::map<std::string, RunAccount, std::less<>> accounts_;
};

}  // namespace muster
