// The store's requests and replies as values.
//
// The names are those of PyTorch's c10d TCPStore. docs/protocol.md has their meaning, and
// rendezvous/store/c10d_codec.h has their encoding.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "rendezvous/store/shared_bytes.h"

namespace muster {

/// The numbers are those of the wire (torch 2.13) and must not change.
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

/// One request. `query` decides which fields are used; the others stay empty. The views belong to
/// the caller, and are valid only during the call that gets the request.
struct Request {
  Query query = Query::Ping;
  std::string_view key = {};       // A key, or the name of a queue.
  std::string_view value = {};     // CompareSet: the desired value.
  std::string_view expected = {};  // CompareSet only.
  std::int64_t number = 0;         // Add: delta. Barrier: world size. Validate: magic. Ping: nonce.
  std::span<const std::string_view> keys = {};
  std::span<const std::string_view> values = {};  // MultiSet: as many as keys.
  ByteBuffer* buffer = nullptr;  // The buffer of `value`, if the store may share its memory.
};

/// Why a request is refused. The protocol has no error messages: the server closes the connection.
enum class Refusal {
  NotANumber,    // Add or Barrier on a value that is not a number.
  TooManyKeys,   // StoreLimits::keys
  TooManyBytes,  // StoreLimits::bytes
  TooLongValue,  // StoreLimits::appended_bytes
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
  SharedBytes bytes;  // Only valid if length_before > 0.
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
