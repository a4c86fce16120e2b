#include "agent/posix/shim_protocol.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <catch2/catch.hpp>

#include "agent/posix/report_queue.h"

namespace muster {
namespace {

struct Pair {
  int shim = -1;
  int agent = -1;
  Pair() {
    const auto pair = make_shim_pair();
    REQUIRE(pair.has_value());
    shim = pair->first;
    agent = pair->second;
  }
  ~Pair() {
    ::close(shim);
    ::close(agent);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
};

TEST_CASE("shim protocol: a command of any size is read as it was packed", "[unit][agent]") {
  WorkerCommand command{"/usr/bin/python3", {"python3", "-u", "", "a b"}, {"A=1", "B="}, {}, {}};
  command.env.push_back("BIG=" + std::string(1 << 20, 'x'));
  command.log_files = {"/logs/0/stdout.log", ""};
  const Result<OwnedFd> fd = pack_command(command);
  REQUIRE(fd.has_value());
  const auto packed = read_command(fd->get());
  REQUIRE(packed);
  CHECK(packed->path == command.path);
  CHECK(packed->log_files[0] == command.log_files[0]);
  CHECK(packed->log_files[1] == command.log_files[1]);
  std::vector<std::string> argv, env;
  for (char* const* s = packed->argv.data(); *s != nullptr; ++s)
    argv.emplace_back(*s);
  for (char* const* s = packed->env.data(); *s != nullptr; ++s)
    env.emplace_back(*s);
  CHECK(argv == command.argv);
  CHECK(env == command.env);
}

TEST_CASE("shim protocol: a limit of the file size stops only a huge command", "[unit][agent]") {
  WorkerCommand command{"/bin/true", {"true"}, {"BIG=" + std::string(200'000, 'x')}, {3}, {}};
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 1024;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Result<OwnedFd> fd = pack_command(command);
  command.env.push_back("HUGE=" + std::string(64 << 20, 'x'));  // More than a pipe takes.
  const Result<OwnedFd> none = pack_command(command);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE(fd.has_value());
  {
    const auto packed = read_command(fd->get());
    REQUIRE(packed);
    CHECK(std::string(packed->path) == "/bin/true");
    CHECK(std::string(packed->env[0]) == command.env[0]);
    CHECK(packed->cpu_mask.size() == sizeof(unsigned long));
  }
  CHECK_FALSE(none.has_value());
}

TEST_CASE("shim protocol: the CPUs are read as the kernel's mask", "[unit][agent]") {
  const auto mask = [](std::set<int> cpus) {
    const Result<OwnedFd> fd =
        pack_command({"/bin/true", {"true", "x"}, {"A=1"}, std::move(cpus), {}});
    REQUIRE(fd.has_value());
    const auto packed = read_command(fd->get());
    REQUIRE(packed);
    CHECK(std::string(packed->path) == "/bin/true");  // The mask does not shift the strings.
    CHECK(std::string(packed->argv[1]) == "x");
    const auto bytes = packed->cpu_mask;
    std::vector<unsigned long> words(bytes.size() / sizeof(unsigned long));
    if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
  };
  CHECK(mask({}).empty());
  CHECK(mask({0}) == std::vector<unsigned long>{1});
  CHECK(mask({1, 63, 64, 200}) == std::vector<unsigned long>{2 | 1UL << 63, 1, 0, 1UL << 8});
}

TEST_CASE("shim protocol: a mask that claims more than the file holds is refused",
          "[unit][agent]") {
  const Result<OwnedFd> fd = pack_command({"/bin/true", {"true"}, {}, {5}, {}});
  REQUIRE(fd.has_value());
  constexpr off_t kMaskWordsAt = 16;
  for (const std::uint64_t words : {100UL, 1UL << 61, ~0UL}) {
    REQUIRE(::pwrite(fd->get(), &words, sizeof words, kMaskWordsAt) == sizeof words);
    CHECK_FALSE(read_command(fd->get()));
  }
}

TEST_CASE("shim protocol: a file without a whole command is refused", "[unit][agent]") {
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK_FALSE(read_command(null));
  ::close(null);
  const Result<OwnedFd> fd = pack_command({"/bin/true", {"true"}, {}, {}, {}});
  REQUIRE(fd.has_value());
  REQUIRE(::ftruncate(fd->get(), 30) == 0);  // Some of the strings are missing.
  CHECK_FALSE(read_command(fd->get()));
}

TEST_CASE("shim protocol: requests carry descriptors, close-on-exec", "[unit][agent]") {
  const Pair pair;
  ShimRequest request{.kind = ShimRequest::Kind::Start, .worker = 7};
  request.streams = 0b110;
  std::vector<OwnedFd> outs;
  for (int i = 0; i < 2; ++i)
    outs.emplace_back(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  REQUIRE_FALSE(send_message(pair.agent, request, outs));
  const auto received = receive_message<ShimRequest>(pair.shim);
  REQUIRE(received.has_value());
  CHECK(received->message.worker == 7);
  CHECK(received->message.streams == 0b110);
  REQUIRE(received->fds.size() == 2);
  CHECK((::fcntl(received->fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("shim protocol: an empty socket, its end and a malformed message are different errors",
          "[unit][agent]") {
  Pair pair;
  CHECK(receive_message<ShimRequest>(pair.shim).error().value() == EAGAIN);
  REQUIRE(::send(pair.agent, "x", 1, 0) == 1);
  CHECK(receive_message<ShimRequest>(pair.shim).error().value() == EPROTO);
  ::shutdown(pair.agent, SHUT_RDWR);
  CHECK(receive_message<ShimRequest>(pair.shim).error().value() == ENOTCONN);
}

// Unread reports reset the connection: recvmsg() returns ECONNRESET before it returns the request.
TEST_CASE("shim protocol: the last request of an agent arrives although it left reports unread",
          "[unit][agent]") {
  Pair pair;
  REQUIRE_FALSE(send_message(pair.shim, ShimReport{.kind = ShimReport::Kind::Ping}));
  ShimRequest last_word{.kind = ShimRequest::Kind::End};
  last_word.number = SIGINT;
  REQUIRE_FALSE(send_message(pair.agent, last_word));
  ::close(std::exchange(pair.agent, -1));
  const auto received = receive_message<ShimRequest>(pair.shim);
  REQUIRE(received.has_value());
  CHECK(received->message.number == SIGINT);
  CHECK(receive_message<ShimRequest>(pair.shim).error().value() == ENOTCONN);
}

TEST_CASE("shim protocol: reports come back as they were", "[unit][agent]") {
  const Pair pair;
  ShimReport report{.kind = ShimReport::Kind::Exited, .worker = 3};
  report.pid = 4711;
  report.wall_ms = 1'234'567'890'123'456'789;
  REQUIRE_FALSE(send_message(pair.shim, report));
  const auto received = receive_message<ShimReport>(pair.agent);
  REQUIRE(received.has_value());
  CHECK(std::memcmp(&received->message, &report, sizeof report) == 0);
}

TEST_CASE(
    "report queue: waiting signals of one number become one report, in the place of the first",
    "[unit][agent]") {
  const Pair pair;
  ReportQueue queue;
  queue.add_signal(15);
  queue.add({.kind = ShimReport::Kind::Exited, .worker = 3});
  queue.add_signal(2);
  queue.add_signal(15);
  CHECK_FALSE(queue.send_to(pair.shim));
  CHECK(queue.is_empty());
  const auto next = [&pair] {
    const auto report = receive_message<ShimReport>(pair.agent);
    REQUIRE(report.has_value());
    return report->message;
  };
  const ShimReport first = next();
  CHECK(first.status == 15);
  CHECK(first.count == 2);
  CHECK(next().worker == 3);
  CHECK(next().status == 2);
}

}  // namespace
}  // namespace muster
