#include "rendezvous/store/c10d_codec.h"

#include <algorithm>
#include <utility>

#include <boost/endian/conversion.hpp>

#include "base/check.h"
#include "rendezvous/store/native_frame.h"

namespace muster {

namespace {

using Result = boost::system::result<bool, ParseError>;

// The fields after the byte of the query. k: key, v: value, n: 64-bit number, m: 32-bit number,
// K: count and keys, P: count and pairs of key and value.
constexpr std::array<std::string_view, kQueryCount> kLayouts = {
    "m", "kv", "kvv", "k", "kn", "K", "K", "", "k", "kv",
    "K", "P",  "",    "m", "kv", "k", "k", "", "kn"};

// The bytes of the length of a string, of the count of a list, and of a 64-bit number.
constexpr std::size_t kLengthBytes = 8;

std::string_view layout(Query query) {
  return kLayouts[static_cast<std::size_t>(query)];
}

const unsigned char* at(std::string_view bytes, std::size_t offset) {
  return reinterpret_cast<const unsigned char*>(bytes.data() + offset);
}

void put_u64(std::string& out, std::uint64_t number) {
  std::array<unsigned char, 8> bytes;
  boost::endian::store_little_u64(bytes.data(), number);
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void put_u32(std::string& out, std::uint32_t number) {
  std::array<unsigned char, 4> bytes;
  boost::endian::store_little_u32(bytes.data(), number);
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void put_string(std::string& out, std::string_view text) {
  put_u64(out, text.size());
  out.append(text);
}

}  // namespace

std::string_view to_string(ParseFault fault) {
  switch (fault) {
    case ParseFault::NotValidated:
      return "the first request is not VALIDATE";
    case ParseFault::WrongMagic:
      return "VALIDATE has the wrong magic number";
    case ParseFault::ValidatedTwice:
      return "VALIDATE came a second time";
    case ParseFault::UnknownQuery:
      return "unknown query type";
    case ParseFault::KeyTooLong:
      return "key is too long";
    case ParseFault::ValueTooLong:
      return "value is too long";
    case ParseFault::TooManyKeys:
      return "too many keys in one request";
    case ParseFault::RequestTooLong:
      return "request is too long";
    case ParseFault::NativeTooLong:
      return "native message is too long";
    case ParseFault::NotNative:
      return "not a native message, on a connection that is native";
  }
  return "unknown";
}

Result RequestDecoder::scan(std::string_view bytes) {
  while (phase_ != Phase::Complete) {
    if (bytes.size() < wanted_) return false;
    if (const Result stepped = step(bytes); !stepped) return stepped;
    if (!native_ && wanted_ > limits_->request_bytes) return fault(ParseFault::RequestTooLong);
  }
  return true;
}

// Reads the head or body of one field. `bytes` has at least wanted_ bytes.
Result RequestDecoder::step(std::string_view bytes) {
  if (phase_ == Phase::Code) return begin_query(*at(bytes, 0));
  if (phase_ == Phase::Body) {
    scanned_ = wanted_;
    next_field();
    return true;
  }
  switch (fields()[field_]) {
    case 'k':
      return read_length(bytes, true);
    case 'v':
      return read_length(bytes, false);
    case 'K':
    case 'P': {
      const bool pairs = fields()[field_] == 'P';
      if (list_count_ == 0)
        return begin_list(boost::endian::load_little_u64(at(bytes, scanned_)), pairs);
      return read_length(bytes, !pairs || list_left_ % 2 == 0);
    }
    default:
      return end_number(bytes);
  }
}

std::string_view RequestDecoder::fields() const {
  return native_ ? std::string_view("v") : layout(query_);
}

Result RequestDecoder::begin_query(std::uint8_t code) {
  if (native_ && code != kNativeQuery) return fault(ParseFault::NotNative);
  if (code == kNativeQuery && limits_->native_door) {
    // A native client sends a hello, so VALIDATE is not needed.
    native_ = validated_ = true;
    scanned_ = 1;
    field_ = 0;
    phase_ = Phase::Head;
    wanted_ = 1 + kNativeLengthBytes;
    return true;
  }
  if (code >= kQueryCount)
    return fault(validated_ ? ParseFault::UnknownQuery : ParseFault::NotValidated);
  query_ = static_cast<Query>(code);
  if (!validated_ && query_ != Query::Validate) return fault(ParseFault::NotValidated);
  if (validated_ && query_ == Query::Validate) return fault(ParseFault::ValidatedTwice);
  scanned_ = 1;
  field_ = 0;
  phase_ = Phase::Body;
  wanted_ = 1;
  // Moves to the first field, or to the end if the query has none.
  --field_;
  next_field();
  return true;
}

void RequestDecoder::next_field() {
  const std::string_view fields = this->fields();
  const bool in_list = list_left_ > 0;
  if (in_list && --list_left_ > 0) {
    phase_ = Phase::Head;
    wanted_ = scanned_ + kLengthBytes;
    return;
  }
  ++field_;
  if (field_ >= fields.size()) {
    phase_ = Phase::Complete;
    wanted_ = scanned_;
    return;
  }
  phase_ = Phase::Head;
  wanted_ = scanned_ + (fields[field_] == 'm' ? 4 : kLengthBytes);
}

/// The bytes that the request may still have after the length or count at scanned_. A length is
/// compared with this number and not added to scanned_ first: lengths and limits may be near 2^64.
std::uint64_t RequestDecoder::room_after_length() const {
  const std::uint64_t end = scanned_ + kLengthBytes;
  return limits_->request_bytes > end ? limits_->request_bytes - end : 0;
}

// Reads the length of a string. The limits are checked before any memory is used for the string.
// Native messages have limits of their own, which do not change with musterd's options.
Result RequestDecoder::read_length(std::string_view bytes, bool is_key) {
  const std::uint64_t length = boost::endian::load_little_u64(at(bytes, scanned_));
  if (native_) {
    const bool is_short = native_messages_ < limits_->short_native_messages;
    if (length > (is_short ? kMaxHelloBytes : kMaxNativeBytes))
      return fault(ParseFault::NativeTooLong);
  } else {
    if (is_key && length > limits_->key_bytes) return fault(ParseFault::KeyTooLong);
    if (!is_key && length > limits_->value_bytes) return fault(ParseFault::ValueTooLong);
    if (length > room_after_length()) return fault(ParseFault::RequestTooLong);
  }
  scanned_ += kLengthBytes;
  if (list_left_ == 0) fields_[field_] = Field{scanned_, static_cast<std::size_t>(length)};
  phase_ = Phase::Body;
  wanted_ = scanned_ + static_cast<std::size_t>(length);
  return true;
}

Result RequestDecoder::begin_list(std::uint64_t count, bool pairs) {
  // The count of MULTI_SET is signed in torch; here a negative count is far too large.
  if (count > limits_->keys_per_request) return fault(ParseFault::TooManyKeys);
  const std::uint64_t least_bytes = pairs ? 2 * kLengthBytes : kLengthBytes;  // Of each element.
  if (count > room_after_length() / least_bytes) return fault(ParseFault::RequestTooLong);
  scanned_ += kLengthBytes;
  fields_[field_] = Field{scanned_, 0};
  list_count_ = count;
  list_left_ = pairs ? 2 * count : count;
  if (count == 0) {
    next_field();
  } else {
    phase_ = Phase::Head;
    wanted_ = scanned_ + kLengthBytes;
  }
  return true;
}

Result RequestDecoder::end_number(std::string_view bytes) {
  const std::size_t size = fields()[field_] == 'm' ? 4 : kLengthBytes;
  if (query_ == Query::Validate) {
    if (boost::endian::load_little_u32(at(bytes, scanned_)) != c10d::kValidationMagic)
      return fault(ParseFault::WrongMagic);
    validated_ = true;
  }
  fields_[field_] = Field{scanned_, size};
  scanned_ += size;
  next_field();
  return true;
}

Request RequestDecoder::request(std::string_view bytes, RequestScratch& scratch) const {
  MUSTER_CHECK(phase_ == Phase::Complete && bytes.size() >= scanned_ && !native_);
  Request request;
  request.query = query_;
  bool has_value = false;
  const std::string_view fields = layout(query_);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string_view text = bytes.substr(fields_[i].begin, fields_[i].size);
    switch (fields[i]) {
      case 'k':
        request.key = text;
        break;
      case 'v':
        if (has_value) request.expected = request.value;  // COMPARE_SET: expected, then desired.
        request.value = text;
        has_value = true;
        break;
      case 'n':
        request.number = boost::endian::load_little_s64(at(bytes, fields_[i].begin));
        break;
      case 'm':
        request.number = boost::endian::load_little_u32(at(bytes, fields_[i].begin));
        break;
      default:
        read_list(bytes.substr(fields_[i].begin, scanned_ - fields_[i].begin), scratch,
                  fields[i] == 'P');
        request.keys = scratch.keys;
        request.values = scratch.values;
    }
  }
  return request;
}

std::string_view RequestDecoder::native_message(std::string_view bytes) const {
  MUSTER_CHECK(phase_ == Phase::Complete && bytes.size() >= scanned_ && native_);
  return bytes.substr(fields_[0].begin, fields_[0].size);
}

void RequestDecoder::read_list(std::string_view bytes, RequestScratch& scratch, bool pairs) const {
  const auto next_string = [&bytes] {
    const auto length = static_cast<std::size_t>(boost::endian::load_little_u64(at(bytes, 0)));
    const std::string_view text = bytes.substr(kLengthBytes, length);
    bytes.remove_prefix(kLengthBytes + length);
    return text;
  };
  scratch.keys.clear();
  scratch.values.clear();
  scratch.keys.reserve(static_cast<std::size_t>(list_count_));
  if (pairs) scratch.values.reserve(static_cast<std::size_t>(list_count_));
  for (std::uint64_t i = 0; i < list_count_; ++i) {
    scratch.keys.push_back(next_string());
    if (pairs) scratch.values.push_back(next_string());
  }
}

void RequestDecoder::next() {
  MUSTER_CHECK(phase_ == Phase::Complete);
  consumed_ += scanned_;
  if (native_ && native_messages_ < limits_->short_native_messages) ++native_messages_;
  scanned_ = 0;
  wanted_ = 1;
  list_count_ = list_left_ = 0;
  phase_ = Phase::Code;
}

void encode_request(const Request& request, std::string& out) {
  out.push_back(static_cast<char>(request.query));
  bool expected_put = request.query != Query::CompareSet;
  for (const char field : layout(request.query)) {
    switch (field) {
      case 'k':
        put_string(out, request.key);
        break;
      case 'v':
        put_string(out, std::exchange(expected_put, true) ? request.value : request.expected);
        break;
      case 'n':
        put_u64(out, static_cast<std::uint64_t>(request.number));
        break;
      case 'm':
        put_u32(out, static_cast<std::uint32_t>(request.number));
        break;
      default:
        put_u64(out, request.keys.size());
        for (std::size_t i = 0; i < request.keys.size(); ++i) {
          put_string(out, request.keys[i]);
          if (field == 'P') put_string(out, request.values[i]);
        }
    }
  }
}

namespace {

struct ReplyEncoder {
  ReplyQueue& out;

