// Failures around the log thread: consoles, pipes, files and disks.

#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "tests/system/agent/log_pump_fixture.h"

namespace muster {
namespace {

std::atomic<bool> refuses_inotify_instances = false;
std::atomic<int> refused_inotify_instances = 0;

}  // namespace
}  // namespace muster

// Takes the place of the C library's function in this program. To use up all instances of the user
// would take them from the tests that run at the same time.
extern "C" int inotify_init1(int flags) noexcept {
  if (muster::refuses_inotify_instances) {
    ++muster::refused_inotify_instances;
    errno = EMFILE;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_inotify_init1, flags));
}

namespace muster {
namespace {

using testing::Clock;
using testing::kPatience;
using testing::LogPumpTest;
using testing::write_all;
using namespace std::chrono_literals;

TEST_CASE_METHOD(
    LogPumpTest,
    "log_pump: finish waits only to its limit for a grandchild's pipe, which is still read later",
    "[unit][agent]") {
  OwnedFd end = tap(0);
  write_all(end.get(), "worker\n");
  const FinishReport report = finish(50ms);
  CHECK_FALSE(report.all_read);
  CHECK(report.stderr_tails.at(LocalRank{0}) == "worker\n");
  write_all(end.get(), "grandchild\n");  // The grandchild gets no SIGPIPE, and its line is shown.
  CHECK(shown(err, 18) == "worker\ngrandchild\n");
  CHECK(finish().all_read);  // The next attempt does not wait for it.
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: a console without a reader costs no log line and ends no process",
                 "[unit][agent]") {
  const OwnedFd log = open_log("a");
  follow("a", 0);
  const OwnedFd end = tap(0);
  out.read_end.reset();
  err.read_end.reset();
  const std::string line(1000, 'x');
  for (int i = 0; i < 3000; ++i) {  // More bytes than all pipes and buffers on the way hold.
    write_all(log.get(), line + "\n");
    write_all(end.get(), line + "\n");
  }
  write_all(end.get(), "last\n");
  CHECK(std::filesystem::file_size(path("a")) == 3'003'000);
  CHECK_THAT(finish(100ms).stderr_tails.at(LocalRank{0}), Catch::EndsWith("last\n"));
  CHECK(flush().lost_bytes == 0);  // Without a reader no byte counts as lost.
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a console that nobody reads delays only the display",
                 "[unit][agent]") {
  const OwnedFd log = open_log("a");
  follow("a", 0);
  const std::string line(1000, 'x');
  for (int i = 0; i < 8000; ++i)
    write_all(log.get(), line + "\n");  // The log is a file, so it never slows the worker.
  OwnedFd end = tap(1);
  write_all(end.get(), "boom\n");
  CHECK(shown(err, 5) == "boom\n");
  sync();  // The log thread still answers the supervision.
  end.reset();
  auto report = begin_finish();
  auto flushed = begin_flush();
  CHECK(flushed.wait_for(1500ms) == std::future_status::timeout);
  pump->hurry();
  REQUIRE(report.wait_for(kPatience) == std::future_status::ready);
  CHECK(report.get().stderr_tails.at(LocalRank{1}) == "boom\n");
  REQUIRE(flushed.wait_for(kPatience) == std::future_status::ready);
  const std::size_t lost = flushed.get().lost_bytes;
  const std::size_t all = lost + out.read_all().size();  // Some lines have no prefix yet.
  CHECK(all >= std::size_t{8000} * 1001);
  CHECK(all <= std::size_t{8000} * 1004);
  CHECK(err.read_all() ==
        "[muster: " + std::to_string(lost) + " bytes could not be shown on stdout]\n");
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: a full console blocks the workers, and muster's own lines do not",
                 "[unit][agent]") {
  const OwnedFd end = tap(0);
  ::fcntl(end.get(), F_SETFL, O_NONBLOCK);
  const std::string block(64 << 10, 'x');
  std::size_t written = 0;
  for (int tries = 0; tries < 200; ++tries) {  // Until the pipe takes no more bytes.
    const ssize_t n = ::write(end.get(), block.data(), block.size());
    if (n > 0) tries = 0;
    if (n > 0) written += static_cast<std::size_t>(n);
    if (n < 0) std::this_thread::sleep_for(1ms);
    REQUIRE(written < std::size_t{16} << 20);
  }
  constexpr int kLines = 100'000;
  for (int i = 0; i < kLines; ++i)
    pump->print(LogStream::Err, std::string(99, 'm') + "\n");
  pump->print(LogStream::Out, "seen\n");
  CHECK(shown(out, 5) == "seen\n");
  std::string text = shown(err, written);
  pump->print(LogStream::Err, "last\n");
  auto report = begin_finish(1ms);
  while (report.wait_for(1ms) != std::future_status::ready)
    text += err.read_all();
  auto flushed = begin_flush();
  while (flushed.wait_for(1ms) != std::future_status::ready)
    text += err.read_all();
  text += err.read_all();
  CHECK(static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x')) == written);
  CHECK_THAT(text, Catch::Contains(" of its own lines are missing here"));
  CHECK_THAT(text, Catch::EndsWith("last\n"));
}

// Reads the console in small pieces, and calls `flood` before each piece, until all streams were
// seen, or until the console has shown what `streams` streams can fill it with at one turn each.
std::set<char> streams_in_one_cycle(const testing::Pipe& console, std::size_t streams,
                                    const std::function<void()>& flood) {
  constexpr std::size_t kMaxBefore = std::size_t{3} << 19;   // The console and its pipe are full.
  constexpr std::size_t kMaxPerTurn = std::size_t{1} << 19;  // More than kBytesPerTurn.
  std::set<char> seen;
  std::vector<char> piece(64 << 10);
  std::size_t shown = 0;
  while (seen.size() < streams && shown < kMaxBefore + streams * kMaxPerTurn) {
    flood();
    pollfd request{console.read_end.get(), POLLIN, 0};
    REQUIRE(::poll(&request, 1, std::chrono::milliseconds(kPatience).count()) == 1);
    const ssize_t n = ::read(console.read_end.get(), piece.data(), piece.size());
    REQUIRE(n > 0);
    shown += static_cast<std::size_t>(n);
    for (const char c : std::string_view(piece.data(), static_cast<std::size_t>(n)))
      if (c >= '0') seen.insert(c);
  }
  return seen;
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: each stream has its turn while all streams flood a slow console",
                 "[unit][agent]") {
  std::vector<OwnedFd> pipes;
  std::size_t files = 0;
  SECTION("pipes, more than one epoll_wait() of a small array returns") {
    for (int rank = 0; rank < 70; ++rank)
      pipes.push_back(tap(rank));
  }
  SECTION("files") {
    files = 4;
  }
  SECTION("both") {
    for (int rank = 0; rank < 2; ++rank)
      pipes.push_back(tap(rank));
    files = 2;
  }
  // Each stream consists of lines of one character of its own.
  const auto lines_of = [](char c) {
    std::string lines;
    for (int line = 0; line < 640; ++line)
      lines += std::string(99, c) + "\n";
    return lines;
  };
  std::vector<std::string> blocks;
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    ::fcntl(pipes[i].get(), F_SETFL, O_NONBLOCK);
    blocks.push_back(lines_of(static_cast<char>('0' + i)));
  }
  for (std::size_t i = 0; i < files; ++i) {
    const std::string name(1, static_cast<char>('w' + i));
    const OwnedFd log = open_log(name);
    for (int block = 0; block < 100; ++block)  // More than the test reads.
      write_all(log.get(), lines_of(name[0]));
    pump->follow({.stream = LogStream::Err, .file = path(name)});
  }
  const auto fill_pipes = [&] {
    for (std::size_t i = 0; i < pipes.size(); ++i)
      while (::write(pipes[i].get(), blocks[i].data(), blocks[i].size()) > 0) {
      }
  };
  const std::size_t streams = pipes.size() + files;
  CHECK(streams_in_one_cycle(err, streams, fill_pipes).size() == streams);
  err.read_end.reset();
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a slow console gets everything in the end",
                 "[unit][agent]") {
  const OwnedFd log = open_log("a");
  follow("a", 0);
  std::string expected;
  for (int i = 0; i < 300'000; ++i) {
    const std::string number = std::to_string(i) + "\n";
    expected += "[0]" + number;
  }
  for (int i = 0; i < 300'000; i += 1000) {
    std::string block;
    for (int k = 0; k < 1000; ++k)
      block += std::to_string(i + k) + "\n";
    write_all(log.get(), block);
  }
  auto report = begin_finish();
  CHECK(shown(out, expected.size()) == expected);
  REQUIRE(report.wait_for(kPatience) == std::future_status::ready);
  CHECK(report.get().all_read);
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: a slow console gets the rest of earlier attempts in the end, too",
                 "[unit][agent]") {
  constexpr int kWorkers = 8;
  constexpr std::size_t kBytes = 1'000'000;  // Fits into the worker's pipe.
  const std::string block(kBytes, 'x');
  for (int rank = 0; rank < kWorkers; ++rank)
    write_all(tap(rank).get(), block);
  const OwnedFd held = tap(kWorkers);  // A process of another descent holds this pipe.
  write_all(held.get(), "held\n");
  pump->end_attempt([](const auto&) {});
  auto report = begin_finish();
  CHECK(report.wait_for(200ms) == std::future_status::timeout);
  std::string text = shown(err, kWorkers * kBytes + 5);
  CHECK(static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x')) == kWorkers * kBytes);
  CHECK_THAT(text, Catch::Contains("held\n"));
  REQUIRE(report.wait_for(kPatience) == std::future_status::ready);
  CHECK(report.get().all_read);
  CHECK(flush().lost_bytes == 0);
}

TEST_CASE_METHOD(
    LogPumpTest,
    "log_pump: the unread rest of earlier attempts is counted when nobody waits for it",
    "[unit][agent]") {
  constexpr std::size_t kBytes = 1'000'000;
  const std::string block(kBytes, 'x');
  for (int i = 0; i < 4; ++i)
    write_all(pipe({.console = LogStream::Out}).get(), block);
  pump->end_attempt([](const auto&) {});
  [[maybe_unused]] const auto report = begin_finish();
  auto flushed = begin_flush();
  CHECK(flushed.wait_for(200ms) == std::future_status::timeout);
  pump->hurry();
  REQUIRE(flushed.wait_for(kPatience) == std::future_status::ready);
  const std::size_t lost = flushed.get().lost_bytes;
  CHECK(lost + out.read_all().size() == 4 * kBytes);
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a file that is truncated is read from its beginning",
                 "[unit][agent]") {
  const OwnedFd log = open_log("a");
  follow("a", 0);
  write_all(log.get(), "before\n");
  CHECK(shown(out, 10) == "[0]before\n");
  REQUIRE(::ftruncate(log.get(), 0) == 0);
  write_all(log.get(), "new\n");
  CHECK(shown(out, 7) == "[0]new\n");
}

// As logrotate's copytruncate, and `: > stdout.log`.
TEST_CASE_METHOD(LogPumpTest, "log_pump: a log written here that is truncated is shown once",
                 "[unit][agent]") {
  const auto file = log_file("stdout.log", {.max_bytes = kMinLogLimitBytes});
  OwnedFd end = pipe({.file = file});
  pump->follow({.file = path("stdout.log"), .prefix = LinePrefix("[0]"), .written_here = file});
  write_all(end.get(), "before, and longer\n");
  CHECK(shown(out, 22) == "[0]before, and longer\n");
  std::filesystem::resize_file(path("stdout.log"), 0);
  write_all(end.get(), "one\n");
  CHECK(shown(out, 7) == "[0]one\n");
  std::filesystem::resize_file(path("stdout.log"), 0);
  write_all(end.get(), "two\n");
  CHECK(shown(out, 7) == "[0]two\n");
  SECTION("and then no more") {}
  SECTION("and then once more, to a part that was shown") {
    std::filesystem::resize_file(path("stdout.log"), 2);
  }
  end.reset();
  CHECK(finish().all_read);
  CHECK(out.read_all().empty());
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: a file that has a log's old name is not cut",
                 "[unit][agent]") {
  const auto file = log_file("stdout.log", {.max_bytes = kMinLogLimitBytes});
  const std::string rotated = path("stdout.log.1");
  {
    const OwnedFd end = pipe({.file = file});
    write_all(end.get(), "first\n");
    sync();
    std::filesystem::rename(path("stdout.log"), rotated);
    const std::string other(5 * kMinLogLimitBytes, 'o');
    write_all(open_log("stdout.log").get(), other);
    for (int i = 0; i < 20; ++i)
      write_all(end.get(), std::string(kMinLogLimitBytes / 4 - 1, 'x') + "\n");
    CHECK(finish(0s).all_read == false);
    CHECK(std::filesystem::file_size(path("stdout.log")) == other.size());
  }
  CHECK(finish().all_read);
  CHECK(std::filesystem::file_size(path("stdout.log")) == 5 * kMinLogLimitBytes);
  CHECK(std::filesystem::file_size(rotated) < 2 * kMinLogLimitBytes);
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: the other logs are read although one cannot be opened",
                 "[unit][agent]") {
  follow("no/such/dir/a", 0);
  follow("b", 1);
  write_all(open_log("b").get(), "x\n");
  CHECK(finish().all_read);
  CHECK(out.read_all() == "[1]x\n");
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: stop without finish shows the lines that are in the files",
                 "[unit][agent]") {
  write_all(open_log("a").get(), "x\ny");
  follow("a", 0);
  CHECK(pump->stop(kPatience));
  CHECK(out.read_all() == "[0]x\n[0]y\n");
  CHECK(pump->stop(kPatience));  // A second call has no effect.
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: stop while a finish waits answers both", "[unit][agent]") {
  const OwnedFd held = tap(0);
  auto report = begin_finish(kPatience);
  CHECK_FALSE(pump->stop(50ms));
  REQUIRE(report.wait_for(0s) == std::future_status::ready);
  CHECK_FALSE(report.get().all_read);
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: stop returns although the log thread hangs",
                 "[unit][agent]") {
  // This job does not return, like a write to a dead disk.
  auto release = std::make_shared<std::promise<void>>();
  const std::weak_ptr<std::promise<void>> alive = release;
  std::promise<void> begun;
  pump->run([wait = release->get_future().share(), release, &begun] {
    begun.set_value();
    wait.wait();
  });
  REQUIRE(begun.get_future().wait_for(kPatience) == std::future_status::ready);
  bool called = false;
  // Such a message may own a log file. To close it can hang as well.
  std::promise<std::thread::id> deleted_by;
  const auto deleter = [&deleted_by](const int* number) {
    delete number;
    deleted_by.set_value(std::this_thread::get_id());
  };
  pump->run([&called, file = std::shared_ptr<int>(new int(0), deleter)] { called = true; });
  pump->print(LogStream::Err, "not lost\n");
  while (pump->blocked_for() < 20ms)
    std::this_thread::yield();
  const auto lines = pump->abandon();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]->own.text == "not lost\n");
  pump.reset();
  auto deleter_id = deleted_by.get_future();
  CHECK(deleter_id.wait_for(0s) == std::future_status::timeout);
  release->set_value();
  release.reset();
  const auto deadline = Clock::now() + kPatience;
  while (!alive.expired() && Clock::now() < deadline)
    std::this_thread::yield();
  CHECK(alive.expired());  // The thread has continued and deleted its messages.
  CHECK_FALSE(called);
  REQUIRE(deleter_id.wait_for(kPatience) == std::future_status::ready);
  CHECK(deleter_id.get() != std::this_thread::get_id());
}

TEST_CASE_METHOD(
    LogPumpTest,
    "log_pump: a log thread that works or waits for a processor does not count as blocked",
    "[unit][agent]") {
  std::atomic<bool> works = false;
  std::atomic<bool> end = false;
  std::promise<void> ended;
  pump->run(
      [&] {
        works = true;
        while (!end) {
        }
      },
      [&] { ended.set_value(); });
  while (!works)
    std::this_thread::yield();
  const auto until = Clock::now() + 50ms;
  while (Clock::now() < until)
    CHECK(pump->blocked_for() == 0s);
  end = true;
  ended.get_future().wait();
}

TEST_CASE_METHOD(LogPumpTest,
                 "log_pump: the time of a blocked write is counted for each stream anew",
                 "[unit][agent]") {
  // Each write to /dev/full calls on_full, which waits here like a write to a slow disk.
  std::array<std::promise<void>, 2> begun;
  std::array<std::promise<void>, 2> may_end;
  std::atomic<std::size_t> writes = 0;
  const auto on_full = [&](const std::string&) {
    const std::size_t i = writes++;
    begun.at(i).set_value();
    may_end.at(i).get_future().wait();
  };
  std::promise<void> start;  // Until both pipes have bytes: then one turn reads both.
  pump->run([&start] { start.get_future().wait(); });
  for (int i = 0; i < 2; ++i) {
    auto file =
        std::make_shared<LogFile>("/dev/full", LogFile::Begin::Append,
                                  LogFileOptions{.ends_when_full = true, .on_full = on_full});
    write_all(pipe({.file = file}).get(), "x");
  }
  start.set_value();
  REQUIRE(begun[0].get_future().wait_for(kPatience) == std::future_status::ready);
  while (pump->blocked_for() < 50ms)
    std::this_thread::yield();
  const auto first_ends = Clock::now();
  may_end[0].set_value();
  REQUIRE(begun[1].get_future().wait_for(kPatience) == std::future_status::ready);
  Duration blocked(0);
  while ((blocked = pump->blocked_for()) == 0s)
    std::this_thread::yield();
  CHECK(blocked <= Clock::now() - first_ends);
  may_end[1].set_value();
  finish();
}

TEST_CASE("log_mailbox: messages of many threads come out in their order, and none is lost",
          "[unit][agent]") {
  LogMailbox mailbox;
  constexpr int kThreads = 4;
  constexpr int kMessages = 5000;
  std::vector<std::thread> writers;
  for (int i = 0; i < kThreads; ++i)
    writers.emplace_back([&mailbox, i] {
      for (int k = 0; k < kMessages; ++k)
        mailbox.print(LogStream::Err, std::to_string(i) + ":" + std::to_string(k));
    });
  std::array<int, kThreads> next{};
  for (int count = 0; count < kThreads * kMessages;) {
    const auto message = mailbox.take();
    if (!message) continue;
    ++count;
    const auto writer = static_cast<std::size_t>(message->own.text[0] - '0');
    REQUIRE(std::stoi(message->own.text.substr(2)) == next[writer]++);
  }
  for (std::thread& writer : writers)
    writer.join();
  CHECK(mailbox.is_empty());
  CHECK(mailbox.take_dropped() == 0);
}

TEST_CASE("log_mailbox: text that nobody takes is bounded and counted", "[unit][agent]") {
  LogMailbox mailbox;
  const std::string text(1 << 18, 'x');
  for (int i = 0; i < 10; ++i)
    mailbox.print(LogStream::Err, text);
  CHECK(mailbox.take_dropped() == 6);
  CHECK(mailbox.take());
  mailbox.print(LogStream::Err, text);
  CHECK(mailbox.take_dropped() == 0);
}

TEST_CASE_METHOD(LogPumpTest, "log_pump: without inotify files are followed all the same",
                 "[unit][agent]") {
  refused_inotify_instances = 0;
  refuses_inotify_instances = true;
  start();
  refuses_inotify_instances = false;
  REQUIRE(refused_inotify_instances > 0);
  const OwnedFd log = open_log("a");
  follow("a", 0);
  write_all(log.get(), "one\n");
  CHECK(shown(out, 7) == "[0]one\n");
  write_all(log.get(), "two\n");
  CHECK(shown(out, 7) == "[0]two\n");
  CHECK(finish().all_read);
}

}  // namespace
}  // namespace muster
