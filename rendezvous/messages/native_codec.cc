#include "rendezvous/messages/native_codec.h"

#include <array>
#include <utility>

#include <boost/endian/conversion.hpp>

#include "base/bounded_json.h"
#include "base/check.h"
#include "base/json_fields.h"
#include "rendezvous/messages/message_fields.h"

namespace muster {

namespace {

// In the order of the variant's alternatives.
constexpr std::array<std::string_view, std::variant_size_v<NativeRequest>> kRequestTypes = {
    "hello",    "join",        "resume",   "keep_alive", "leave", "workers_failed",
    "restart",  "store_ready", "finished", "reach",      "prove", "report",
    "answered", "notified",    "saved",    "progressed"};
constexpr std::array<std::string_view, std::variant_size_v<NativeMessage>> kMessageTypes = {
    "welcome",       "refused",    "waiting",   "alive",        "prepare_store", "round",
    "restart_round", "run_closed", "run_ended", "join_refused", "not_a_member",  "resumed",
    "rejoin",        "reached",    "challenge", "ask",          "notice",        "preemption"};

template <typename Variant>
void append_message(const Variant& message, std::string_view type, std::string& out) {
  const std::size_t length_at = out.size();
  out.append(kNativeLengthBytes, '\0');
  JsonWriter writer(out);
  writer.text("type", std::string(type), std::string::npos);
  std::visit([&](const auto& each) { fields(writer, each); }, message);
  writer.end();
  const std::size_t length = out.size() - length_at - kNativeLengthBytes;
  MUSTER_CHECK(length <= kMaxNativeBytes);
  boost::endian::store_little_u64(reinterpret_cast<unsigned char*>(&out[length_at]), length);
}

std::string reason_of(const JsonDefect& defect) {
  switch (defect.kind) {
    case JsonDefect::Kind::TooManyValues:
      return "more than " + std::to_string(kMaxNativeValues) + " values";
    case JsonDefect::Kind::TooDeep:
      return "more than " + std::to_string(kMaxNativeDepth) + " levels";
    case JsonDefect::Kind::NotJson:
      break;
  }
  return "not JSON";
}

// Reads the alternative at `index`.
template <typename Variant, std::size_t I = 0>
Variant read_alternative(std::size_t index, JsonReader& reader) {
  if constexpr (I + 1 < std::variant_size_v<Variant>) {
    if (index != I) return read_alternative<Variant, I + 1>(index, reader);
  }
  std::variant_alternative_t<I, Variant> message;
  fields(reader, message);
  return message;
}

template <typename Variant>
NativeResult<Variant> decode(std::string_view json, std::span<const std::string_view> types) {
  if (json.size() > kMaxNativeBytes)
    return NativeError{{}, "longer than " + std::to_string(kMaxNativeBytes) + " bytes"};
  JsonReader::Json object;
  if (const auto defect = parse_bounded_json(json, {kMaxNativeValues, kMaxNativeDepth}, object))
    return NativeError{{}, reason_of(*defect)};
  if (!object.is_object())
    return NativeError{{}, std::string("an object is wanted, this is: ") + object.type_name()};
  std::optional<NativeError> error;
  JsonReader reader(object, error);
  std::size_t index = 0;
  reader.one_of("type", index, types);
  if (error) return *std::move(error);
  Variant message = read_alternative<Variant>(index, reader);
  if (error) return *std::move(error);
  return message;
}

}  // namespace

std::string encode(const NativeRequest& request) {
  std::string frame(1, static_cast<char>(kNativeQuery));
  append_message(request, kRequestTypes[request.index()], frame);
  return frame;
}

std::string encode(const NativeMessage& message) {
  std::string frame;
  append_message(message, kMessageTypes[message.index()], frame);
  return frame;
}

NativeResult<NativeRequest> decode_native_request(std::string_view json, ConnectionId from) {
  auto request = decode<NativeRequest>(json, kRequestTypes);
  if (request)
    std::visit(
        [&](auto& message) {
          if constexpr (requires { message.from; }) message.from = from;
        },
        *request);
  return request;
}

NativeResult<NativeMessage> decode_native_message(std::string_view json) {
  return decode<NativeMessage>(json, kMessageTypes);
}

NativeResult<std::size_t> read_native_length(std::string_view bytes) {
  MUSTER_CHECK(bytes.size() >= kNativeLengthBytes);
  const auto length =
      boost::endian::load_little_u64(reinterpret_cast<const unsigned char*>(bytes.data()));
  if (length <= kMaxNativeBytes) return static_cast<std::size_t>(length);
  return NativeError{{},
                     std::to_string(length) + " bytes are announced, above the limit of " +
                         std::to_string(kMaxNativeBytes)};
}

}  // namespace muster
