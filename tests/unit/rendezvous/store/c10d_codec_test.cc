#include "rendezvous/store/c10d_codec.h"

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <boost/endian/conversion.hpp>
#include <catch2/catch.hpp>

#include "rendezvous/store/native_frame.h"
#include "rendezvous/store/store_limits.h"
namespace muster {
namespace {

std::string u64(std::uint64_t number) {
  std::array<unsigned char, 8> bytes;
  boost::endian::store_little_u64(bytes.data(), number);
  return {bytes.begin(), bytes.end()};
}

std::string text(std::string_view bytes) {
  return u64(bytes.size()) + std::string(bytes);
}

std::string code(Query query) {
  return {static_cast<char>(query)};
}

std::string bytes_of(const Request& request) {
  std::string out;
  encode_request(request, out);
  return out;
}

const std::string kValidate =
    bytes_of({.query = Query::Validate, .number = c10d::kValidationMagic});

std::string reply_bytes(const Reply& reply) {
  ReplyQueue queue;
  encode_reply(reply, queue);
  std::string out;
  std::array<std::string_view, 4> pieces;
  while (const std::size_t count = queue.gather(pieces)) {
    out.append(pieces[0]);
    queue.consume(pieces[0].size());
    REQUIRE(count <= pieces.size());
  }
  return out;
}

enum class Seen { Part, Whole, Fault };

Seen look(RequestDecoder& decoder, std::string_view bytes) {
  const auto complete = decoder.scan(bytes);
  if (!complete) return Seen::Fault;
  return *complete ? Seen::Whole : Seen::Part;
}

struct CodecTest {
  CodecLimits limits;
  RequestDecoder decoder{limits};
  RequestScratch scratch;

