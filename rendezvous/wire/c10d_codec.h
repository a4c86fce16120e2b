// The c10d TCPStore protocol of torch 2.4 to 2.13: bytes <-> requests and replies.
//
// Pure. A request has no length in front and no end mark: the stream can only be read by knowing
// each query's layout, and after a mistake there is no way back. docs/protocol.md has the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/core/limits.h"
#include "rendezvous/core/store_request.h"
#include "rendezvous/wire/reply_queue.h"

namespace muster {

namespace c10d {
inline constexpr std::uint32_t kValidationMagic = 0x3C85F7CE;
}

enum class ParseFault {
  NotValidated,  // The first request is another than Validate.
  WrongMagic,
  ValidatedTwice,
  UnknownQuery,
  KeyTooLong,
  ValueTooLong,
  TooManyKeys,
  RequestTooLong,
  NativeTooLong,
  NotNative,  // A c10d request on a connection that is native.
};
std::string_view to_string(ParseFault fault);

struct ParseError {
  ParseFault fault;
  std::uint64_t offset;  // Of the offending field, from the first byte of the connection.
};

/// Where lists of keys and values are put between scan() and the use of the request.
struct RequestScratch {
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
};

/// Finds where requests end, in bytes that arrive in any pieces. It looks at each byte's meaning
/// once, keeps none of them, and allocates nothing.
class RequestDecoder {
 public:
  /// `limits` must outlive it. A server's decoder wants Validate first, and once.
  explicit RequestDecoder(const CodecLimits& limits) : limits_(&limits) {}

  /// `bytes` begins where the request begins: what earlier calls for the same request had, and
  /// perhaps more. True: complete, size() bytes long. False: at least wanted() bytes are needed.
  boost::system::result<bool, ParseError> scan(std::string_view bytes);
  /// Bytes of the request that is known to come: never more than has been announced and allowed.
  std::size_t wanted() const { return wanted_; }
  std::size_t size() const { return scanned_; }
  bool begun() const { return wanted_ > 1; }
  bool validated() const { return validated_; }
  /// From its first message on: all that follows are native messages.
  bool native() const { return native_; }
  /// Whether the request that is being read is LIST_KEYS, which costs more than its bytes.
  bool lists_keys() const { return !native_ && query_ == Query::ListKeys; }
  /// Whether the request that is being read is one to the store: its first byte has been seen, and
  /// it is neither native nor VALIDATE or PING, which may come before native ones, too.
  bool asks_store() const {
    return scanned_ > 0 && !native_ && query_ != Query::Validate && query_ != Query::Ping;
  }
  /// From the first byte of the connection to the request's first.
  std::uint64_t offset() const { return consumed_; }

  /// The complete request in `bytes`. Its views are valid as long as both are untouched.
  Request request(std::string_view bytes, RequestScratch& scratch) const;
  /// The same of a native message: its JSON.
  std::string_view native_message(std::string_view bytes) const;
  /// On to the next request, which begins size() bytes later.
  void next();

 private:
  enum class Phase : std::uint8_t { Code, Head, Body, Complete };
  struct Field {
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  boost::system::result<bool, ParseError> step(std::string_view bytes);
  std::string_view fields() const;
  ParseError fault(ParseFault what) const { return {what, consumed_ + scanned_}; }
  boost::system::result<bool, ParseError> begin_query(std::uint8_t code);
  boost::system::result<bool, ParseError> read_length(std::string_view bytes, bool is_key);
  boost::system::result<bool, ParseError> begin_list(std::uint64_t count, bool pairs);
  boost::system::result<bool, ParseError> end_number(std::string_view bytes);
  void next_field();
  void read_list(std::string_view bytes, RequestScratch& scratch, bool pairs) const;

  const CodecLimits* limits_;
  std::uint64_t consumed_ = 0;  // By the requests before this one.
  std::size_t scanned_ = 0;     // Bytes whose meaning is known.
  std::size_t wanted_ = 1;
  std::uint64_t list_left_ = 0;   // Strings still to come.
  std::uint64_t list_count_ = 0;  // Keys, or pairs.
  std::array<Field, 3> fields_{};
  std::uint8_t field_ = 0;
  Query query_ = Query::Validate;
  Phase phase_ = Phase::Code;
  bool validated_ = false;
  bool native_ = false;
  int native_messages_ = 0;  // Behind us; not counted beyond those that must be short.
};

/// A request's bytes, for a client. Views, keys and values as in Request.
void encode_request(const Request& request, std::string& out);
/// What encode_reply() will take of memory, at the most, for a reply that is a list of values.
std::size_t reply_memory(const Values& values);
/// A reply's bytes, for a server. Not for a Refusal, which has none.
void encode_reply(const Reply& reply, ReplyQueue& out);

}  // namespace muster
