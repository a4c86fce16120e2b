#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <sstream>
#include <thread>

#include "base/system/clock.h"
#include "tests/support/prng.h"
#include "tests/system/agent/log_pump_fixture.h"

namespace muster {
namespace {

using testing::kPatience;
using testing::LogPumpTest;
using testing::write_all;
using namespace std::chrono_literals;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: lines of a file come to the console while it is written",
                 "[unit][agent]") {
  const OwnedFd log = open_log("stdout.log");
  follow("stdout.log", 0);
  write_all(log.get(), "one\n");
  CHECK(shown(out, 7) == "[0]one\n");
  write_all(log.get(), "two\nthree\n");
  CHECK(shown(out, 16) == "[0]two\n[0]three\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a file that is not there yet is waited for",
                 "[unit][agent]") {
  follow("stdout.log", 0);
  sync();  // The log thread has begun to follow before the file is written.
  write_all(open_log("stdout.log").get(), "late\n");
  CHECK(shown(out, 8) == "[0]late\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: stdout and stderr go to consoles of their own",
                 "[unit][agent]") {
  follow("stdout.log", 0, LogStream::Out);
  follow("stderr.log", 0, LogStream::Err);
  write_all(open_log("stdout.log").get(), "o\n");
  write_all(open_log("stderr.log").get(), "e\n");
  const FinishReport report = finish();
  CHECK(report.all_read);
  CHECK(out.read_all() == "[0]o\n");
  CHECK(err.read_all() == "[0]e\n");
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: muster's lines stand below the lines that workers wrote before them",
                 "[unit][agent]") {
  const OwnedFd log = open_log("a");
  follow("a", 1, LogStream::Err);
  const OwnedFd end = tap(0);
  for (int i = 0; i < 300; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    write_all(end.get(), line);
    write_all(log.get(), line);
    pump->catch_up(kPatience);
    pump->print(LogStream::Err, "own\n");
    const std::string text = shown(err, 2 * line.size() + 3 + 4);
    REQUIRE_THAT(text, Catch::Contains("[1]" + line) && Catch::EndsWith("own\n"));
  }
  // More bytes than the console has room for: muster's line waits no longer than the limit. Bytes
  // that were not read by then appear below it.
  write_all(end.get(), std::string(900'000, 'x'));
  pump->catch_up(10ms);
  pump->print(LogStream::Err, "own\n");
  const std::string text = shown(err, 900'005);
  CHECK(std::count(text.begin(), text.end(), 'x') == 900'000);
  CHECK((text.find("x\nown\n") != std::string::npos && text.size() == 900'005));
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a line of muster's own begins on a line of its own",
                 "[unit][agent]") {
  const OwnedFd end = tap(0);
  write_all(end.get(), "no newline");
  CHECK(shown(err, 10) == "no newline");
  pump->print(LogStream::Err, "own\n");
  pump->print(LogStream::Err, "own\n");
  CHECK(shown(err, 9) == "\nown\nown\n");
  pump->print(LogStream::Out, "out\n");
  CHECK(shown(out, 4) == "out\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: finish shows all that is in the files, and ends the lines",
                 "[unit][agent]") {
  const OwnedFd a = open_log("a");
  const OwnedFd b = open_log("b");
  follow("a", 0);
  follow("b", 1);
  write_all(a.get(), "whole\nunfinished");
  write_all(b.get(), "also");
  CHECK(finish().all_read);
  const std::string text = out.read_all();
  CHECK_THAT(text, Catch::Contains("[0]whole\n") && Catch::Contains("[0]unfinished\n") &&
                       Catch::Contains("[1]also\n"));
  CHECK(text.size() == 9 + 14 + 8);
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: after finish a stream is forgotten, and a new one begins",
                 "[unit][agent]") {
  const OwnedFd old_log = open_log("old");
  follow("old", 0);
  write_all(old_log.get(), "old\n");
  finish();
  write_all(old_log.get(), "too late\n");
  follow("new", 0);
  write_all(open_log("new").get(), "new\n");
  finish();
  CHECK(out.read_all() == "[0]old\n[0]new\n");
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: an unfinished line is shown when no more of its stream comes",
                 "[unit][agent]") {
  limits = {.quiet = 20ms};
  const OwnedFd log = open_log("a");
  follow("a", 0);
  write_all(log.get(), "name? ");
  CHECK(shown(out, 9) == "[0]name? ");
  write_all(log.get(), "x\n");
  CHECK(shown(out, 2) == "x\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: bytes of a tapped pipe are shown at once and unchanged",
                 "[unit][agent]") {
  const OwnedFd end = tap(0);
  CHECK(end.get() > 2);
  CHECK((::fcntl(end.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((::fcntl(end.get(), F_GETFL) & O_NONBLOCK) == 0);  // The worker's end must block.
  write_all(end.get(), "no newline");
  CHECK(shown(err, 10) == "no newline");
  write_all(end.get(), "\r\x01\xff\n");
  CHECK(shown(err, 4) == "\r\x01\xff\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: finish returns the end of a worker's stderr",
                 "[unit][agent]") {
  OwnedFd end = tap(3);
  std::string expected;
  for (int i = 0; i < 100; ++i)
    write_all(end.get(), "line " + std::to_string(i) + "\n");
  for (int i = 80; i < 100; ++i)
    expected += "line " + std::to_string(i) + "\n";
  end.reset();
  const FinishReport report = finish();
  CHECK(report.all_read);
  CHECK(report.stderr_tails == std::map<LocalRank, std::string>{{LocalRank{3}, expected}});
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: the end of a hidden rank's stderr is kept, and not shown",
                 "[unit][agent]") {
  {
    const OwnedFd end = tap(0, false);
    write_all(end.get(), "secret\n");
  }
  CHECK(finish().stderr_tails.at(LocalRank{0}) == "secret\n");
  CHECK(err.read_all().empty());
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a log file gets every byte, and its end is known",
                 "[unit][agent]") {
  const auto file = log_file("stderr.log");
  const std::string text = std::string(10'000, 'x') + "\nboom\n";
  {
    const OwnedFd end = pipe({.tail_of = LocalRank{0}, .file = file});
    write_all(end.get(), text);
  }
  CHECK(finish().stderr_tails.at(LocalRank{0}) == "boom\n");
  CHECK(contents(path("stderr.log")) == text);
  CHECK(err.read_all().empty());
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a log file that is written here is shown line by line",
                 "[unit][agent]") {
  const auto file = log_file("stdout.log");
  const OwnedFd end = pipe({.file = file});
  pump->follow({.file = path("stdout.log"),
                .prefix = LinePrefix("[0]"),
                .written_here = file,
                .limits = {.quiet = 1h, .hold = 1h}});
  write_all(end.get(), "one\n");
  CHECK(shown(out, 7) == "[0]one\n");
  write_all(end.get(), "two\nthree");
  CHECK(shown(out, 7) == "[0]two\n");
}

// Returns what the console shows of "90598\n" and "other\n" if the log thread is blocked while the
// second half of the first line comes. No value: the test's own thread was late, so the log thread
// may have shown the first half already.
std::optional<std::string> shown_by_a_late_thread(LogPumpTest& test) {
  constexpr Duration kQuiet = 50ms;
  const auto file_a = test.log_file("a");
  const auto file_b = test.log_file("b");
  const OwnedFd a = test.pipe({.file = file_a});
  const OwnedFd b = test.pipe({.file = file_b});
  for (const auto& file : {file_a, file_b})
    test.pump->follow({.file = file->path(),
                       .prefix = LinePrefix("[0]"),
                       .written_here = file,
                       .limits = {.quiet = kQuiet}});
  const Instant begun = now();
  write_all(a.get(), "905");
  while (contents(test.path("a")).empty() && now() < begun + kPatience)
    std::this_thread::yield();
  Instant held_up_at{};
  std::promise<void> is_over;
  test.pump->run(
      [&] {  // This runs on the log thread, which reads nothing at that time.
        held_up_at = now();
        write_all(b.get(), "other\n");
        write_all(a.get(), "98\n");
        std::this_thread::sleep_for(2 * kQuiet);
      },
      [&] { is_over.set_value(); });
  is_over.get_future().wait();
  test.finish();
  std::string text = test.out.read_all();
  std::filesystem::remove(test.path("a"));
  std::filesystem::remove(test.path("b"));
  if (held_up_at - begun >= kQuiet) return std::nullopt;
  return text;
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: lines stay whole although the log thread had no processor for long",
                 "[unit][agent]") {
  std::optional<std::string> text;
  for (int turn = 0; turn < 100 && !text; ++turn)
    text = shown_by_a_late_thread(*this);
  REQUIRE(text.has_value());
  CHECK((*text == "[0]other\n[0]90598\n" || *text == "[0]90598\n[0]other\n"));
}

TEST_CASE_METHOD(
    LogPumpTest,
    "log_pump: a log file over its limit loses its middle, and the console loses nothing",
    "[unit][agent]") {
  const auto file = log_file("stdout.log", {.max_bytes = kMinLogLimitBytes});
  std::string expected;
  std::string text;
  for (int i = 0; i < 100'000; ++i) {
    text += std::to_string(i) + "\n";
    expected += "[0]" + std::to_string(i) + "\n";
  }
  std::thread worker;
  {
    // The reader comes first: the log thread may read the pipe before it takes the next call.
    pump->follow({.file = path("stdout.log"), .prefix = LinePrefix("[0]"), .written_here = file});
    const int end = pipe({.file = file}).release();
    worker = std::thread([end, &text] {
      write_all(end, text);
      ::close(end);
    });
  }
  CHECK(shown(out, expected.size()) == expected);
  worker.join();
  finish();
  const std::string log = contents(path("stdout.log"));
  CHECK(log.size() < 2 * kMinLogLimitBytes);
  CHECK_THAT(log, Catch::StartsWith("0\n1\n2\n") && Catch::Contains("bytes were removed here]\n") &&
                      Catch::EndsWith("\n99999\n"));
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: streams of an attempt that is over are read and closed",
                 "[unit][agent]") {
  const auto count_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  sync();
  const auto before = count_descriptors();
  for (int i = 0; i < 50; ++i) {
    const std::string name = std::to_string(i);
    std::weak_ptr<LogFile> weak;
    {
      auto file = log_file(name);
      weak = file;
      const OwnedFd end = pipe({.tail_of = LocalRank{0}, .file = file});
      pump->follow({.file = path(name), .prefix = LinePrefix(), .written_here = file});
      write_all(end.get(), name + "\n");
    }
    pump->end_attempt([](const auto&) {});
    CHECK(shown(out, name.size() + 1) == name + "\n");
  }
  const auto deadline = testing::Clock::now() + kPatience;
  while (count_descriptors() > before && testing::Clock::now() < deadline)
    sync();
  CHECK(count_descriptors() == before);
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a new attempt does not show the old one's tail",
                 "[unit][agent]") {
  {
    const OwnedFd end = tap(0);
    write_all(end.get(), "old\n");
  }
  finish();
  tap(0).reset();
  CHECK(finish().stderr_tails.at(LocalRank{0}).empty());
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: lines that pass a filter are copied, with the prefix",
                 "[unit][agent]") {
  for (int rank = 0; rank < 2; ++rank)
    pump->follow({.stream = LogStream::Out,
                  .file = path(std::to_string(rank)),
                  .prefix = LinePrefix("[" + std::to_string(rank) + "]"),
                  .filters = {"loss", "acc"},
                  .filtered_file = path("filtered"),
                  .limits = {.max_line_bytes = 16}});
  write_all(open_log("0").get(), "epoch 1\nloss 0.5\nLoss\nacc 9");
  finish();
  CHECK(contents(path("filtered")) == "[0]loss 0.5\n[0]acc 9\n");

  // Filters see a line as a whole, also if it comes in pieces.
  pump->follow({.stream = LogStream::Out,
                .file = path("1"),
                .prefix = LinePrefix("[1]"),
                .filters = {"needle"},
                .filtered_file = path("filtered1"),
                .limits = {.max_line_bytes = 16}});
  write_all(open_log("1").get(), "0123456789abcneedle\nother\n");
  finish();
  CHECK(contents(path("filtered1")) == "[1]0123456789abcneedle\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: the file of filtered lines has the limits of a log file",
                 "[unit][agent]") {
  const auto filter_into = [this](const std::string& file, const LogFileOptions& options) {
    pump->follow({.stream = LogStream::Out,
                  .file = path("a"),
                  .prefix = LinePrefix(""),
                  .filters = {"loss"},
                  .filtered_file = file,
                  .filtered_options = options});
  };
  std::promise<std::string> full;
  filter_into(path("filtered"), {.max_bytes = 64 << 10});
  filter_into("/dev/full", {.ends_when_full = true,
                            .on_full = [&full](const std::string& why) { full.set_value(why); }});
  std::string text;
  for (int i = 0; i < 20'000; ++i)
    text += "loss " + std::to_string(i) + "\n";
  out.read_end.reset();
  write_all(open_log("a").get(), text);
  finish();
  const std::string kept = contents(path("filtered"));
  CHECK(kept.size() <= 64 << 10);
  CHECK_THAT(kept, Catch::StartsWith("loss 0\n") && Catch::EndsWith("loss 19999\n"));
  auto why = full.get_future();
  REQUIRE(why.wait_for(0s) == std::future_status::ready);
  CHECK_THAT(why.get(), Catch::Contains("the disk of the logs is full"));
}

TEST_CASE_METHOD(
    LogPumpTest,
    "log_pump: an empty filter copies every line, and without a filter no line is copied",
    "[unit][agent]") {
  for (const char* name : {"all", "none"})
    pump->follow({.stream = LogStream::Out,
                  .file = path("a"),
                  .prefix = LinePrefix(""),
                  .filters = name == std::string("all") ? std::vector<std::string>{""}
                                                        : std::vector<std::string>{},
                  .filtered_file = path(name)});
  write_all(open_log("a").get(), "x\n\n");
  finish();
  CHECK(contents(path("all")) == "x\n\n");
  CHECK(std::filesystem::exists(path("none")));  // torchrun creates the file, too.
  CHECK(contents(path("none")).empty());
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: the time in a prefix is the time of the line",
                 "[unit][agent]") {
  pump->follow({.stream = LogStream::Out,
                .file = path("a"),
                .prefix = LinePrefix::from_template("${time} ", {})});
  write_all(open_log("a").get(), "x\n");
  finish();
  const std::string text = out.read_all();
  REQUIRE(text.size() == 15);  // "HH:MM:SS.mmm x\n".
  CHECK(text[2] == ':');
  CHECK(text[8] == '.');
  CHECK(text.substr(12) == " x\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: lines of many writers come whole and in order",
                 "[unit][agent]") {
  limits = {.quiet = 1h, .hold = 1h};
  constexpr int kWriters = 4;
  constexpr int kLines = 3000;
  testing::Prng prng(7);
  std::vector<OwnedFd> logs;
  for (int rank = 0; rank < kWriters; ++rank) {
    logs.push_back(open_log(std::to_string(rank)));
    follow(std::to_string(rank), rank);
  }
  std::string text;
  std::size_t expected = 0;
  std::array<int, kWriters> written{};
  for (int left = kWriters * kLines; left > 0; --left) {
    std::size_t rank = prng.below(kWriters);
    while (written[rank] == kLines)
      rank = (rank + 1) % kWriters;
    std::string line = std::to_string(written[rank]++) + std::string(prng.below(200), 'x') + "\n";
    expected += 3 + line.size();
    // Writes the line in two parts, cut anywhere: it must still be shown as one.
    const std::size_t cut = prng.below(line.size());
    if (cut > 0) write_all(logs[rank].get(), line.substr(0, cut));
    write_all(logs[rank].get(), line.substr(cut));
    if (left % 64 == 0) text += out.read_all();
  }
  auto report = begin_finish();
  text += shown(out, expected - text.size());
  REQUIRE(report.wait_for(kPatience) == std::future_status::ready);
  REQUIRE(text.size() == expected);
  std::array<int, kWriters> seen{};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.size() >= 4);
    REQUIRE(line[0] == '[');
    const auto rank = static_cast<std::size_t>(line[1] - '0');
    REQUIRE(rank < kWriters);
    REQUIRE(std::stoi(line.substr(3)) == seen[rank]);
    ++seen[rank];
  }
  for (const int count : seen)
    CHECK(count == kLines);
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: a line does not continue a tapped one where both consoles are one",
                 "[unit][agent]") {
  auto started =
      LogPump::start({.stdout_fd = out.write_end.get(), .stderr_fd = out.write_end.get()});
  REQUIRE(started.has_value());
  pump = std::move(*started);
  OwnedFd end = tap(0);
  write_all(end.get(), "tapped");
  CHECK(shown(out, 6) == "tapped");
  follow("a", 1);
  write_all(open_log("a").get(), "line\n");
  CHECK(shown(out, 9) == "\n[1]line\n");  // The line does not continue "tapped".
}

}  // namespace
}  // namespace muster
