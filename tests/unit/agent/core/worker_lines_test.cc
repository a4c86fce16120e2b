#include "agent/core/worker_lines.h"

#include <vector>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

std::vector<WorkerMessage> all_of(WorkerLines& lines, std::string_view bytes) {
  std::vector<WorkerMessage> all;
  lines.add(bytes);
  while (auto message = lines.next())
    all.push_back(*message);
  return all;
}

std::string why_closed(std::string_view bytes) {
  WorkerLines lines(2);
  all_of(lines, bytes);
  return std::string(lines.error());
}

constexpr std::string_view kHello = "{\"type\":\"hello\",\"local_rank\":1}\n";
const LocalRank kOne{1};

TEST_CASE("worker lines: the messages of a worker", "[unit][worker_channel]") {
  WorkerLines lines(2);
  CHECK_FALSE(lines.rank());
  CHECK(all_of(lines, kHello).empty());
  CHECK(lines.rank() == kOne);
  const auto said = all_of(lines,
                           "{\"type\":\"progress\",\"step\":17}\n{\"type\":\"progress\"}\n"
                           "{\"type\":\"progress_end\"}\n");
  CHECK(said == std::vector<WorkerMessage>{WorkerProgress{.rank = kOne, .step = 17},
                                           WorkerProgress{.rank = kOne},
                                           WorkerProgress{.rank = kOne, .ends = true}});
  CHECK_FALSE(lines.ends_itself());
  CHECK(all_of(lines, "{\"type\":\"ends_itself\"}\n").empty());
  CHECK(lines.ends_itself() == kOne);
  CHECK(lines.error().empty());
}

TEST_CASE("worker lines: the answer to a notice", "[unit][worker_channel]") {
  WorkerLines lines(2);
  const auto said = all_of(lines, std::string(kHello) +
                                      "{\"type\":\"saved\"}\n{\"type\":\"saved\",\"id\":3}\n"
                                      "{\"type\":\"saved\",\"id\":\"3\"}\n");
  CHECK(said == std::vector<WorkerMessage>{WorkerSaved{.rank = kOne},
                                           WorkerSaved{.rank = kOne, .id = 3},
                                           WorkerSaved{.rank = kOne}});
  CHECK_FALSE(lines.ends_itself());
}

TEST_CASE("worker lines: where the bytes are cut does not matter", "[unit][worker_channel]") {
  const std::string text = std::string(kHello) + "{\"type\":\"progress\",\"step\":-3}\n{\"ty";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    WorkerLines lines(2);
    std::vector<WorkerMessage> said;
    for (std::size_t at = 0; at < text.size(); at += piece)
      for (const WorkerMessage& message : all_of(lines, text.substr(at, piece)))
        said.push_back(message);
    CHECK(said == std::vector<WorkerMessage>{WorkerProgress{.rank = kOne, .step = -3}});
    CHECK(lines.error().empty());
  }
}

TEST_CASE("worker lines: the messages that close the connection", "[unit][worker_channel]") {
  const std::string hello(kHello);
  CHECK(why_closed("hello\n") == "a line is no JSON object with a type");
  CHECK(why_closed("\n") == "a line is no JSON object with a type");
  CHECK(why_closed("[1]\n") == "a line is no JSON object with a type");
  CHECK(why_closed("{\"type\":5}\n") == "a line is no JSON object with a type");
  CHECK(why_closed("{\"type\":\"progress\"}\n") == "a message before hello");
  CHECK(why_closed("{\"type\":\"ends_itself\"}\n") == "a message before hello");
  CHECK(why_closed("{\"type\":\"saved\"}\n") == "a message before hello");
  const std::string bad_hello = "a hello without a local rank of this node, or a second one";
  CHECK(why_closed(hello + hello) == bad_hello);
  for (const char* rank : {"2", "-1", "1.0", "\"1\"", "null", "4294967297", "18446744073709551615"})
    CHECK(why_closed("{\"type\":\"hello\",\"local_rank\":" + std::string(rank) + "}\n") ==
          bad_hello);
}

TEST_CASE("worker lines: no message is read after one that closes the connection",
          "[unit][worker_channel]") {
  WorkerLines lines(2);
  CHECK(all_of(lines, std::string(kHello) + "no\n{\"type\":\"progress\"}\n").empty());
  CHECK(all_of(lines, "{\"type\":\"progress\"}\n").empty());
  CHECK_FALSE(lines.error().empty());
}

TEST_CASE("worker lines: messages of a later version are skipped", "[unit][worker_channel]") {
  WorkerLines lines(2);
  const auto said = all_of(lines, "{\"type\":\"news\"}\n" + std::string(kHello) +
                                      "{\"type\":\"progress\",\"step\":18446744073709551615}\n"
                                      "{\"type\":\"progress\",\"step\":2.5,\"more\":[{}]}\n");
  const WorkerProgress without_step{.rank = kOne};
  CHECK(said == std::vector<WorkerMessage>{without_step, without_step});
  CHECK(lines.error().empty());
}

TEST_CASE("worker lines: a line has a limit", "[unit][worker_channel]") {
  const std::string line = "{\"type\":\"news\"}";
  const std::string longest = line + std::string(WorkerLines::kMaxLineBytes - line.size(), ' ');
  CHECK(why_closed(longest + "\n").empty());
  CHECK(why_closed(longest).empty());
  CHECK(why_closed(longest + " \n") == "a line is too long");
  CHECK(why_closed(longest + " ") == "a line is too long");
}

}  // namespace
}  // namespace muster
