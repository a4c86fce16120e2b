#include "rendezvous/wire/state_codec.h"

#include <catch2/catch.hpp>

#include "rendezvous/wire/base64.h"
#include "rendezvous/wire/pickle_writer.h"
#include "rendezvous/wire/utf8.h"

namespace muster {
namespace {

std::string reason(std::string_view pickled) {
  const auto state = decode_state(base64_encode(pickled));
  return state ? std::string("read") : state.error().reason;
}

RendezvousState state_of(int nodes) {
  RendezvousState state;
  for (int i = 0; i < nodes; ++i) {
    const NodeName name{"node" + std::to_string(i), i, 0};
    state.participants.add_new(name, 0);
    state.last_heartbeats.add_new(name, {1'000'000 + i});
  }
  return state;
}

TEST_CASE("state codec: every limit is reached, and holds", "[unit][state_codec]") {
  const std::string text = encode_state(state_of(50));
  REQUIRE(decode_state(text).has_value());
  CHECK(decode_state(text, {.bytes = 1000}).error().reason == "longer than a state may be");
  CHECK(decode_state(text, {.values = 100}).error().reason == "more values than a state may hold");
  CHECK(decode_state(text, {.stack = 20}).error().reason == "stack deeper than a state needs");
  RendezvousState long_address;
  long_address.wait_list.add_new({std::string(kMaxAddressBytes + 1, 'x'), 1, 0});
  CHECK(decode_state(encode_state(long_address)).error().reason == "an address is too long");
  long_address.wait_list = {};
  long_address.wait_list.add_new({std::string(kMaxAddressBytes, 'x'), 1, 0});
  CHECK(decode_state(encode_state(long_address)).has_value());
}

TEST_CASE("state codec: foreign attributes are bounded in depth and size", "[unit][state_codec]") {
  RendezvousState state;
  std::string nested = "\x80\x04";
  nested += std::string(40, ']') + std::string(39, 'a') + ".";
  state.foreign = {{"deep", nested}};
  pickle::Graph graph;
  REQUIRE(pickle::read_pickle(nested, graph).has_value());
  CHECK(pickle::write_pickle(graph, 0).error().reason == "nested too deeply");
  // A list within itself: read as what it is, refused when it would have to be written.
  pickle::Graph circle;
  const auto root = pickle::read_pickle(
      "\x80\x04]\x94h\x00"
      "a.",
      circle);
  CHECK(root.has_value() == false);
}

TEST_CASE("state codec: what no state contains is refused", "[unit][state_codec]") {
  CHECK(reason("\x80\x06N.") == "protocol 6");
  CHECK(reason(std::string("\x80\x01N.", 4)) == "protocol 1");
  CHECK(reason("\x80\x04N") == "truncated");
  CHECK(reason("\x80\x04NN.") == "not one value at the end");
  CHECK(reason("\x80\x04(.") == "not one value at the end");
  CHECK(reason("\x80\x04}K\1u.") == "no mark");
  CHECK(reason("\x80\x04}(K\1u.") == "a key without a value");
  CHECK(reason("\x80\x04N(K\1e.") == "items for no list");
  CHECK(reason("\x80\x04\x8c\1\xff.") == "text is not UTF-8");
  CHECK(reason("\x80\x04I1\n.") == "opcode 73 does not belong in a state");
  CHECK(reason("\x80\x04"
               "cos\nsystem\n.") == "the name os.system is not allowed");
  CHECK(reason("\x80\x04"
               "cdatetime\ndatetime\n)\x81.") ==
        "an object of something else than a state or a node");
  CHECK(reason("\x80\x04NN\x86R.") == "stack underflow");
  CHECK(reason("\x80\x04"
               "cbuiltins\nset\n)R.") == "a set of something that is no list");
  CHECK(reason("\x80\x04\x8a\x09"
               "123456789.") == "integer of more than 64 bits");
  CHECK(reason("\x80\x04\x94.") == "nothing to memoize");
}

TEST_CASE("state codec: an error names the place", "[unit][state_codec]") {
  CHECK(describe(decode_state(base64_encode("\x80\x04NNq")).error()) ==
        "byte 4 of the pickle: truncated");
  CHECK(describe(decode_state("gARO?A==").error()) == "character 4: not base64");
}

TEST_CASE("base64: only what Python would write", "[unit][state_codec]") {
  for (const char* text : {"", "a", "ab", "abc", "abcd", "\xff\xfe\xfd"}) {
    const auto again = base64_decode(base64_encode(text));
    REQUIRE(again.has_value());
    CHECK(*again == text);
  }
  for (const char* bad :
       {"A", "AB", "ABC", "AB=C", "A===", "====", "AB==AAAA", "AB\n=", "AR==", "AAB="})
    CHECK_FALSE(base64_decode(bad).has_value());
}

TEST_CASE("utf-8: as strict as Python's", "[unit][state_codec]") {
  CHECK(is_utf8("a\xc3\xbc\xe2\x82\xac\xf0\x9f\x9a\x80"));
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\xff"})
    CHECK_FALSE(is_utf8(bad));
}

TEST_CASE("state codec: times before 1970 and at the ends", "[unit][state_codec]") {
  for (const std::int64_t us :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{951'782'400'000'000},
        std::int64_t{-62'135'596'800'000'000}, std::int64_t{253'402'300'799'999'999}}) {
    RendezvousState state;
    state.deadline = WallTime{us};
    const auto again = decode_state(encode_state(state));
    REQUIRE(again.has_value());
    CHECK((*again)->deadline == state.deadline);
  }
}

}  // namespace
}  // namespace muster
