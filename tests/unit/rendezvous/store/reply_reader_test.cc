#include "rendezvous/store/reply_reader.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <boost/endian/conversion.hpp>
#include <catch2/catch.hpp>

namespace muster {
namespace {

std::string number(std::int64_t value) {
  unsigned char bytes[8];
  boost::endian::store_little_s64(bytes, value);
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}
std::string text(std::string_view bytes) {
  return number(static_cast<std::int64_t>(bytes.size())).append(bytes);
}

enum class End { Complete, Short, TooLarge, Unexpected };

/// Reads from the front of `bytes`, and removes the bytes that were read.
End read(ReplyReader& reader, std::string_view& bytes) {
  for (;;) {
    const std::span<char> to = reader.wanted();
    if (to.empty()) return End::Complete;
    if (bytes.size() < to.size()) return End::Short;
    std::copy_n(bytes.begin(), to.size(), to.begin());
    bytes.remove_prefix(to.size());
    if (const auto taken = reader.received(); !taken)
      return taken.error() == ReplyFault::TooLarge ? End::TooLarge : End::Unexpected;
  }
}

End read_all(ReplyReader& reader, const std::string& bytes) {
  std::string_view rest = bytes;
  return read(reader, rest);
}

TEST_CASE("reply reader: numbers and texts", "[unit][rendezvous]") {
  ReplyReader value = ReplyReader::number();
  CHECK(read_all(value, number(-7)) == End::Complete);
  CHECK(value.value() == -7);
  ReplyReader one = ReplyReader::text(100);
  CHECK(read_all(one, text("abc")) == End::Complete);
  CHECK(one.found() == std::vector<std::string>{"abc"});
  ReplyReader two = ReplyReader::texts(2, 100);
  CHECK(read_all(two, text("") + text("b")) == End::Complete);
  CHECK(two.found() == std::vector<std::string>{"", "b"});
  ReplyReader none = ReplyReader::texts(0, 100);
  CHECK(none.wanted().empty());
}

TEST_CASE("reply reader: lists and popped elements", "[unit][rendezvous]") {
  ReplyReader list = ReplyReader::list(1000);
  CHECK(read_all(list, number(2) + text("a") + text("bc")) == End::Complete);
  CHECK(list.found() == std::vector<std::string>{"a", "bc"});
  ReplyReader empty = ReplyReader::list(1000);
  CHECK(read_all(empty, number(0)) == End::Complete);
  ReplyReader negative = ReplyReader::list(1000);
  CHECK(read_all(negative, number(-1)) == End::Unexpected);
  ReplyReader popped = ReplyReader::popped(1000);
  CHECK(read_all(popped, number(1) + text("xyz")) == End::Complete);
  CHECK(popped.value() == 1);
  CHECK(popped.found() == std::vector<std::string>{"xyz"});
  ReplyReader nothing = ReplyReader::popped(1000);
  CHECK(read_all(nothing, number(0)) == End::Complete);
  CHECK(nothing.value() == 0);
  CHECK(nothing.found().empty());
}

TEST_CASE("reply reader: the limit is on all texts of a reply, and on their number",
          "[unit][rendezvous]") {
  ReplyReader fits = ReplyReader::text(3);
  CHECK(read_all(fits, text("abc")) == End::Complete);
  ReplyReader longer = ReplyReader::text(3);
  CHECK(read_all(longer, text("abcd")) == End::TooLarge);
  ReplyReader negative = ReplyReader::text(3);
  CHECK(read_all(negative, number(-1)) == End::TooLarge);
  ReplyReader both = ReplyReader::texts(2, 1000);
  CHECK(read_all(both, text(std::string(600, 'a')) + text(std::string(600, 'b'))) == End::TooLarge);
  ReplyReader endless = ReplyReader::list(1000);
  std::string bytes = number(std::int64_t{1} << 60);
  for (int i = 0; i < 1000; ++i)
    bytes += text("");
  CHECK(read_all(endless, bytes) == End::TooLarge);
  CHECK(endless.found().size() < 100);
}

TEST_CASE("reply reader: an announced length takes no memory", "[unit][rendezvous]") {
  ReplyReader reader = ReplyReader::text(std::uint64_t{1} << 40);
  std::string bytes = number(std::int64_t{1} << 39) + std::string(std::size_t{3} << 20, 'x');
  std::string_view rest = bytes;
  CHECK(read(reader, rest) == End::Short);
  CHECK(reader.found().front().size() <= std::size_t{4} << 20);
}

}  // namespace
}  // namespace muster
