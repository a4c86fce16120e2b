#include "rendezvous/store/shared_bytes.h"

#include <array>
#include <cstring>
#include <string>

#include <catch2/catch.hpp>

#include "rendezvous/store/reply_queue.h"
#include "tests/support/prng.h"

namespace muster {
namespace {

TEST_CASE("shared bytes: copies look at one block, and writing leaves the others alone",
          "[unit][bytes]") {
  SharedBytes a = SharedBytes::copy_of("hello");
  SharedBytes b = a;
  CHECK(a.view().data() == b.view().data());
  b.append(" world");
  CHECK(a.view() == "hello");
  CHECK(b.view() == "hello world");
  a.assign("other");
  CHECK(a.view() == "other");
  const SharedBytes c = std::move(a);
  CHECK(c.view() == "other");
  CHECK(SharedBytes().view().empty());
  CHECK(SharedBytes().footprint() == 0);
}

TEST_CASE("shared bytes: appending single bytes allocates rarely, and no more than predicted",
          "[unit][bytes]") {
  SharedBytes bytes;
  std::string model;
  int moves = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t foretold = bytes.footprint_after_append(1);
    const char* before = bytes.view().data();
    const char next = static_cast<char>(i);
    bytes.append({&next, 1});
    model.push_back(next);
    moves += bytes.view().data() != before ? 1 : 0;
    REQUIRE(bytes.footprint() <= foretold);
  }
  CHECK(bytes.view() == model);
  CHECK(moves < 40);
}

TEST_CASE("shared bytes: a large value grows in its own block, and leaves other owners alone",
          "[unit][bytes]") {
  MemoryAccount account;
  SharedBytes bytes = SharedBytes::copy_of(std::string(1 << 20, 'a'), &account);
  bytes.append(std::string(1 << 20, 'b'), &account);
  CHECK(account.blocks == bytes.footprint());
  SharedBytes other = bytes;
  bytes.append(std::string(3 << 20, 'c'), &account);
  CHECK(other.view() == std::string(1 << 20, 'a') + std::string(1 << 20, 'b'));
  CHECK(bytes.view() == std::string(other.view()) + std::string(3 << 20, 'c'));
  CHECK(account.blocks == bytes.footprint() + other.footprint());
  other = {};
  CHECK(account.blocks == bytes.footprint());
}

TEST_CASE("byte buffer: a large part is shared without a copy, and stays when the buffer goes",
          "[unit][bytes]") {
  ByteBuffer buffer;
  const std::string value(1 << 20, 'v');
  buffer.append("head");
  while (buffer.size() < value.size() + 4) {
    const auto [room, size] = buffer.room(value.size() + 4);
    REQUIRE(size > 0);
    std::memcpy(room, value.data() + buffer.size() - 4, size);
    buffer.commit(size);
  }
  CHECK(buffer.capacity() == value.size() + 4);  // Exactly the announced size.
  const std::string_view part = buffer.view().substr(4);
  REQUIRE(buffer.mostly(part));
  CHECK_FALSE(buffer.mostly(buffer.view().substr(0, 4)));
  CHECK_FALSE(buffer.mostly(value));
  SharedBytes shared = buffer.share(part);
  CHECK(shared.view().data() == part.data());
  buffer.clear();
  CHECK(shared.view() == value);
  CHECK(shared.footprint() >= value.size());
}

TEST_CASE("byte buffer: bytes behind a shared part can be kept", "[unit][bytes]") {
  ByteBuffer buffer;
  buffer.append("valuerest");
  const SharedBytes value = buffer.share(buffer.view().substr(0, 5));
  buffer.erase_front(5);
  buffer.append("!");
  CHECK(buffer.view() == "rest!");
  CHECK(value.view() == "value");
}

TEST_CASE("byte buffer: an announced length takes no memory", "[unit][bytes]") {
  ByteBuffer buffer;
  buffer.append("head");
  buffer.room(std::size_t{1} << 40);
  CHECK(buffer.capacity() < (1 << 20));
}

TEST_CASE("reply queue: bytes leave in the order in which they came, in any pieces",
          "[unit][bytes]") {
  testing::Prng prng(7);
  ReplyQueue queue;
  ReplyQueue behind;
  std::string model;
  std::string sent;
  const auto drain = [&](std::size_t most) {
    std::array<std::string_view, 3> pieces;
    std::size_t left = most;
    const std::size_t count = queue.gather(pieces);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < count && left > 0; ++i) {
      const std::size_t part = std::min(left, pieces[i].size());
      sent.append(pieces[i].substr(0, part));
      taken += part;
      left -= part;
    }
    queue.consume(taken);
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string text(prng.below(40), static_cast<char>('a' + i % 26));
    switch (prng.below(5)) {
      case 0:
        queue.add(text), model += text;
        break;
      case 1:
        queue.add_byte(7), model += '\7';
        break;
      case 2: {
        const std::string large(ReplyQueue::kShareBytes + prng.below(3) - 1, 'L');
        queue.add(SharedBytes::copy_of(large)), model += large;
        break;
      }
      case 3:
        behind.add(text);
        behind.add(SharedBytes::copy_of(std::string(ReplyQueue::kShareBytes, 'M')));
        queue.append(behind);
        REQUIRE(behind.empty());
        model += text + std::string(ReplyQueue::kShareBytes, 'M');
        break;
      default:
        drain(prng.below(20'000));
    }
    REQUIRE(queue.size() == model.size() - sent.size());
  }
  while (!queue.empty())
    drain(100'000);
  CHECK(sent == model);
}

TEST_CASE("reply queue: one value, referred to many times, costs little each time",
          "[unit][bytes]") {
  for (const std::size_t bytes : {64UL, 1000UL, ReplyQueue::kShareBytes - 1, 100'000UL}) {
    INFO(bytes);
    MemoryAccount account;
    const SharedBytes value = SharedBytes::copy_of(std::string(bytes, 'v'), &account);
    ReplyQueue queue;
    for (int i = 0; i < 12'000; ++i) {
      queue.add_u64(bytes);
      queue.add(value);
    }
    CHECK(queue.size() == 12'000 * (8 + bytes));
    // The capacity of a vector may be twice its size.
    CHECK(queue.memory() < 24'000 * (8 + ReplyQueue::kPieceBytes) + ReplyQueue::kManyBytes);
    CHECK(account.blocks == value.footprint());
  }
}

TEST_CASE("memory account: a block counts once, until its last reference goes", "[unit][bytes]") {
  MemoryAccount account;
  {
    SharedBytes first = SharedBytes::copy_of("hello", &account);
    const SharedBytes second = first;
    CHECK(account.blocks == first.footprint());
    CHECK(first.freed_alone() == 0);
    first = SharedBytes();
    CHECK(account.blocks == second.footprint());
    CHECK(second.freed_alone() == second.footprint());
    KeptBytes kept;
    kept.assign(second, &account);
    CHECK(account.only_unread() == 0);
    kept.assign(SharedBytes::copy_of("other", &account), &account);
    CHECK(account.only_unread() == second.footprint());
    ByteBuffer buffer(&account);
    buffer.append(std::string(1000, 'b'));
    CHECK(account.blocks > second.footprint() + 1000);
  }
  CHECK(account.blocks == 0);
  CHECK(account.kept == 0);
}

}  // namespace
}  // namespace muster
