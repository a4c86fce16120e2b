// The store's keys and queues, and the clients that wait for them.
//
// Pure: no sockets, no threads, no clock, no log. To a client it behaves like the libuv server of
// torch 2.13, without its bugs: docs/protocol.md has the list. Waits are in store_waits.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/memory_account.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_request.h"

namespace muster {

class StoreTable {
 public:
  explicit StoreTable(StoreLimits limits) : limits_(limits) {}
  StoreTable(const StoreTable&) = delete;
  StoreTable& operator=(const StoreTable&) = delete;

  /// Existing keys stay, also beyond a smaller limit.
  void set_limits(StoreLimits limits) { limits_ = limits; }

  /// Applies one request of a client. A Refusal has changed no key, no queue and no other client's
  /// wait.
  Reply apply(ConnectionId from, const Request& request);
  /// The clients whose waits the last apply() has ended, in the order in which the waits began. The
  /// caller must send kStopWaiting to each, before the reply to the request itself.
  std::span<const ConnectionId> released() const { return released_; }
  /// The client is gone, and is released no more. The cost does not depend on the size of its wait.
  void abandon(ConnectionId client);
  /// The client is gone: ends its wait, and frees the memory.
  void disconnect(ConnectionId client);
  /// Removes all keys, queues and waits; releases no client.
  void clear();

  bool has(std::string_view key) const;
  /// The value of the key, until the next request. Empty if there is none.
  std::string_view value_of(std::string_view key) const;
  /// Deletes the keys that begin with `prefix` and that `wanted` accepts, as DELETE_KEY would.
  void delete_below(std::string_view prefix, const std::function<bool(std::string_view)>& wanted);
  /// The keys that begin with `prefix` and that `wanted` accepts, as LIST_KEYS lists them.
  Keys keys_below(std::string_view prefix,
                  const std::function<bool(std::string_view)>& wanted) const;
  std::size_t num_keys() const { return values_; }
  /// Memory of names, queues and waits, and of all blocks of bytes in account().
  std::size_t bytes() const { return bytes_ + account_.blocks; }
  /// Whether so many more bytes are within the limit.
  bool has_room(std::size_t bytes) const { return !room_for(0, bytes); }
  /// Counts the blocks of the table's values, and of all others that share the limit on bytes.
  MemoryAccount& account() { return account_; }
  const MemoryAccount& account() const { return account_; }
  /// The size of the names in the reply to LIST_KEYS, in bytes of the protocol, without the count.
  std::size_t list_bytes() const { return list_bytes_; }
  /// Names in the table, including names that only waits refer to: LIST_KEYS visits each.
  std::size_t num_names() const { return map_.size(); }
  /// The number of places in waits that were visited so far: a measure of work.
  std::uint64_t waiters_seen() const { return waiters_seen_; }
  std::size_t waiting() const { return waiting_; }  // Clients.
  bool is_waiting(ConnectionId client) const {
    return client.value < waits_.size() && waits_[client.value].remaining > 0 &&
           !waits_[client.value].abandoned;
  }
  /// The number of places in its wait that disconnect() has to visit.
  std::size_t wait_size(ConnectionId client) const {
    return client.value < waits_.size() ? waits_[client.value].items.size() : 0;
  }

 private:
  struct WaitItem;
  struct Entry {
    std::optional<SharedBytes> value;
    std::unique_ptr<std::list<SharedBytes>> queue;  // Null, or not empty.
    WaitItem* oldest = nullptr;
    WaitItem* newest = nullptr;
    bool present() const { return value || queue; }
    /// The value, or null.
    SharedBytes* stored() { return value ? &*value : nullptr; }
    const SharedBytes* stored() const { return value ? &*value : nullptr; }
  };
  // Ordered, so that the same requests list the same keys in the same order on every machine.
  using Map = std::map<std::string, Entry, std::less<>>;
  struct WaitItem {
    Map::iterator entry;
    ConnectionId who;
    WaitItem* older = nullptr;
    WaitItem* newer = nullptr;
    bool linked = false;  // On the entry's list: the name has had no value yet.
  };
  struct Wait {
    std::vector<WaitItem> items;  // Not resized while any item is linked.
    std::size_t remaining = 0;    // The linked items: names that have had no value yet.
    std::size_t missing = 0;      // The linked items whose names have no queue now, either.
    bool abandoned = false;       // Its client is gone.
  };

  Reply set(std::string_view key, std::string_view value, ByteBuffer* buffer);
  Reply append(std::string_view key, std::string_view value);
  Reply compare_set(const Request& request);
  Reply multi_set(const Request& request);
  Reply multi_get(const Request& request) const;
  Reply get(std::string_view key) const;
  Reply delete_key(std::string_view key);
  Reply check(const Request& request) const;
  Reply add(std::string_view key, std::int64_t delta);
  Reply barrier(ConnectionId from, const Request& request);
  Reply wait(ConnectionId from, const Request& request);
  Reply queue_push(std::string_view name, std::string_view value, ByteBuffer* buffer);
  Reply queue_pop(std::string_view name);
  Reply queue_len(std::string_view name) const;
  Reply list_keys() const;

  static std::size_t entry_cost(std::string_view key);
  std::optional<Refusal> room_for(std::size_t new_entries, std::size_t new_bytes) const;
  std::optional<Refusal> room_for_value(Map::const_iterator entry, std::string_view key,
                                        std::size_t footprint) const;
  SharedBytes share_or_copy(std::string_view value, ByteBuffer* buffer);
  Map::iterator find_or_make(std::string_view key);
  /// The key's value, or null.
  const SharedBytes* stored(std::string_view key) const;
  void store(Map::iterator entry, SharedBytes value);
  void store_number(Map::iterator entry, std::int64_t number);
  /// Both return the place after the entry.
  Map::iterator delete_value(Map::iterator entry);
  Map::iterator erase_if_unused(Map::iterator entry);

  Wait& make_wait(ConnectionId who, std::size_t items);
  void link(Wait& wait, Map::iterator entry, ConnectionId who);
  void unlink(WaitItem& item);
  void end_wait(ConnectionId who);
  void release_all(Map::iterator entry);
  void release_one(Map::iterator entry);
  void release(ConnectionId who);
  static bool may_release(const Wait& wait) { return wait.missing == 0 && !wait.abandoned; }
  void queue_appeared(Entry& entry);
  void queue_vanished(Entry& entry);

  StoreLimits limits_;
  MemoryAccount account_;  // Declared before all members that hold blocks.
  Map map_;
  std::vector<Wait> waits_;  // By ConnectionId.
  std::vector<ConnectionId> released_;
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;  // Without the blocks.
  std::size_t list_bytes_ = 0;
  std::uint64_t waiters_seen_ = 0;
  std::size_t waiting_ = 0;
};

/// The number in a stored value, read as by std::stoll: leading white space, a sign, digits;
/// anything may follow. Empty if there are no digits, or if the number does not fit.
std::optional<std::int64_t> parse_stored_number(std::string_view text);

}  // namespace muster
