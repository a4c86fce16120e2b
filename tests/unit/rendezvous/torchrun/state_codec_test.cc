#include "rendezvous/torchrun/state_codec.h"

#include <catch2/catch.hpp>

#include "base/base64.h"
#include "pickle/utf8.h"
#include "pickle/writer.h"
#include "rendezvous/torchrun/state_rules.h"

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
  CHECK(decode_state(text, {.values = 100}).error().reason ==
        "more values than a pickle of this size may hold");
  CHECK(decode_state(text, {.stack = 20}).error().reason == "the stack is deeper than the limit");
  RendezvousState long_address;
  long_address.wait_list.add_new({std::string(kMaxStateAddressBytes + 1, 'x'), 1, 0});
  CHECK(decode_state(encode_state(long_address)).error().reason == "an address is too long");
  long_address.wait_list = {};
  long_address.wait_list.add_new({std::string(kMaxStateAddressBytes, 'x'), 1, 0});
  CHECK(decode_state(encode_state(long_address)).has_value());
}

TEST_CASE("state codec: foreign attributes are bounded in depth and size", "[unit][state_codec]") {
  RendezvousState state;
  std::string nested = "\x80\x04";
  nested += std::string(40, ']') + std::string(39, 'a') + ".";
  state.foreign = {{"deep", nested}};
  pickle::Graph graph;
  REQUIRE(pickle::read_pickle(nested, graph, StateRules()).has_value());
  CHECK(pickle::write_pickle(graph, 0).error().reason == "nested too deeply");
}

TEST_CASE("state codec: a list that contains itself is read and written as one",
          "[unit][state_codec]") {
  using namespace std::string_view_literals;
  // As pickle.dumps() writes it with protocol 4: the list, memo 0, gets itself as its only item.
  const auto circle = "\x80\x04\x95\x06\0\0\0\0\0\0\0]\x94h\0a."sv;
  pickle::Graph graph;
  const auto root = pickle::read_pickle(circle, graph, StateRules());
  REQUIRE(root.has_value());
  REQUIRE(graph.is(*root, pickle::Kind::List));
  CHECK(graph.at(*root).items == std::vector<pickle::Ref>{*root});
  const auto written = pickle::write_pickle(graph, *root);
  REQUIRE(written.has_value());
  CHECK(*written == circle);
}

TEST_CASE("state codec: values that no state contains are refused", "[unit][state_codec]") {
  CHECK(reason("\x80\x06N.") == "protocol 6");
  CHECK(reason(std::string("\x80\x01N.", 4)) == "protocol 1");
  CHECK(reason("\x80\x04N") == "truncated");
  CHECK(reason("\x80\x04NN.") == "not one value at the end");
  CHECK(reason("\x80\x04(.") == "not one value at the end");
  CHECK(reason("\x80\x04}K\1u.") == "no mark");
  CHECK(reason("\x80\x04}(K\1u.") == "a key without a value");
  CHECK(reason("\x80\x04N(K\1e.") == "items for no list");
  CHECK(reason("\x80\x04\x8c\1\xff.") == "text is not UTF-8");
  CHECK(reason("\x80\x04I1\n.") == "the opcode 73, which is not allowed");
  CHECK(reason("\x80\x04"
               "cos\nsystem\n.") == "the name os.system is not allowed");
  CHECK(reason("\x80\x04"
               "cdatetime\ndatetime\n)\x81.") ==
        "an object of something else than a state or a node");
  CHECK(reason("\x80\x04NN\x86R.") == "stack underflow");
  CHECK(reason("\x80\x04"
               "cbuiltins\nset\n)R.") == "a set of something that is no list");
  CHECK(reason("\x80\x04\x8a\x09"
               "123456789.") == "an integer of more than 64 bits");
  CHECK(reason("\x80\x04\x94.") == "nothing to memoize");
}

