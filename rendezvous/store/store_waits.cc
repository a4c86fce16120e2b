// The waits of StoreTable: how clients wait for names, and when they are released.

#include <cstddef>

#include "base/check.h"
#include "rendezvous/store/store_table.h"

namespace muster {

namespace {

constexpr std::size_t kItemsKept = 64;    // A client's vector keeps this capacity between waits.
constexpr std::size_t kNumberBytes = 64;  // The largest footprint of a stored number.

}  // namespace

Reply StoreTable::wait(ConnectionId from, const Request& request) {
  end_wait(from);  // A client has one wait: a new wait replaces it.
  std::size_t absent = 0;
  std::size_t new_entries = 0;
  std::size_t new_bytes = 0;
  for (const std::string_view key : request.keys) {
    const auto found = map_.find(key);
    if (found != map_.end() && found->second.present()) continue;
    ++absent;
    new_bytes += sizeof(WaitItem);
    // A new name that is listed twice counts twice here: the estimate may only be too high.
    if (found == map_.end()) ++new_entries, new_bytes += entry_cost(key);
  }
  if (absent == 0) return kStopWaiting;
  if (const auto refusal = room_for(new_entries, new_bytes)) return *refusal;
  Wait& wait = make_wait(from, absent);
  for (const std::string_view key : request.keys) {
    const auto entry = find_or_make(key);
    if (!entry->second.present()) link(wait, entry, from);
  }
  return NoReply{};
}

Reply StoreTable::barrier(ConnectionId from, const Request& request) {
  end_wait(from);
  const auto found = map_.find(request.key);
  std::int64_t arrived = 0;
  if (const auto* value = found != map_.end() ? found->second.stored() : nullptr) {
    const auto before = parse_stored_number(value->view());
    if (!before) return Refusal::NotANumber;
    arrived = *before;
  }
  if (const auto refusal = room_for_value(found, request.key, kNumberBytes + sizeof(WaitItem)))
    return *refusal;
  // Wraps around, as ADD does.
  arrived = static_cast<std::int64_t>(static_cast<std::uint64_t>(arrived) + 1);
  const auto entry = found != map_.end() ? found : find_or_make(request.key);
  store_number(entry, arrived);
  if (arrived >= request.number) {
    release_all(entry);
    return kStopWaiting;
  }
  link(make_wait(from, 1), entry, from);
  return NoReply{};
}

StoreTable::Wait& StoreTable::make_wait(ConnectionId who, std::size_t items) {
  if (who.value >= waits_.size()) waits_.resize(who.value + std::size_t{1});
  Wait& wait = waits_[who.value];
  MUSTER_CHECK(wait.items.empty() && wait.remaining == 0);
  wait.items.reserve(items);  // Lists refer to the addresses of the items.
  return wait;
}

void StoreTable::link(Wait& wait, Map::iterator entry, ConnectionId who) {
  MUSTER_CHECK(wait.items.size() < wait.items.capacity());
  WaitItem& item = wait.items.emplace_back();
  item.entry = entry;
  item.who = who;
  item.linked = true;
  item.older = entry->second.newest;
  (item.older != nullptr ? item.older->newer : entry->second.oldest) = &item;
  entry->second.newest = &item;
  ++wait.remaining;
  if (!entry->second.queue) ++wait.missing;
  bytes_ += sizeof(WaitItem);
  if (wait.remaining == 1) ++waiting_;
}

void StoreTable::unlink(WaitItem& item) {
  Entry& entry = item.entry->second;
  (item.older != nullptr ? item.older->newer : entry.oldest) = item.newer;
  (item.newer != nullptr ? item.newer->older : entry.newest) = item.older;
  item.linked = false;
  bytes_ -= sizeof(WaitItem);
  Wait& wait = waits_[item.who.value];
  if (!entry.queue) --wait.missing;
  if (--wait.remaining == 0 && !wait.abandoned) --waiting_;
}

void StoreTable::end_wait(ConnectionId who) {
  if (who.value >= waits_.size()) return;
  Wait& wait = waits_[who.value];
  waiters_seen_ += wait.items.size();
  for (WaitItem& item : wait.items) {
    if (!item.linked) continue;
    unlink(item);
    erase_if_unused(item.entry);
  }
  wait.items.clear();
  wait.abandoned = false;
  if (wait.items.capacity() > kItemsKept) wait.items = {};
}

void StoreTable::abandon(ConnectionId who) {
  if (wait_size(who) <= kItemsKept) return end_wait(who);
  if (is_waiting(who)) --waiting_;
  waits_[who.value].abandoned = true;
}

void StoreTable::release(ConnectionId who) {
  end_wait(who);
  released_.push_back(who);
}

// A key that was written counts as arrived, even if it is deleted later: the wait counts down and
// does not check the keys again.
void StoreTable::release_all(Map::iterator entry) {
  while (WaitItem* item = entry->second.oldest) {
    const ConnectionId who = item->who;
    ++waiters_seen_;
    unlink(*item);
    if (may_release(waits_[who.value])) release(who);
  }
}

// One push releases one client: the longest waiting one that misses no other name.
void StoreTable::release_one(Map::iterator entry) {
  for (WaitItem* item = entry->second.oldest; item != nullptr; item = item->newer) {
    ++waiters_seen_;
    if (may_release(waits_[item->who.value])) return release(item->who);
  }
}

// A name with a filled queue is not missing. The waits keep count of the missing names, so that a
// wait for many names is not visited whole each time when one of their queues is filled or emptied.
void StoreTable::queue_appeared(Entry& entry) {
  for (const WaitItem* item = entry.oldest; item != nullptr; item = item->newer) {
    ++waiters_seen_;
    --waits_[item->who.value].missing;
  }
}

void StoreTable::queue_vanished(Entry& entry) {
  for (const WaitItem* item = entry.oldest; item != nullptr; item = item->newer) {
    ++waiters_seen_;
    ++waits_[item->who.value].missing;
  }
}

}  // namespace muster