  CodecTest() {
    REQUIRE(look(decoder, kValidate) == Seen::Whole);
    decoder.next();
  }
  /// The decoder's fault in `bytes`, if it has any.
  std::optional<ParseFault> fault_in(std::string_view bytes) {
    RequestDecoder fresh = decoder;
    const auto complete = fresh.scan(bytes);
    if (complete) return std::nullopt;
    return complete.error().fault;
  }
};

// One request of each query, and its bytes as torch 2.13 sends them.
std::vector<std::pair<Request, std::string>> samples() {
  static const std::vector<std::string_view> kKeys{"/a", "", "/ccc"};
  static const std::vector<std::string_view> kValues{"1", "", "333"};
  const std::string list = u64(3) + text("/a") + text("") + text("/ccc");
  return {
      {{.query = Query::Set, .key = "/k", .value = "v"}, code(Query::Set) + text("/k") + text("v")},
      {{.query = Query::CompareSet, .key = "/k", .value = "new", .expected = "old"},
       code(Query::CompareSet) + text("/k") + text("old") + text("new")},
      {{.query = Query::Get, .key = "/k"}, code(Query::Get) + text("/k")},
      {{.query = Query::Add, .key = "/n", .number = -12},
       code(Query::Add) + text("/n") + u64(static_cast<std::uint64_t>(-12))},
      {{.query = Query::Check, .keys = kKeys}, code(Query::Check) + list},
      {{.query = Query::Wait, .keys = kKeys}, code(Query::Wait) + list},
      {{.query = Query::Wait}, code(Query::Wait) + u64(0)},
      {{.query = Query::GetNumKeys}, code(Query::GetNumKeys)},
      {{.query = Query::DeleteKey, .key = ""}, code(Query::DeleteKey) + text("")},
      {{.query = Query::Append, .key = "/k", .value = ""},
       code(Query::Append) + text("/k") + text("")},
      {{.query = Query::MultiGet, .keys = kKeys}, code(Query::MultiGet) + list},
      {{.query = Query::MultiSet, .keys = kKeys, .values = kValues},
       code(Query::MultiSet) + u64(3) + text("/a") + text("1") + text("") + text("") +
           text("/ccc") + text("333")},
      {{.query = Query::MultiSet}, code(Query::MultiSet) + u64(0)},
      {{.query = Query::CancelWait}, code(Query::CancelWait)},
      {{.query = Query::Ping, .number = 0x04030201}, code(Query::Ping) + "\x01\x02\x03\x04"},
      {{.query = Query::QueuePush, .key = "/q", .value = "j"},
       code(Query::QueuePush) + text("/q") + text("j")},
      {{.query = Query::QueuePop, .key = "/q"}, code(Query::QueuePop) + text("/q")},
      {{.query = Query::QueueLen, .key = "/q"}, code(Query::QueueLen) + text("/q")},
      {{.query = Query::ListKeys}, code(Query::ListKeys)},
      {{.query = Query::Barrier, .key = "/b", .number = 7},
       code(Query::Barrier) + text("/b") + u64(7)},
  };
}

void check_same(const Request& got, const Request& want) {
  CHECK(got.query == want.query);
  CHECK(got.key == want.key);
  CHECK(got.value == want.value);
  CHECK(got.expected == want.expected);
  CHECK(got.number == want.number);
  CHECK(std::vector<std::string_view>(got.keys.begin(), got.keys.end()) ==
        std::vector<std::string_view>(want.keys.begin(), want.keys.end()));
  CHECK(std::vector<std::string_view>(got.values.begin(), got.values.end()) ==
        std::vector<std::string_view>(want.values.begin(), want.values.end()));
}

TEST_CASE_METHOD(CodecTest, "codec: every query is encoded and decoded, one byte at a time",
                 "[unit][codec]") {
  for (const auto& [request, bytes] : samples()) {
    INFO("query " << static_cast<int>(request.query));
    CHECK(bytes_of(request) == bytes);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      REQUIRE(look(decoder, std::string_view(bytes).substr(0, size)) == Seen::Part);
      REQUIRE(decoder.wanted() > size);
      REQUIRE(decoder.wanted() <= bytes.size());
    }
    const std::string more = bytes + "and what follows";
    REQUIRE(look(decoder, more) == Seen::Whole);
    REQUIRE(decoder.size() == bytes.size());
    check_same(decoder.request(more, scratch), request);
    decoder.next();
  }
}

TEST_CASE("codec: the first request is VALIDATE, it comes once and has the right magic",
          "[unit][codec]") {
  const CodecLimits limits;
  CHECK(kValidate == std::string("\x00\xce\xf7\x85\x3c", 5));
  const auto fault = [&](std::string_view bytes) {
    RequestDecoder decoder(limits);
    const auto complete = decoder.scan(bytes);
    REQUIRE(complete.has_error());
    return complete.error().fault;
  };
  CHECK(fault("GET / HTTP/1.1\r\n") == ParseFault::NotValidated);
  CHECK(fault(code(Query::Ping)) == ParseFault::NotValidated);
  CHECK(fault(std::string("\x00\x01\x02\x03\x04", 5)) == ParseFault::WrongMagic);
  RequestDecoder decoder(limits);
  REQUIRE(look(decoder, kValidate) == Seen::Whole);
  decoder.next();
  const auto again = decoder.scan(kValidate);
  REQUIRE(again.has_error());
  CHECK(again.error().fault == ParseFault::ValidatedTwice);
  CHECK(again.error().offset == 5);
}

TEST_CASE_METHOD(CodecTest, "codec: unknown queries are faults", "[unit][codec]") {
  for (const int byte : {19, 20, 127, 128, 255})
    CHECK(fault_in(std::string(1, static_cast<char>(byte))) == ParseFault::UnknownQuery);
}

TEST_CASE_METHOD(CodecTest, "codec: each limit at its edge, and beyond up to 2^64 - 1",
                 "[unit][codec]") {
  const auto set_of_key = [](std::uint64_t bytes) { return code(Query::Set) + u64(bytes); };
  const auto set_of_value = [](std::uint64_t bytes) {
    return code(Query::Set) + text("/k") + u64(bytes);
  };
  const auto check_of = [](std::uint64_t keys) { return code(Query::Check) + u64(keys); };
  const auto multi_set_of = [](std::uint64_t pairs) { return code(Query::MultiSet) + u64(pairs); };
  CHECK_FALSE(fault_in(set_of_key(limits.key_bytes)));
  CHECK(fault_in(set_of_key(limits.key_bytes + 1)) == ParseFault::KeyTooLong);
  CHECK_FALSE(fault_in(set_of_value(limits.value_bytes)));
  CHECK(fault_in(set_of_value(limits.value_bytes + 1)) == ParseFault::ValueTooLong);
  CHECK_FALSE(fault_in(check_of(limits.keys_per_request)));
  CHECK(fault_in(check_of(limits.keys_per_request + 1)) == ParseFault::TooManyKeys);
  CHECK_FALSE(fault_in(multi_set_of(limits.keys_per_request)));
  CHECK(fault_in(multi_set_of(limits.keys_per_request + 1)) == ParseFault::TooManyKeys);
  for (const std::uint64_t huge : {std::uint64_t{1} << 62, std::uint64_t{1} << 63,
                                   std::numeric_limits<std::uint64_t>::max()}) {
    CHECK(fault_in(set_of_key(huge)) == ParseFault::KeyTooLong);
    CHECK(fault_in(set_of_value(huge)) == ParseFault::ValueTooLong);
    CHECK(fault_in(check_of(huge)) == ParseFault::TooManyKeys);
    CHECK(fault_in(multi_set_of(huge)) == ParseFault::TooManyKeys);
    CHECK(fault_in(code(Query::Check) + u64(2) + text("/a") + u64(huge)) == ParseFault::KeyTooLong);
    CHECK(fault_in(code(Query::MultiSet) + u64(1) + text("/a") + u64(huge)) ==
          ParseFault::ValueTooLong);
  }
}

TEST_CASE("codec: a request's length is limited as a whole", "[unit][codec]") {
  const CodecLimits limits{.request_bytes = 100};
  RequestDecoder decoder(limits);
  REQUIRE(look(decoder, kValidate) == Seen::Whole);
  decoder.next();
  const std::string fits = code(Query::Set) + text("/k") + u64(100 - 1 - 10 - 8);
  CHECK(look(decoder, fits) == Seen::Part);
  CHECK(decoder.wanted() == 100);
  RequestDecoder other(limits);
  REQUIRE(look(other, kValidate) == Seen::Whole);
  other.next();
  const auto beyond = other.scan(code(Query::Set) + text("/k") + u64(100 - 1 - 10 - 8 + 1));
  REQUIRE(beyond.has_error());
  CHECK(beyond.error().fault == ParseFault::RequestTooLong);
}

TEST_CASE("codec: limits near 2^64 let no length wrap around", "[unit][codec]") {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const CodecLimits limits{
      .key_bytes = kMax, .value_bytes = kMax, .keys_per_request = kMax, .request_bytes = kMax};
  const auto fault_in = [&](const std::string& bytes) -> std::optional<ParseFault> {
    RequestDecoder decoder(limits);
    REQUIRE(look(decoder, kValidate) == Seen::Whole);
    decoder.next();
    const auto complete = decoder.scan(bytes);
    if (!complete) return complete.error().fault;
    CHECK_FALSE(*complete);
    CHECK(decoder.wanted() > bytes.size());
    return std::nullopt;
  };
  for (const std::uint64_t length : {kMax, kMax - 8}) {
    const std::string huge = u64(length);
    CHECK(fault_in(code(Query::Get) + huge) == ParseFault::RequestTooLong);
    CHECK(fault_in(code(Query::Set) + text("/k") + huge) == ParseFault::RequestTooLong);
    CHECK(fault_in(code(Query::Check) + u64(2) + huge) == ParseFault::RequestTooLong);
    CHECK(fault_in(code(Query::MultiSet) + u64(2) + text("/k") + huge) ==
          ParseFault::RequestTooLong);
  }
  CHECK_FALSE(fault_in(code(Query::Get) + u64(kMax - 9)));
  // Each string of a list has at least the 8 bytes of its length.
  for (const std::uint64_t count : {kMax, kMax / 2 + 1, kMax / 2 + 2, kMax / 8, kMax / 16 + 1}) {
    CHECK(fault_in(code(Query::MultiSet) + u64(count)) == ParseFault::RequestTooLong);
    if (count >= kMax / 8)
      CHECK(fault_in(code(Query::Check) + u64(count)) == ParseFault::RequestTooLong);
  }
  CHECK_FALSE(fault_in(code(Query::Check) + u64(kMax / 16)));
  CHECK_FALSE(fault_in(code(Query::MultiSet) + u64(kMax / 16)));
}

TEST_CASE("codec: a hello has a lower limit than later native messages", "[unit][codec]") {
  const CodecLimits limits{.native_door = true};
  const auto head = [](std::uint64_t bytes) { return "m" + u64(bytes); };
  RequestDecoder decoder(limits);
  CHECK(look(decoder, head(kMaxHelloBytes)) == Seen::Part);
  RequestDecoder other(limits);
  CHECK(other.scan(head(kMaxHelloBytes + 1)).error().fault == ParseFault::NativeTooLong);
  REQUIRE(look(decoder, head(kMaxHelloBytes) + std::string(kMaxHelloBytes, ' ')) == Seen::Whole);
  decoder.next();
  CHECK(look(decoder, head(kMaxNativeBytes)) == Seen::Part);
  CHECK(decoder.scan(head(kMaxNativeBytes)).has_value());
  RequestDecoder third(limits);
  REQUIRE(look(third, head(2) + "{}") == Seen::Whole);
  third.next();
  CHECK(third.scan(head(kMaxNativeBytes + 1)).error().fault == ParseFault::NativeTooLong);
}

TEST_CASE("codec: the limits of store requests do not apply to native messages", "[unit][codec]") {
  const CodecLimits limits{.value_bytes = 1, .request_bytes = 6, .native_door = true};
  const std::string hello = "m" + text(std::string(100, ' '));
  RequestDecoder decoder(limits);
  REQUIRE(look(decoder, hello) == Seen::Whole);
  CHECK(decoder.native_message(hello).size() == 100);
  decoder.next();
  CHECK(look(decoder, "m" + u64(kMaxNativeBytes)) == Seen::Part);
  // They apply to other clients of the same server.
  RequestDecoder other(limits);
  REQUIRE(look(other, kValidate) == Seen::Whole);
  other.next();
  CHECK(other.scan(code(Query::Ping) + "abcd").has_value());
  other.next();
  CHECK(other.scan(code(Query::ListKeys)).has_value());
  other.next();
  CHECK(other.scan(code(Query::QueueLen)).error().fault == ParseFault::RequestTooLong);
}

TEST_CASE_METHOD(CodecTest, "codec: a fault names its place in the stream", "[unit][codec]") {
  const std::string ping = code(Query::Ping) + "abcd";
  REQUIRE(look(decoder, ping) == Seen::Whole);
  decoder.next();
  const auto bad = decoder.scan(code(Query::Set) + text("/k") + u64(~std::uint64_t{0}));
  REQUIRE(bad.has_error());
  CHECK(bad.error().offset == kValidate.size() + ping.size() + 1 + 10);
}

TEST_CASE_METHOD(CodecTest,
                 "codec: each of 131,072 keys is read once, although they come in many pieces",
                 "[unit][codec]") {
  std::string bytes = code(Query::Check) + u64(131'072);
  for (int i = 0; i < 131'072; ++i)
    bytes += text("/" + std::to_string(i));
  // Quadratic work would be 131,072 times the whole: the test would take minutes. It needs no clock
  // to notice that.
  for (std::size_t size = 1; size < bytes.size(); size += 7)
    REQUIRE(look(decoder, std::string_view(bytes).substr(0, size)) == Seen::Part);
  REQUIRE(look(decoder, bytes) == Seen::Whole);
  const Request request = decoder.request(bytes, scratch);
  REQUIRE(request.keys.size() == 131'072);
  CHECK(request.keys[131'071] == "/131071");
}

TEST_CASE("codec: every kind of reply has torch's bytes", "[unit][codec]") {
  const SharedBytes value = SharedBytes::copy_of("value");
  const std::string large(100'000, 'L');
  CHECK(reply_bytes(NoReply{}).empty());
  CHECK(reply_bytes(kNotReady) == std::string("\x01", 1));
  CHECK(reply_bytes(Number{-7}) == u64(static_cast<std::uint64_t>(-7)));
  CHECK(reply_bytes(Nonce{0x04030201}) == "\x01\x02\x03\x04");
  CHECK(reply_bytes(Value{value}) == text("value"));
  CHECK(reply_bytes(Value{}) == u64(0));
  CHECK(reply_bytes(Value{SharedBytes::copy_of(large)}) == text(large));
  CHECK(reply_bytes(Values{{value, {}, SharedBytes::copy_of(large), value}}) ==
        text("value") + text("") + text(large) + text("value"));
  CHECK(reply_bytes(Popped{0, {}}) == u64(0));
  CHECK(reply_bytes(Popped{2, value}) == u64(2) + text("value"));
  CHECK(reply_bytes(Keys{{"/a", ""}}) == u64(2) + text("/a") + text(""));
}

}  // namespace
}  // namespace muster
