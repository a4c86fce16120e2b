#include "rendezvous/store/store_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace muster {

namespace {

// The memory of a name besides its bytes: the node of the map, rounded up.
constexpr std::size_t kEntryBytes = 160;
// The memory of a queue, and of each of its values besides their bytes.
constexpr std::size_t kQueueBytes = 48;
constexpr std::size_t kQueueItemBytes = 64;
// The bytes of a name in the reply to LIST_KEYS besides the name itself.
constexpr std::size_t kListedBytes = 8;
// A smaller value is copied out of its input buffer, so that the buffer can be used again.
constexpr std::size_t kShareBytes = 16 << 10;

std::size_t footprint(const std::optional<SharedBytes>& value) {
  return value ? value->footprint() : 0;
}

// The memory that replacing the value would free.
std::size_t freed(const std::optional<SharedBytes>& value) {
  return value ? value->freed_alone() : 0;
}

bool shares_buffer(std::string_view value, const ByteBuffer* buffer) {
  return value.size() >= kShareBytes && buffer != nullptr && buffer->mostly(value);
}

// The additional memory of a new value: none if it shares its input buffer, which is counted
// already.
std::size_t value_cost(std::string_view value, const ByteBuffer* buffer) {
  return shares_buffer(value, buffer) ? 0 : SharedBytes::footprint_of(value.size());
}

// The sum in the 64 bits of the wire: it wraps around.
std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

SharedBytes StoreTable::share_or_copy(std::string_view value, ByteBuffer* buffer) {
  return shares_buffer(value, buffer) ? buffer->share(value)
                                      : SharedBytes::copy_of(value, &account_);
}

std::optional<std::int64_t> parse_stored_number(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n\v\f\r");
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) return std::nullopt;
  return number;
}

const SharedBytes* StoreTable::stored(std::string_view key) const {
  const auto found = map_.find(key);
  return found != map_.end() ? found->second.stored() : nullptr;
}

bool StoreTable::has(std::string_view key) const {
  return stored(key) != nullptr;
}

std::string_view StoreTable::value_of(std::string_view key) const {
  const SharedBytes* const value = stored(key);
  return value == nullptr ? std::string_view() : value->view();
}

void StoreTable::delete_below(std::string_view prefix,
                              const std::function<bool(std::string_view)>& wanted) {
  for (auto at = map_.lower_bound(prefix); at != map_.end() && at->first.starts_with(prefix);)
    at = at->second.value && wanted(at->first) ? delete_value(at) : std::next(at);
}

Keys StoreTable::keys_below(std::string_view prefix,
                            const std::function<bool(std::string_view)>& wanted) const {
  Keys keys;
  for (auto at = map_.lower_bound(prefix); at != map_.end() && at->first.starts_with(prefix); ++at)
    if (at->second.value && wanted(at->first)) keys.each.push_back(at->first);
  return keys;
}

Reply StoreTable::apply(ConnectionId from, const Request& request) {
  released_.clear();
  switch (request.query) {
    case Query::Set:
      return set(request.key, request.value, request.buffer);
    case Query::CompareSet:
      return compare_set(request);
    case Query::Get:
      return get(request.key);
    case Query::Add:
      return add(request.key, request.number);
    case Query::Check:
      return check(request);
    case Query::Wait:
      return wait(from, request);
    case Query::GetNumKeys:
      return Number{static_cast<std::int64_t>(values_)};
    case Query::DeleteKey:
      return delete_key(request.key);
    case Query::Append:
      return append(request.key, request.value);
    case Query::MultiGet:
      return multi_get(request);
    case Query::MultiSet:
      return multi_set(request);
    case Query::CancelWait:
      end_wait(from);
      return kWaitCanceled;
    case Query::Ping:
      return Nonce{static_cast<std::uint32_t>(request.number)};
    case Query::QueuePush:
      return queue_push(request.key, request.value, request.buffer);
    case Query::QueuePop:
      return queue_pop(request.key);
    case Query::QueueLen:
      return queue_len(request.key);
    case Query::ListKeys:
      return list_keys();
    case Query::Barrier:
      return barrier(from, request);
    case Query::Validate:
      return NoReply{};  // The codec has already checked the magic number.
  }
  MUSTER_CHECK(false);
  return NoReply{};
}

void StoreTable::disconnect(ConnectionId client) {
  if (client.value >= waits_.size()) return;
  end_wait(client);
  waits_[client.value] = Wait{};
}

void StoreTable::clear() {
  for (const auto& [key, entry] : map_) {
    account_.kept -= footprint(entry.value);
    if (entry.queue)
      for (const SharedBytes& value : *entry.queue)
        account_.kept -= value.footprint();
  }
  for (Wait& wait : waits_)
    wait = Wait{};
  map_.clear();
  released_.clear();
  values_ = bytes_ = list_bytes_ = waiting_ = 0;
}

