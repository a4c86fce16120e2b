#include "rendezvous/server/reply_sender.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

struct SenderTest {
  std::array<int, 2> ends = pair();
  ConnectionShared shared{{}, {}, {}, {}, C10dDoor({})};
  ClientSocket socket{OwnedFd(ends[0]), {}};
  OwnedFd peer{ends[1]};
  ReplySender sender{shared, socket};

  static std::array<int, 2> pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    return ends;
  }
  /// All bytes that the peer can read now.
  std::string read_all() {
    std::string all;
    std::array<char, 4096> some{};
    for (ssize_t got = 0; (got = ::read(peer.get(), some.data(), some.size())) > 0;)
      all.append(some.data(), static_cast<std::size_t>(got));
    return all;
  }
  /// Serves requests with so many bytes of replies.
  void serve(std::size_t bytes) {
    sender.begin_serving();
    sender.next().add(std::string(bytes, 'r'));
    sender.end_serving();
    sender.flush();
  }
  /// More than the socket takes at once.
  static constexpr std::size_t kMuch = 4 << 20;
};

}  // namespace

TEST_CASE_METHOD(SenderTest, "reply sender: a client that reads has no unread replies",
                 "[conformance][store]") {
  serve(100);
  CHECK_FALSE(sender.has_unread());
  CHECK(sender.unread_memory() == 0);
  CHECK(shared.replies.empty());
  CHECK(shared.traffic.sent_bytes == 100);
  CHECK(read_all() == std::string(100, 'r'));
}

TEST_CASE_METHOD(SenderTest, "reply sender: what the socket does not take is sent later, in order",
                 "[conformance][store]") {
  serve(kMuch);
  REQUIRE(sender.has_unread());
  CHECK(shared.replies.empty());  // The next connection must not send these replies.
  sender.begin_serving();
  CHECK(&sender.next() == &sender.unread());
  sender.next().add("last");
  sender.end_serving();
  sender.send_byte('!');
  std::string got;
  while (sender.has_unread()) {
    got += read_all();
    sender.send_unread();
  }
  got += read_all();
  CHECK(got == std::string(kMuch, 'r') + "last!");
  CHECK(shared.traffic.sent_bytes == kMuch + 5);
}

TEST_CASE_METHOD(SenderTest, "reply sender: a client that has gone gets no more replies",
                 "[conformance][store]") {
  serve(kMuch);
  peer.reset();
  sender.send_unread();
  CHECK(sender.broken());
  CHECK_FALSE(sender.has_unread());
  sender.send_byte('!');
  CHECK_FALSE(sender.has_unread());
  serve(100);
  CHECK_FALSE(sender.has_unread());
  CHECK(shared.replies.empty());
}

}  // namespace muster
