#include "rendezvous/server/unread_ledger.h"

namespace muster {

void UnreadLedger::update(ConnectionId client, UnreadEntry& entry, const UnreadEntry& now) {
  RunAccounts& accounts = shared_.accounts;
  if (entry.bytes > 0) clients_.erase({entry.bytes, client.value});
  if (entry.account != nullptr) accounts.count_queued(*entry.account, entry.bytes, 0);
  shared_.queued_bytes += now.memory - entry.memory;
  entry = now;
  if (entry.account != nullptr) accounts.count_queued(*entry.account, 0, entry.bytes);
  if (is_of_run_beyond_limit(entry)) run_is_beyond_limit_ = true;
  if (entry.bytes > 0) clients_.emplace(entry.bytes, client.value);
}

void UnreadLedger::remove(ConnectionId client, UnreadEntry& entry) {
  if (entry.bytes > 0) clients_.erase({entry.bytes, client.value});
  if (entry.account != nullptr) shared_.accounts.count_queued(*entry.account, entry.bytes, 0);
  shared_.queued_bytes -= entry.memory;
  entry = {};
}

std::optional<ConnectionId> UnreadLedger::first_beyond_limit() const {
  if (shared_.unread_bytes() <= shared_.connections.queued_total_bytes || clients_.empty())
    return std::nullopt;
  return ConnectionId{clients_.rbegin()->second};
}

std::vector<ConnectionId> UnreadLedger::most_first() const {
  std::vector<ConnectionId> all;
  all.reserve(clients_.size());
  for (auto each = clients_.rbegin(); each != clients_.rend(); ++each)
    all.push_back({each->second});
  return all;
}

}  // namespace muster
