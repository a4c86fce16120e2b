#include "rendezvous/server/received_bytes.h"

#include <memory>
#include <string>

#include <catch2/catch.hpp>

using namespace muster;

namespace {

struct ReceivedTest {
  MemoryAccount account;
  std::unique_ptr<ReceivedBytes> received = std::make_unique<ReceivedBytes>(account);
};

}  // namespace

TEST_CASE_METHOD(ReceivedTest, "received bytes: their memory counts until they are gone",
                 "[unit][limits]") {
  CHECK_FALSE(received->count(0));
  received->append(std::string(1'000, 'x'));
  CHECK(received->count(7));
  CHECK(account.kept >= 1'007);
  CHECK_FALSE(received->count(7));  // Nothing has changed.
  received->clear();
  CHECK(received->count(7));
  CHECK(account.kept == 7);
  CHECK_FALSE(received->count(0));  // No bytes are left, so nothing can be refused for them.
  CHECK(account.kept == 0);

  received->append("more");
  received->count(0);
  received.reset();
  CHECK(account.kept == 0);
  CHECK(account.blocks == 0);
}

TEST_CASE_METHOD(ReceivedTest,
                 "received bytes: the memory of a large request ends with the request",
                 "[unit][limits]") {
  constexpr std::size_t kWanted = 100'000;
  received->append("head");
  CHECK(received->top_up(std::string(kWanted, 'v'), kWanted) == kWanted - 4);
  CHECK(received->size() == kWanted);
}

TEST_CASE_METHOD(ReceivedTest, "received bytes: the bytes after a request need no new memory",
                 "[unit][limits]") {
  received->append(std::string(1'000, 'x'));
  received->erase_front(996);
  const std::size_t capacity = received->buffer().capacity();
  REQUIRE(capacity > 10);
  CHECK(received->top_up(std::string(2 * capacity, 'n'), 10) == capacity - 4);
  CHECK(received->buffer().capacity() == capacity);
}
