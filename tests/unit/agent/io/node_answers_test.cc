#include "agent/io/node_answers.h"

#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "agent/logs/log_file.h"
#include "rendezvous/rounds/limits.h"
#include "tests/support/temp_folder.h"

namespace muster::testing {

struct NodeAnswersTest : TempFolder {
  std::string path = (dir / "stdout.log").string();

  /// Appends numbered lines until the file has got `bytes` more.
  void write(LogFile& file, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes)
      text += "line " + std::to_string(lines++) + "\n";
    file.append(text);
    written += text;
  }
  int lines = 0;
  std::string written;
};

TEST_CASE_METHOD(NodeAnswersTest, "node answers: a piece of a file", "[unit][agent]") {
  std::ofstream(path) << std::string(kMaxPieceBytes + 5, 'x') << "end";
  NodeAnswered piece = read_piece(path, 0);
  CHECK(piece.bytes == std::string(kMaxPieceBytes, 'x'));
  CHECK((piece.offset == 0 && piece.size == static_cast<std::int64_t>(kMaxPieceBytes) + 8));
  piece = read_piece(path, -3);
  CHECK((piece.bytes == "end" && piece.offset == piece.size - 3));
  piece = read_piece(path, piece.size + 7);  // Another program has truncated the file.
  CHECK((piece.bytes.empty() && piece.offset == piece.size && piece.error.empty()));
  CHECK(read_piece(path, -1'000'000).offset == 0);
  CHECK_THAT(read_piece((dir / "none").string(), 0).error, Catch::Contains("cannot read"));
}

TEST_CASE_METHOD(NodeAnswersTest, "node answers: a follower loses nothing when a log is cut",
                 "[unit][agent]") {
  LogFile file(path, LogFile::Begin::Append, {.max_bytes = kMinLogLimitBytes});
  std::string read;
  std::int64_t position = 0;
  const auto follow = [&] {
    for (bool more = true; more;) {
      const NodeAnswered piece = read_piece(path, position, *file.cut());
      REQUIRE(piece.error.empty());
      CHECK(piece.offset == position);
      read += piece.bytes;
      position = piece.offset + static_cast<std::int64_t>(piece.bytes.size());
      more = position < piece.size;
      REQUIRE((!more || !piece.bytes.empty()));
    }
  };
  for (int i = 0; i < 50; ++i) {
    write(file, 7000);
    follow();
  }
  CHECK(file.cut()->removed_bytes() > 2 * kMinLogLimitBytes);
  CHECK(read == written);
}

TEST_CASE_METHOD(NodeAnswersTest,
                 "node answers: a follower that is too late reads how many bytes were removed",
                 "[unit][agent]") {
  LogFile file(path, LogFile::Begin::Append, {.max_bytes = kMinLogLimitBytes});
  write(file, 20'000);
  std::string read = read_piece(path, 0, *file.cut()).bytes;
  CHECK(read == written);
  auto position = static_cast<std::int64_t>(read.size());
  for (int i = 0; i < 50; ++i)
    write(file, 7000);
  const NodeAnswered piece = read_piece(path, position, *file.cut());
  const std::string marker = removal_marker(file.cut()->removed_bytes());
  REQUIRE(piece.bytes.substr(0, marker.size()) == marker);
  const std::string rest = piece.bytes.substr(marker.size());
  CHECK(written.substr(written.size() - rest.size()) == rest);
  CHECK(piece.offset + static_cast<std::int64_t>(piece.bytes.size()) == piece.size);
  CHECK(piece.size == static_cast<std::int64_t>(written.size()));
  // A reader from the beginning gets the head, then the marker.
  const NodeAnswered head = read_piece(path, 0, *file.cut());
  CHECK(head.bytes == written.substr(0, head.bytes.size()));
  position = static_cast<std::int64_t>(head.bytes.size());
  CHECK(read_piece(path, position, *file.cut()).bytes == piece.bytes);
}

TEST_CASE_METHOD(NodeAnswersTest,
                 "node answers: the last bytes of an attempt come before the next attempt",
                 "[unit][agent]") {
  const auto part = [&](int attempt, std::int64_t position, const std::string& text) {
    const std::string file = (dir / std::to_string(attempt)).string();
    std::ofstream(file) << text;
    return LogPart{{file}, position, attempt};
  };
  NodeAnswered piece = read_first({part(1, 5, "beginTraceback"), part(2, 0, "again")});
  CHECK((piece.bytes == "Traceback" && piece.attempt == 1 && piece.offset == 5));
  piece = read_first({part(1, 14, "beginTraceback"), part(2, 0, ""), part(3, 0, "again")});
  CHECK((piece.bytes == "again" && piece.attempt == 3 && piece.offset == 0));
  piece = read_first({part(1, 3, "all"), part(2, 0, "")});
  CHECK((piece.bytes.empty() && piece.attempt == 2 && piece.error.empty()));
  piece = read_first({{{(dir / "removed").string()}, 7, 1}, part(2, 0, "again")});
  CHECK((piece.bytes == "again" && piece.attempt == 2 && piece.error.empty()));
}

}  // namespace muster::testing
