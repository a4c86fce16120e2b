// What a client can ask of the store, and what it is answered, as values.
//
// The words are those of PyTorch's c10d TCPStore; docs/protocol.md has their meaning, and
// rendezvous/wire/c10d_codec.h their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/core/shared_bytes.h"

namespace muster {

/// Numbers are the wire's (torch 2.13); each must stay what it is.
enum class Query : std::uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  Wait = 6,
  GetNumKeys = 7,
  DeleteKey = 8,
  Append = 9,
  MultiGet = 10,
  MultiSet = 11,
  CancelWait = 12,
  Ping = 13,
  QueuePush = 14,
  QueuePop = 15,
  QueueLen = 16,
  ListKeys = 17,
  Barrier = 18,
};
inline constexpr std::size_t kQueryCount = 19;

/// One request. Which fields count follows from `query`; the others stay empty. The views belong
/// to whoever made the request and live as long as the call that takes it.
struct Request {
  Query query = Query::Ping;
  std::string_view key = {};       // Or the name of a queue.
  std::string_view value = {};     // CompareSet: the desired value.
  std::string_view expected = {};  // CompareSet only.
  std::int64_t number = 0;         // Add: delta. Barrier: world size. Validate: magic. Ping: nonce.
  std::span<const std::string_view> keys = {};
  std::span<const std::string_view> values = {};  // MultiSet: as many as keys.
  ByteBuffer* buffer = nullptr;  // Where `value` lies, if its memory may be kept; else nothing.
};

/// A client, as the table knows it: small numbers, used again after disconnect().
struct ConnectionId {
  std::uint32_t value = 0;
  bool operator==(const ConnectionId&) const = default;
};

/// Why a request cannot be carried out. The protocol has no error messages: the connection closes.
enum class Refusal {
  NotANumber,    // Add or Barrier on a value that is none.
  TooManyKeys,   // StoreLimits::keys
  TooManyBytes,  // StoreLimits::bytes
};

struct NoReply {};
struct Flag {
  std::uint8_t value;
};
struct Number {
  std::int64_t value;
};
struct Nonce {
  std::uint32_t value;
};
struct Value {
  SharedBytes bytes;
};
struct Values {
  std::vector<SharedBytes> each;
};
struct Popped {
  std::int64_t length_before;
  SharedBytes bytes;  // Counts if length_before > 0.
};
struct Keys {
  std::vector<std::string_view> each;  // Valid until the table changes.
};
using Reply = std::variant<NoReply, Flag, Number, Nonce, Value, Values, Popped, Keys, Refusal>;

inline constexpr Flag kReady{0};
inline constexpr Flag kNotReady{1};
inline constexpr Flag kStopWaiting{0};
inline constexpr Flag kWaitCanceled{1};

}  // namespace muster