  void put(const SharedBytes& bytes) const {
    out.add_u64(bytes.size());
    out.add(bytes);
  }
  void operator()(const NoReply&) const {}
  void operator()(const Flag& flag) const { out.add_byte(flag.value); }
  void operator()(const Number& number) const {
    out.add_u64(static_cast<std::uint64_t>(number.value));
  }
  void operator()(const Nonce& nonce) const { out.add_u32(nonce.value); }
  void operator()(const Value& value) const { put(value.bytes); }
  void operator()(const Values& values) const {
    const auto referred = std::count_if(
        values.each.begin(), values.each.end(),
        [](const auto& bytes) { return bytes.size() >= ReplyQueue::kShareFromManyBytes; });
    out.reserve(static_cast<std::size_t>(referred));
    for (const SharedBytes& bytes : values.each)
      put(bytes);
  }
  void operator()(const Popped& popped) const {
    out.add_u64(static_cast<std::uint64_t>(popped.length_before));
    if (popped.length_before > 0) put(popped.bytes);
  }
  void operator()(const Keys& keys) const {
    out.add_u64(keys.each.size());
    for (const std::string_view key : keys.each) {
      out.add_u64(key.size());
      out.add(key);
    }
  }
  void operator()(const Refusal&) const { MUSTER_CHECK(false); }
};

}  // namespace

std::size_t reply_memory(const Values& values) {
  std::size_t bytes = ReplyQueue::kManyBytes + ReplyQueue::kShareBytes;
  for (const SharedBytes& value : values.each)
    bytes += 8 + std::min(value.size(), ReplyQueue::kPieceBytes);
  return bytes;
}

void encode_reply(const Reply& reply, ReplyQueue& out) {
  std::visit(ReplyEncoder{out}, reply);
}

}  // namespace muster