std::size_t StoreTable::entry_cost(std::string_view key) {
  return kEntryBytes + key.size();
}

std::optional<Refusal> StoreTable::room_for(std::size_t new_entries, std::size_t new_bytes) const {
  if (new_entries > 0 && map_.size() + new_entries > limits_.keys) return Refusal::TooManyKeys;
  if (new_bytes > limits_.bytes || bytes() > limits_.bytes - new_bytes)
    return Refusal::TooManyBytes;
  return std::nullopt;
}

std::optional<Refusal> StoreTable::room_for_value(Map::const_iterator entry, std::string_view key,
                                                  std::size_t footprint_after) const {
  if (entry == map_.end()) return room_for(1, entry_cost(key) + footprint_after);
  const std::size_t before = freed(entry->second.value);
  return room_for(0, footprint_after > before ? footprint_after - before : 0);
}

StoreTable::Map::iterator StoreTable::find_or_make(std::string_view key) {
  const auto place = map_.lower_bound(key);
  if (place != map_.end() && place->first == key) return place;
  bytes_ += entry_cost(key);
  return map_.emplace_hint(place, std::string(key), Entry{});
}

StoreTable::Map::iterator StoreTable::delete_value(Map::iterator entry) {
  account_.kept -= footprint(entry->second.value);
  entry->second.value.reset();
  --values_;
  list_bytes_ -= kListedBytes + entry->first.size();
  return erase_if_unused(entry);
}

StoreTable::Map::iterator StoreTable::erase_if_unused(Map::iterator entry) {
  if (entry->second.present() || entry->second.oldest != nullptr) return std::next(entry);
  bytes_ -= entry_cost(entry->first);
  return map_.erase(entry);
}

void StoreTable::store(Map::iterator entry, SharedBytes value) {
  auto& stored = entry->second.value;
  account_.kept -= footprint(stored);
  if (!stored) ++values_, list_bytes_ += kListedBytes + entry->first.size();
  stored = std::move(value);
  account_.kept += footprint(stored);
}

void StoreTable::store_number(Map::iterator entry, std::int64_t number) {
  std::array<char, 24> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  const std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  auto& stored = entry->second.value;
  if (!stored) return store(entry, SharedBytes::copy_of(digits, &account_));
  account_.kept -= stored->footprint();
  stored->assign(digits, &account_);
  account_.kept += stored->footprint();
}

Reply StoreTable::set(std::string_view key, std::string_view value, ByteBuffer* buffer) {
  const auto place = map_.lower_bound(key);
  const bool known = place != map_.end() && place->first == key;
  if (const auto refusal =
          room_for_value(known ? place : map_.end(), key, value_cost(value, buffer)))
    return *refusal;
  SharedBytes* const stored = known ? place->second.stored() : nullptr;
  if (stored != nullptr && value.size() < kShareBytes) {
    account_.kept -= stored->footprint();
    stored->assign(value, &account_);  // Often in place, without an allocation.
    account_.kept += stored->footprint();
    if (place->second.oldest != nullptr) release_all(place);
    return NoReply{};
  }
  if (!known) bytes_ += entry_cost(key);
  const auto entry = known ? place : map_.emplace_hint(place, std::string(key), Entry{});
  store(entry, share_or_copy(value, buffer));
  release_all(entry);
  return NoReply{};
}

Reply StoreTable::append(std::string_view key, std::string_view value) {
  const auto found = map_.find(key);
  SharedBytes* const stored = found != map_.end() ? found->second.stored() : nullptr;
  const std::size_t before = stored != nullptr ? stored->size() : 0;
  if (before + value.size() > limits_.appended_bytes) return Refusal::TooLongValue;
  const std::size_t after = stored != nullptr ? stored->footprint_after_append(value.size())
                                              : SharedBytes().footprint_after_append(value.size());
  if (const auto refusal = room_for_value(found, key, after)) return *refusal;
  const auto entry = found != map_.end() ? found : find_or_make(key);
  if (stored == nullptr) {
    store(entry, SharedBytes::copy_of(value, &account_));
  } else {
    account_.kept -= stored->footprint();
    stored->append(value, &account_);
    account_.kept += stored->footprint();
  }
  release_all(entry);
  return NoReply{};
}

Reply StoreTable::compare_set(const Request& request) {
  const SharedBytes* const now = stored(request.key);
  if (now == nullptr) {
    // If the key is missing, torch answers with the expected value. torchrun's rendezvous depends
    // on that.
    if (!request.expected.empty()) return Value{SharedBytes::copy_of(request.expected, &account_)};
  } else if (now->view() != request.expected) {
    return Value{*now};
  }
  Reply done = set(request.key, request.value, request.buffer);
  if (std::holds_alternative<Refusal>(done)) return done;
  return get(request.key);
}

