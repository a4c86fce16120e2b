#include "agent/core/connecting_sockets.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("connecting sockets: those of the kernel's table that wait for an answer",
          "[unit][agent]") {
  // Linux 6.1. The first row listens, the third one is connected.
  CHECK(connecting_sockets(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
            "timeout inode\n"
            "   0: 00000000:7364 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0     "
            "   0 101 1 0 100 0 0 10 0\n"
            "   1: 0100007F:9C40 02017F0A:733C 02 00000001:00000000 01:00000064 00000001     0     "
            "   0 102 2 0 200 40 0 1 7\n"
            "   2: 0100007F:9C41 0100007F:733C 01 00000000:00000000 00:00000000 00000000     0     "
            "   0 103 1 0 20 4 30 10 -1\n") ==
        std::vector<ConnectingSocket>{{"10.127.1.2:29500", 102}});
  const auto remote_of = [](const std::string& address) {
    const auto found = connecting_sockets("   1: 0:0 " + address +
                                          " 02 0:0 01:00000064 00000001 0 0 7 2 0 200 40 0 1 7");
    return found.empty() ? "" : found.front().remote;
  };
  CHECK(remote_of("000000FD000000000000000001000000:733C") == "[fd00::1]:29500");
  CHECK(remote_of("00000000000000000000000001000000:0001") == "[::1]:1");
  CHECK(remote_of("B80D0120020001000400030006000500:0050") == "[2001:db8:1:2:3:4:5:6]:80");
  CHECK(remote_of("0000000000000000FFFF00000200000A:733C") == "10.0.0.2:29500");
  for (const char* text : {"", "7F:1", "0100007F", "0100007G:1", "0100007F:x", "0100007F0:1"})
    CHECK(remote_of(text).empty());
  CHECK(connecting_sockets("").empty());
  CHECK(connecting_sockets("1: a b 02 c").empty());
}

TEST_CASE("connecting sockets: only what is still there after a while is reported, once",
          "[unit][agent]") {
  const UnansweredDetector::Seen one{{LocalRank{1}, "a:1"}};
  const UnansweredDetector::Seen two{{LocalRank{1}, "a:1"}, {LocalRank{2}, "a:1"}};
  UnansweredDetector detector;
  CHECK(detector.pause() == 5s);
  CHECK(detector.observe({}).empty());
  CHECK(detector.pause() == 10s);
  CHECK(detector.observe(one).empty());
  CHECK(detector.pause() == 3s);
  CHECK(detector.observe({}).empty());  // It was answered.
  CHECK(detector.pause() == 20s);
  CHECK(detector.observe(one).empty());
  CHECK(detector.observe(one) == one);
  CHECK(detector.observe(one).empty());
  CHECK(detector.observe(two).empty());
  CHECK(detector.pause() == 3s);
  CHECK(detector.observe(two) == UnansweredDetector::Seen{{LocalRank{2}, "a:1"}});
  for (int i = 0; i < 20; ++i)
    CHECK(detector.observe(two).empty());
  CHECK(detector.pause() == 10min);
  detector.begin_attempt();
  CHECK(detector.pause() == 5s);
  UnansweredDetector::Seen many;
  for (int rank = 0; rank < 100; ++rank)
    many.emplace(LocalRank{rank}, "a:1");
  detector.observe(many);
  CHECK(detector.observe(many).size() == UnansweredDetector::kMaxReported);
}

}  // namespace
}  // namespace muster
