#include "base/system/log_console.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/pipe.h"
#include "tests/support/temp_folder.h"

namespace muster {
namespace {

int send_error = 0;  // The errno with which send() fails; 0: it sends.

}  // namespace
}  // namespace muster

// Takes the place of the C library's function in this program.
extern "C" ssize_t send(int fd, const void* data, size_t size, int flags) {
  if (muster::send_error != 0) {
    errno = muster::send_error;
    return -1;
  }
  return ::sendto(fd, data, size, flags, nullptr, 0);
}

namespace muster {
namespace {

using testing::Pipe;

OwnedFd temporary_file(int flags = 0) {
  std::string path = "/tmp/muster_console_XXXXXX";
  OwnedFd fd(::mkostemp(path.data(), O_CLOEXEC | flags));
  REQUIRE(fd.is_open());
  ::unlink(path.c_str());
  return fd;
}

void ignore_sigpipe() {
  ::signal(SIGPIPE, SIG_IGN);
}

TEST_CASE("log_console: appended bytes are written", "[unit][agent]") {
  Pipe pipe;
  LogConsole console(pipe.write_end.get());
  console.buffer() += "one\n";
  CHECK(console.unwritten_bytes() == 4);
  console.flush();
  CHECK(console.unwritten_bytes() == 0);
  console.buffer() += "two\n";
  console.flush();
  CHECK(pipe.read_all() == "one\ntwo\n");
}

TEST_CASE("log_console: a pipe without a reading process does not block and loses nothing",
          "[unit][agent]") {
  Pipe pipe;
  LogConsole console(pipe.write_end.get());
  std::string all;
  for (int i = 0; all.size() < (1 << 20); ++i)
    all += std::to_string(i) + "\n";
  console.buffer() += all;
  console.flush();
  CHECK(console.unwritten_bytes() > 0);
  std::string read;
  while (console.unwritten_bytes() > 0) {
    read += pipe.read_all();
    console.flush();
  }
  read += pipe.read_all();
  CHECK(read == all);
}

TEST_CASE("log_console: the flags of the descriptor that others share are left alone",
          "[unit][agent]") {
  Pipe pipe;
  const int before = ::fcntl(pipe.write_end.get(), F_GETFL);
  LogConsole console(pipe.write_end.get());
  console.buffer() += std::string(1 << 20, 'x');
  console.flush();
  CHECK(::fcntl(pipe.write_end.get(), F_GETFL) == before);
  CHECK((before & O_NONBLOCK) == 0);
}

TEST_CASE("log_console: a pipe whose reader is gone closes the console", "[unit][agent]") {
  ignore_sigpipe();
  Pipe pipe;
  LogConsole console(pipe.write_end.get());
  pipe.read_end.reset();
  console.buffer() += "x";
  console.flush();
  CHECK(console.is_closed());
  console.buffer() += "y";
  CHECK(console.unwritten_bytes() == 0);
  console.flush();
  CHECK(console.buffer().empty());
}

TEST_CASE("log_console: a pipe whose reader has gone before it is opened is closed, too",
          "[unit][agent]") {
  ignore_sigpipe();
  Pipe pipe;
  pipe.read_end.reset();
  LogConsole console(pipe.write_end.get());
  console.buffer() += "x";
  console.flush();
  CHECK(console.is_closed());
}

// The console cannot open this pipe a second time, because the pipe has no reader at that moment.
// The same happens with a pipe of another user.
TEST_CASE("log_console: it does not block either if it cannot open the console a second time",
          "[unit][agent]") {
  const testing::TempFolder folder;
  const std::string path = folder.dir / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  OwnedFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const OwnedFd writer(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(writer.is_open());
  reader.reset();
  LogConsole console(writer.get());
  reader = OwnedFd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(reader.is_open());

  const std::string all(300'000, 'x');
  console.buffer() += all;
  console.flush();
  CHECK(console.unwritten_bytes() > 0);
  std::size_t read = 0;
  std::array<char, 65536> buffer;
  for (ssize_t n = 0; (n = ::read(reader.get(), buffer.data(), buffer.size())) > 0;) {
    read += static_cast<std::size_t>(n);
    console.flush();
  }
  CHECK(console.unwritten_bytes() == 0);
  CHECK(read == all.size());
}

TEST_CASE("log_console: a terminal that is stopped does not block", "[unit][agent]") {
  const OwnedFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  REQUIRE(terminal.is_open());
  REQUIRE(::grantpt(terminal.get()) == 0);
  REQUIRE(::unlockpt(terminal.get()) == 0);
  const OwnedFd inside(::open(::ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(inside.is_open());
  LogConsole console(inside.get());
  std::string line(99, 'x');
  line += '\n';
  for (int i = 0; i < 1000; ++i)
    console.buffer() += line;
  console.flush();
  CHECK(console.unwritten_bytes() > 0);  // No process reads the other side.
  std::string shown;
  std::array<char, 65536> buffer;
  const auto pump = [&] {
    const ssize_t n = ::read(terminal.get(), buffer.data(), buffer.size());
    if (n > 0) shown.append(buffer.data(), static_cast<std::size_t>(n));
    console.flush();
  };
  for (int i = 0; i < 1'000'000 && shown.size() < std::size_t{1000} * 101; ++i)
    pump();  // The kernel moves the bytes later, so the bound is a number of tries, not a time.
  CHECK(shown.size() == std::size_t{1000} * 101);  // The terminal writes CR LF for each newline.
  CHECK((::fcntl(inside.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("log_console: a socket is written to without blocking", "[unit][agent]") {
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  OwnedFd ours(fds[0]);
  OwnedFd theirs(fds[1]);
  LogConsole console(ours.get());
  console.buffer() += std::string(8 << 20, 'x');
  console.flush();
  CHECK(console.unwritten_bytes() > 0);
  theirs.reset();
  console.flush();  // MSG_NOSIGNAL prevents SIGPIPE.
  CHECK(console.is_closed());
}

TEST_CASE("log_console: a file keeps the position that it shares", "[unit][agent]") {
  OwnedFd file = temporary_file();
  REQUIRE(::write(file.get(), "before\n", 7) == 7);
  LogConsole console(file.get());
  console.buffer() += "line\n";
  console.flush();
  REQUIRE(::write(file.get(), "after\n", 6) == 6);
  std::array<char, 64> text{};
  const ssize_t n = ::pread(file.get(), text.data(), text.size(), 0);
  CHECK(std::string(text.data(), static_cast<std::size_t>(n)) == "before\nline\nafter\n");
}

TEST_CASE("log_console: writes to /dev/full are tried again, and /dev/null accepts all bytes",
          "[unit][agent]") {
  const OwnedFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  LogConsole console(full.get());
  console.buffer() += "x";
  console.flush();
  CHECK_FALSE(console.is_closed());
  CHECK(console.is_failing());
  CHECK(console.unwritten_bytes() == 1);
  console.give_up();
  CHECK(console.unwritten_bytes() == 0);
  CHECK(console.lost_bytes() == 1);

  const OwnedFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  LogConsole nowhere(null.get());
  nowhere.buffer() += "x";
  nowhere.flush();
  CHECK_FALSE(nowhere.is_closed());
  CHECK(nowhere.unwritten_bytes() == 0);
}

TEST_CASE("log_console: a lack of memory does not close the console", "[unit][agent]") {
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  const OwnedFd ours(fds[0]);
  const OwnedFd theirs(fds[1]);
  LogConsole console(ours.get());
  for (const int error : {ENOMEM, ENOBUFS}) {
    send_error = error;
    console.buffer() += "line\n";
    console.flush();
    send_error = 0;
    REQUIRE_FALSE(console.is_closed());
    CHECK(console.is_failing());
    console.flush();
    CHECK(console.unwritten_bytes() == 0);
    std::array<char, 64> text{};
    CHECK(::recv(theirs.get(), text.data(), text.size(), MSG_DONTWAIT) == 5);
  }
}

// Limits the size of files for a while, as a full disk does.
struct FileLimit {
  explicit FileLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit limit{bytes, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before); }
  rlimit before{};
};

std::string contents(const OwnedFd& file) {
  std::string text(8 << 20, '\0');
  text.resize(static_cast<std::size_t>(::pread(file.get(), text.data(), text.size(), 0)));
  return text;
}

TEST_CASE("log_console: when a full disk has room again the output goes on", "[unit][agent]") {
  const OwnedFd file = temporary_file();
  LogConsole console(file.get());
  {
    const FileLimit limit(6);
    console.buffer() += "first\nsecond\n";
    console.flush();
    CHECK(console.is_failing());
    CHECK(contents(file) == "first\n");
  }
  console.buffer() += "third\n";
  console.flush();
  CHECK_FALSE(console.is_failing());
  CHECK(console.lost_bytes() == 0);
  CHECK(contents(file) == "first\nsecond\nthird\n");
}

TEST_CASE("log_console: output that a full disk loses is bounded and counted, and a line says so",
          "[unit][agent]") {
  const OwnedFd file = temporary_file();
  LogConsole console(file.get());
  std::size_t given = 0;
  {
    const FileLimit limit(0);
    for (int i = 0; i < 40'000; ++i) {
      const std::string line = std::string(99, 'x') + "\n";
      console.buffer() += line;
      given += line.size();
      console.flush();
      REQUIRE(console.unwritten_bytes() <= LogConsole::kMaxKeptBytes);
    }
  }
  console.buffer() += "again\n";
  console.flush();
  CHECK(console.unwritten_bytes() == 0);
  const std::string lost = std::to_string(console.lost_bytes());
  const std::string text = contents(file);
  CHECK_THAT(text, Catch::EndsWith("x\n[muster: " + lost +
                                   " bytes are missing here: they could not be written]\nagain\n"));
  CHECK(static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x')) / 99 * 100 +
            console.lost_bytes() ==
        given);
}

TEST_CASE("log_console: a descriptor that is not open is a closed console", "[unit][agent]") {
  LogConsole console(-1);
  CHECK(console.is_closed());
  console.buffer() += "x";
  console.flush();
  CHECK(console.unwritten_bytes() == 0);
}

TEST_CASE("log_console: two descriptors of one console are recognised", "[unit][agent]") {
  Pipe pipe;
  Pipe other;
  const OwnedFd copy(::dup(pipe.write_end.get()));
  CHECK(is_one_console(pipe.write_end.get(), copy.get()));
  CHECK_FALSE(is_one_console(pipe.write_end.get(), other.write_end.get()));
  CHECK_FALSE(is_one_console(pipe.write_end.get(), -1));

  const OwnedFd file = temporary_file();
  const OwnedFd file_copy(::dup(file.get()));
  CHECK(is_one_console(file.get(), file_copy.get()));
  // The same file opened twice: each descriptor has its own position.
  const OwnedFd opened_again(
      ::open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(opened_again.is_open());
  CHECK_FALSE(is_one_console(file.get(), opened_again.get()));
}

TEST_CASE(
    "log_console: another user's terminal that nobody reads keeps no writer, and loses nothing",
    "[unit][agent]") {
  if (::geteuid() != 0) return;
  int main_end = -1;
  int terminal = -1;
  REQUIRE(::openpty(&main_end, &terminal, nullptr, nullptr, nullptr) == 0);
  const OwnedFd reader(main_end);
  const OwnedFd writer(terminal);
  termios raw{};
  REQUIRE(::tcgetattr(terminal, &raw) == 0);
  ::cfmakeraw(&raw);
  raw.c_oflag |= OPOST | ONLCR;  // A newline takes two bytes: there may be room for one only.
  REQUIRE(::tcsetattr(terminal, TCSANOW, &raw) == 0);
  REQUIRE(::fchmod(terminal, 0600) == 0);
  ::setfsuid(65534);
  LogConsole console(terminal);
  ::setfsuid(0);
  std::string expected;
  for (int i = 0; i < 20000; ++i) {
    console.buffer() += "line " + std::to_string(i) + "\n";
    expected += "line " + std::to_string(i) + "\r\n";
  }
  const auto begin = std::chrono::steady_clock::now();
  console.flush();  // Nobody reads.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  CHECK(console.unwritten_bytes() > 0);
  REQUIRE(::fcntl(main_end, F_SETFL, O_NONBLOCK) == 0);
  std::string shown;
  std::array<char, 65536> chunk{};
  while (shown.size() < expected.size()) {
    console.flush();
    const ssize_t n = ::read(main_end, chunk.data(), chunk.size());
    REQUIRE((n > 0 || errno == EAGAIN));
    if (n > 0) shown.append(chunk.data(), static_cast<std::size_t>(n));
    REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  }
  CHECK(shown == expected);
  CHECK(console.unwritten_bytes() == 0);
  CHECK((::fcntl(terminal, F_GETFL) & O_NONBLOCK) == 0);
}

}  // namespace
}  // namespace muster