Reply StoreTable::multi_set(const Request& request) {
  MUSTER_CHECK(request.keys.size() == request.values.size());
  // All or nothing: the room for all values is checked before the first one is set. The estimate is
  // an upper bound.
  std::size_t new_entries = 0;
  std::size_t new_bytes = 0;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    const auto found = map_.find(request.keys[i]);
    const std::size_t before = found == map_.end() ? 0 : freed(found->second.value);
    const std::size_t after = value_cost(request.values[i], nullptr);
    if (after > before) new_bytes += after - before;
    if (found == map_.end()) ++new_entries, new_bytes += entry_cost(request.keys[i]);
  }
  if (const auto refusal = room_for(new_entries, new_bytes)) return *refusal;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    const auto entry = find_or_make(request.keys[i]);
    store(entry, SharedBytes::copy_of(request.values[i], &account_));
    release_all(entry);
  }
  return NoReply{};
}

Reply StoreTable::get(std::string_view key) const {
  const SharedBytes* const value = stored(key);
  return value != nullptr ? Value{*value} : Value{};
}

Reply StoreTable::multi_get(const Request& request) const {
  Values values;
  values.each.reserve(request.keys.size());
  for (const std::string_view key : request.keys) {
    const SharedBytes* const value = stored(key);
    values.each.push_back(value != nullptr ? *value : SharedBytes());
  }
  return values;
}

Reply StoreTable::delete_key(std::string_view key) {
  const auto found = map_.find(key);
  if (found == map_.end() || !found->second.value) return Number{0};
  delete_value(found);
  return Number{1};
}

Reply StoreTable::check(const Request& request) const {
  const bool ready = std::all_of(request.keys.begin(), request.keys.end(), [&](auto key) {
    const auto found = map_.find(key);
    return found != map_.end() && found->second.present();
  });
  return ready ? kReady : kNotReady;
}

Reply StoreTable::list_keys() const {
  Keys keys;
  keys.each.reserve(values_);
  for (const auto& [key, entry] : map_)
    if (entry.value) keys.each.push_back(key);
  return keys;
}

Reply StoreTable::add(std::string_view key, std::int64_t delta) {
  const auto found = map_.find(key);
  std::int64_t number = 0;
  if (const auto* value = found != map_.end() ? found->second.stored() : nullptr) {
    const auto before = parse_stored_number(value->view());
    if (!before) return Refusal::NotANumber;
    number = *before;
  } else if (const auto refusal = room_for_value(found, key, SharedBytes::footprint_of(20))) {
    return *refusal;
  }
  number = wrapping_sum(number, delta);
  const auto entry = found != map_.end() ? found : find_or_make(key);
  store_number(entry, number);
  release_all(entry);
  return Number{number};
}

Reply StoreTable::queue_push(std::string_view name, std::string_view value, ByteBuffer* buffer) {
  const auto found = map_.find(name);
  const bool known = found != map_.end();
  const std::size_t cost = kQueueBytes + kQueueItemBytes + value_cost(value, buffer);
  if (const auto refusal = room_for(known ? 0 : 1, cost + (known ? 0 : entry_cost(name))))
    return *refusal;
  const auto entry = known ? found : find_or_make(name);
  auto& queue = entry->second.queue;
  if (!queue) {
    queue = std::make_unique<std::list<SharedBytes>>();
    bytes_ += kQueueBytes;
    queue_appeared(entry->second);
  }
  queue->push_back(share_or_copy(value, buffer));
  bytes_ += kQueueItemBytes;
  account_.kept += queue->back().footprint();
  release_one(entry);
  return NoReply{};
}

Reply StoreTable::queue_pop(std::string_view name) {
  const auto found = map_.find(name);
  if (found == map_.end() || !found->second.queue) return Popped{0, {}};
  auto& queue = found->second.queue;
  Popped popped{static_cast<std::int64_t>(queue->size()), std::move(queue->front())};
  queue->pop_front();
  bytes_ -= kQueueItemBytes;
  account_.kept -= popped.bytes.footprint();
  if (queue->empty()) {
    queue.reset();
    bytes_ -= kQueueBytes;
    queue_vanished(found->second);
  }
  erase_if_unused(found);
  return popped;
}

Reply StoreTable::queue_len(std::string_view name) const {
  const auto found = map_.find(name);
  if (found == map_.end() || !found->second.queue) return Number{0};
  return Number{static_cast<std::int64_t>(found->second.queue->size())};
}

}  // namespace muster
