// Which clients of a server have not read their replies, and how much memory that takes: of all of
// them, and of each run.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/server/connection_shared.h"

namespace muster {

/// What the ledger has counted for one client.
struct UnreadEntry {
  std::size_t bytes = 0;
  std::size_t memory = 0;         // Its part of ConnectionShared::queued_bytes.
  RunAccount* account = nullptr;  // The account of the run that counts the bytes. Null: no run.
};

class UnreadLedger {
 public:
  /// `shared` must outlive the ledger.
  explicit UnreadLedger(ConnectionShared& shared) : shared_(shared) {}

  /// The client's unread replies are now as in `now`.
  void update(ConnectionId client, UnreadEntry& entry, const UnreadEntry& now);
  /// The client is gone.
  void remove(ConnectionId client, UnreadEntry& entry);

  /// While the unread replies of all clients exceed the limit: the client with the most. A client
  /// that reads its replies has few of them, so it is not closed because of other clients.
  std::optional<ConnectionId> first_beyond_limit() const;
  /// Whether a run has exceeded its limit since the last call. Then each client whose
  /// is_of_run_beyond_limit() must be closed, in the order of most_first().
  bool take_run_beyond_limit() { return std::exchange(run_is_beyond_limit_, false); }
  bool is_of_run_beyond_limit(const UnreadEntry& entry) const {
    return entry.account != nullptr && shared_.accounts.has_too_much_queued(*entry.account);
  }
  std::vector<ConnectionId> most_first() const;

 private:
  ConnectionShared& shared_;
  std::set<std::pair<std::size_t, std::uint32_t>> clients_;  // Unread bytes, and the client.
  bool run_is_beyond_limit_ = false;
};

}  // namespace muster