/// Why a pickle of protocol 4 with these operations is refused.
std::string reason_of(std::string operations) {
  return reason("\x80\x04" + std::move(operations) + ".");
}
std::string class_named(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
const std::string kTorch = "torch.distributed.elastic.rendezvous.dynamic_rendezvous";
const std::string kNode = class_named(kTorch, "_NodeDesc") + ")\x81";
const std::string kNodeAttributes =
    "}(\x8c\x04"
    "addr\x8c\1n\x8c\3pidK\1\x8c\x08local_idK\2u";

TEST_CASE("state codec: the memo is numbered as CPython numbers it, or refused",
          "[unit][state_codec]") {
  const auto read = [](const std::string& operations) {
    const std::string bytes = "\x80\x04" + operations + ".";
    pickle::Graph graph;
    const auto root = pickle::read_pickle(bytes, graph, StateRules());
    if (!root) return root.error().reason;
    return std::string(graph.at(graph.at(*root).items.back()).text);
  };
  const std::string zero(1, '\0');
  // BINPUT 0 twice leaves one entry, so MEMOIZE is number 1 and not number 0.
  CHECK(read("\x8c\1aq" + zero + "q" + zero + "\x8c\1b\x94h" + zero + "\x87") == "a");
  CHECK(read("\x8c\1aq" + zero + "q" + zero + "\x8c\1b\x94h\1\x87") == "b");
  CHECK(read("\x8c\1aq\1") == "memo 1 leaves a gap");
  CHECK(read("\x8c\1ar\xff\xff\xff\x7f") == "memo 2147483647 leaves a gap");
}

TEST_CASE("state codec: a pickle that CPython would reject or read differently is refused",
          "[unit][state_codec]") {
  const std::string changed = "items for a dict that an object's attributes were copied from";
  // BUILD copies a dict, which is changed afterwards.
  CHECK(reason_of(kNode + kNodeAttributes +
                  "\x94"
                  "bh" +
                  std::string(1, '\0') + "\x8c\3pidK\x09s") == changed);
  // Nodes that Python cannot hash yet, or can never hash.
  CHECK(reason_of("\x8f(" + kNode + "\x90") == "a key that Python cannot use");
  CHECK(reason_of("}" + kNode + "K\1s") == "a key that Python cannot use");
  CHECK(reason_of("\x8f(]\x90") == "a key that Python cannot use");
  CHECK(reason_of(class_named("builtins", "set") + "](]e\x85R") == "a key that Python cannot use");
  CHECK(reason_of(kNode + "}b") == "a node lacks addr, pid or local_id");
  CHECK(reason_of(kNode + "}\x8c\1xK\1sb") ==
        "a node has other attributes than addr, pid and local_id, or one twice");
  // Calls with wrong arguments are refused although their results are not used.
  CHECK(reason_of(class_named("datetime", "timedelta") + "\x8c\1x\x85R") ==
        "a zone without an offset");
  CHECK(reason_of(class_named("datetime", "timezone") + "K\1\x85R") == "a zone without an offset");
  CHECK(reason_of(class_named("datetime", "datetime") + "C\1x\x85R") ==
        "a time that is not ten bytes");
  // From protocol 3 on, Python 2's name of a module means another module.
  CHECK(reason_of(class_named("__builtin__", "set") + "]\x85R") ==
        "the name __builtin__.set is not allowed");
  CHECK(reason("\x80\x02" + class_named("__builtin__", "set") + "]\x85R.") ==
        "not a rendezvous state");
  CHECK(reason("\x80\x04N\x80\x02.") == "a protocol that is not at the beginning");
  CHECK(reason("N.") == "no protocol at the beginning");
}

TEST_CASE("state codec: the values of a pickle are bounded by its size", "[unit][state_codec]") {
  const std::string zero(1, '\0');
  // One list for many sets: its items move into the first set.
  const std::string list = "](K\1K\2K\3e\x94";
  CHECK(reason_of("](" + list + class_named("builtins", "set") + "\x94h" + zero + "\x85Rh\1h" +
                  zero + "\x85Re") == "a set of something that is no list");
  // One text is converted to bytes many times.
  std::string encoded = "(\x8c\x64" + std::string(100, 'x') + "\x94\x8c\x06latin1\x94" +
                        class_named("_codecs", "encode") + "\x94";
  for (int i = 0; i < 20; ++i)
    encoded += "h\2h" + zero + "h\1\x86R";
  CHECK(reason_of(encoded + "t") == "one text as bytes again and again");
  CHECK(reason_of("(" + std::string(1000, ']') + "t") ==
        "more values than a pickle of this size may hold");
  // Long addresses are allowed if each node has its own.
  RendezvousState state;
  for (int i = 0; i < 100; ++i)
    state.wait_list.add_new({std::string(kMaxStateAddressBytes, 'x'), i, 0});
  const auto again = decode_state(encode_state(state));
  CHECK((again ? "read" : again.error().reason) == "read");
}

TEST_CASE("state codec: foreign attributes are plain, few and small", "[unit][state_codec]") {
  const auto with = [](const std::string& name, const std::string& value) {
    RendezvousState state;
    state.foreign.push_back({"stand_in", "\x80\x04N."});
    auto bytes = base64_decode(encode_state(state));
    REQUIRE(bytes.has_value());
    bytes->erase(2, 9);  // Removes the frame, because its length would be wrong.
    const std::string old = "\x8c\x08stand_in\x94N";
    const auto place = bytes->find(old);
    REQUIRE(place != std::string::npos);
    bytes->replace(place, old.size(),
                   "\x8c" + std::string(1, static_cast<char>(name.size())) + name + value);
    return reason(*bytes);
  };
  CHECK(with("x", "](K\1\x88N\x8c\1tC\1b}\x8c\1kK\2se") == "read");
  CHECK(with("x", kNode + kNodeAttributes + "b") == "read");
  for (const char* name : {"__reduce_ex__", "__setstate__", "__x", "a b", "1", ""})
    CHECK(with(name, "N") == "an attribute with a name of Python's");
  CHECK(with(std::string(kMaxForeignNameBytes, 'x'), "N") == "read");
  CHECK(with(std::string(kMaxForeignNameBytes + 1, 'x'), "N") ==
        "an attribute with a name of Python's");
  CHECK(with("x", class_named("datetime", "timedelta")) ==
        "a foreign attribute that is no plain value");
  const std::string deep = "nested too deeply, or with too many values";
  const auto nested = [](int depth) {
    return std::string(depth, ']') + std::string(depth - 1, 'a');
  };
  CHECK(with("x", nested(kMaxForeignDepth + 1)) == "read");
  CHECK_THAT(with("x", nested(kMaxForeignDepth + 2)), Catch::Contains(deep));
  const auto list_of = [](std::size_t count) { return "](" + std::string(count, 'N') + "e"; };
  CHECK(with("x", list_of(kMaxForeignValues - 1)) == "read");
  CHECK_THAT(with("x", list_of(kMaxForeignValues)), Catch::Contains(deep));
  const auto text_of = [](std::uint16_t bytes) {
    return "X" + std::string(1, static_cast<char>(bytes & 0xff)) +
           std::string(1, static_cast<char>(bytes >> 8)) + std::string(2, '\0') +
           std::string(bytes, 'x');
  };
  CHECK(with("x", text_of(kMaxForeignBytes - 100)) == "read");
  CHECK(with("x", text_of(kMaxForeignBytes)) == "foreign attributes too long");
  std::string others;
  for (std::size_t i = 1; i < kMaxForeignAttributes; ++i)
    others += "\x8c\1" + std::string(1, static_cast<char>('a' + i)) + "N";
  CHECK(with("x", "N" + others) == "read");
  CHECK_THAT(with("x", "N" + others + "\x8c\1zN"), Catch::Contains("foreign attributes"));
}

TEST_CASE("state codec: an error names the place", "[unit][state_codec]") {
  CHECK(describe(decode_state(base64_encode("\x80\x04NNq")).error()) ==
        "byte 4 of the pickle: truncated");
  CHECK(describe(decode_state("gARO?A==").error()) == "character 4: not base64");
}

TEST_CASE("base64: only the texts that Python writes are read", "[unit][state_codec]") {
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
