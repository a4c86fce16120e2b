// The c10d TCPStore protocol of torch 2.4 to 2.15: bytes <-> requests and replies.
//
// Pure. A request has no length in front and no end mark. A reader must know the layout of each
// query, and after a mistake it cannot find the next request. docs/protocol.md has the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/store/reply_queue.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_request.h"

namespace muster {

namespace c10d {
inline constexpr std::uint32_t kValidationMagic = 0x3C85F7CE;
}

enum class ParseFault {
  NotValidated,  // The first request is not Validate.
  WrongMagic,
  ValidatedTwice,
  UnknownQuery,
  KeyTooLong,
  ValueTooLong,
  TooManyKeys,
  RequestTooLong,
  NativeTooLong,
  NotNative,  // A c10d request on a native connection.
};
std::string_view to_string(ParseFault fault);

struct ParseError {
  ParseFault fault;
  std::uint64_t offset;  // Of the wrong field, from the first byte of the connection.
};

/// Memory for the lists of keys and values of a request, while the request is in use.
struct RequestScratch {
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
};

/// Finds the ends of requests in bytes that arrive in pieces of any size. It interprets each byte
/// once, keeps no bytes, and allocates nothing.
class RequestDecoder {
 public:
  /// `limits` must outlive the decoder. The first request must be Validate, and it must not come
  /// again.
  explicit RequestDecoder(const CodecLimits& limits) : limits_(&limits) {}

  /// `bytes` begins at the first byte of the request: the bytes of earlier calls for the same
  /// request, and perhaps more. True: the request is complete and has size() bytes. False: at least
  /// wanted() bytes are needed.
  boost::system::result<bool, ParseError> scan(std::string_view bytes);
  /// The known number of bytes of the request so far: never more than announced and allowed.
  std::size_t wanted() const { return wanted_; }
  std::size_t size() const { return scanned_; }
  bool begun() const { return wanted_ > 1; }
  bool validated() const { return validated_; }
  /// Whether the connection is native: it has sent a native message, and only such may follow.
  bool native() const { return native_; }
  /// Whether the current request is LIST_KEYS, which costs more work than its bytes show.
  bool lists_keys() const { return !native_ && query_ == Query::ListKeys; }
  /// Whether the current request is one to the store: its first byte is known, and it is neither
  /// native nor VALIDATE or PING, which may come before native messages, too.
  bool asks_store() const {
    return scanned_ > 0 && !native_ && query_ != Query::Validate && query_ != Query::Ping;
  }
  /// The offset of the request's first byte from the first byte of the connection.
  std::uint64_t offset() const { return consumed_; }

  /// The complete request in `bytes`. Its views are valid until `bytes` or `scratch` change.
  Request request(std::string_view bytes, RequestScratch& scratch) const;
  /// The JSON of the complete native message in `bytes`.
  std::string_view native_message(std::string_view bytes) const;
  /// Moves to the next request, which begins size() bytes later.
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
  std::uint64_t room_after_length() const;
  void next_field();
  void read_list(std::string_view bytes, RequestScratch& scratch, bool pairs) const;

  const CodecLimits* limits_;
  std::uint64_t consumed_ = 0;  // Bytes of the earlier requests.
  std::size_t scanned_ = 0;     // Bytes of this request that have been interpreted.
  std::size_t wanted_ = 1;
  std::uint64_t list_left_ = 0;   // Strings still to come.
  std::uint64_t list_count_ = 0;  // Keys, or pairs.
  std::array<Field, 3> fields_{};
  std::uint8_t field_ = 0;
  Query query_ = Query::Validate;
  Phase phase_ = Phase::Code;
  bool validated_ = false;
  bool native_ = false;
  int native_messages_ = 0;  // Complete ones; counted only up to limits_->short_native_messages.
};

/// Appends the bytes of a request, for a client.
void encode_request(const Request& request, std::string& out);
/// The most memory that encode_reply() needs for a reply that is a list of values.
std::size_t reply_memory(const Values& values);
/// Appends the bytes of a reply, for a server. A Refusal has no bytes and is not allowed.
void encode_reply(const Reply& reply, ReplyQueue& out);

}  // namespace muster
