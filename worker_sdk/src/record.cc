#include "muster/record.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <string_view>
#include <typeinfo>

namespace muster {
namespace {

constexpr int kMaxFrames = 64;
constexpr std::array kFatalSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr unsigned kHandlerSeconds = 10;
// backtrace() needs more than MINSIGSTKSZ.
constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;

// The paths are set before any failure, because a signal handler must not allocate memory or read
// the environment.
struct Settings {
  std::array<char, 4096> error_file{};
  std::array<char, 4200> partial_file{};
};

Settings& settings() {
  static Settings instance;
  return instance;
}

// Only the first failure is recorded. Later failures, such as those of other threads that follow
// from it, do not overwrite the file.
std::atomic_flag failure_recorded = ATOMIC_FLAG_INIT;

// How bytes that are not ASCII are written: kept if the text is UTF-8, replaced otherwise.
enum class HighBytes { Keep, Replace };

// Writes a text as the content of a JSON string. Safe in signal handlers if `put` is.
template <class Put>
void escape_json(std::string_view text, HighBytes high_bytes, Put put) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      put('\\');
      put(c);
    } else if (c == '\n') {
      put('\\');
      put('n');
    } else if (byte < 0x20 || byte == 0x7f) {
      for (const char escape : {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]})
        put(escape);
    } else {
      put(byte < 0x80 || high_bytes == HighBytes::Keep ? c : '?');
    }
  }
}

// Writes bytes to a descriptor, as JSON text or as they are. Safe in signal handlers.
class RawWriter {
 public:
  explicit RawWriter(int fd) : fd_(fd) {}
  ~RawWriter() { flush(); }
  RawWriter(const RawWriter&) = delete;
  RawWriter& operator=(const RawWriter&) = delete;

  void plain(std::string_view text) {
    for (const char c : text)
      put(c);
  }

  void json(std::string_view text) {
    escape_json(text, HighBytes::Replace, [this](char c) { put(c); });
  }

  void number(long long value) {
    std::array<char, 20> digits{};
    std::size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0);
    while (count > 0)
      put(digits[--count]);
  }

  void flush() {
    std::size_t done = 0;
    while (done < used_) {
      const ssize_t n = ::write(fd_, buffer_.data() + done, used_ - done);
      if (n <= 0) break;  // For example, a full disk. The launcher reports that the file is torn.
      done += static_cast<std::size_t>(n);
    }
    used_ = 0;
  }

 private:
  void put(char c) {
    if (used_ == buffer_.size()) flush();
    buffer_[used_++] = c;
  }

  int fd_;
  std::array<char, 512> buffer_{};
  std::size_t used_ = 0;
};

int open_partial_file() {
  if (settings().error_file[0] == '\0') return -1;
  // The name is known to others: what lies there is removed, and never followed or written.
  ::unlink(settings().partial_file.data());
  return ::open(settings().partial_file.data(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

void put_in_place(int fd) {
  ::close(fd);
  ::rename(settings().partial_file.data(), settings().error_file.data());
}

// Checks UTF-8 as in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto at = [&](std::size_t k) {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u;
    };
    const unsigned first = at(0);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    if (length == 0) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((at(k) & 0xc0) != 0x80) return false;
    if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) ||
        (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f))
      return false;
    i += length;
  }
  return true;
}

std::string demangle(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && readable ? readable.get() : name;
}

// Returns a frame such as "./train(_ZN3foo3barEv+0x12) [0x55…]" with its symbol demangled.
std::string readable_frame(const char* frame) {
  std::string text = frame;
  const std::size_t open = text.find('(');
  const std::size_t plus = text.find('+', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || plus == std::string::npos || plus == open + 1) return text;
  return text.substr(0, open + 1) + demangle(text.substr(open + 1, plus - open - 1).c_str()) +
         text.substr(plus);
}

std::string stack_text() {
  std::array<void*, kMaxFrames> frames{};
  const int count = ::backtrace(frames.data(), kMaxFrames);
  const std::unique_ptr<char*, decltype(&std::free)> symbols(
      ::backtrace_symbols(frames.data(), count), &std::free);
  std::string text;
  for (int i = 0; symbols && i < count; ++i)
    text += readable_frame(symbols.get()[i]) + "\n";
  return text;
}

std::string describe_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "std::terminate() was called without an exception";
  std::string name = demangle(type->name());
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    return name + ": " + error.what();
  } catch (...) {
    return name;
  }
}

// Ends the process with status 1, as Python does after an exception. If core files are enabled,
// ends it by SIGABRT instead, which writes a core file.
[[noreturn]] void end_process() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur > 0) {
    ::signal(SIGABRT, SIG_DFL);
    std::abort();
  }
  ::_exit(1);
}

[[noreturn]] void on_terminate() {
  if (failure_recorded.test_and_set()) {
    // Another thread is about to end the process, with the same status.
    for (;;)
      ::pause();
  }
  // If no frame catches the exception, the stack is not unwound yet: this is the stack of the
  // throw.
  const std::string stack = stack_text();
  const std::string message = describe_exception();
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n%s", message.c_str(), stack.c_str());
  std::fflush(stderr);
  if (const int fd = open_partial_file(); fd >= 0) {
    const std::string text = format_error_file(
        {.message = message, .stack = message + "\n" + stack, .timestamp_s = std::time(nullptr)});
    RawWriter(fd).plain(text);
    put_in_place(fd);
  }
  end_process();
}

std::string_view signal_text(int number) {
  switch (number) {
    case SIGSEGV:
      return "SIGSEGV: an address that is not mapped or not allowed";
    case SIGBUS:
      return "SIGBUS: memory that is not there (a full /dev/shm is the usual reason)";
    case SIGFPE:
      return "SIGFPE: an integer division by zero or overflow";
    case SIGILL:
      return "SIGILL: an instruction that this processor does not have";
    default:
      return "SIGABRT: the program stopped itself";
  }
}

volatile std::sig_atomic_t fatal_signal = 0;

// Called if on_fatal_signal() does not finish in time, because backtrace() waits for a lock that
// the failing code holds (of the loader or the allocator). The process then ends by its first
// signal, without the file.
void on_alarm(int /*number*/) {
  ::signal(fatal_signal, SIG_DFL);
  ::raise(fatal_signal);
}

void limit_handler_time(int number) {
  fatal_signal = number;
  struct sigaction action {};
  action.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t unblocked;
  ::sigemptyset(&unblocked);
  ::sigaddset(&unblocked, SIGALRM);
  ::sigaddset(&unblocked, number);
  ::pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr);
  ::alarm(kHandlerSeconds);
}

void on_fatal_signal(int number) {
  limit_handler_time(number);
  if (!failure_recorded.test_and_set()) {
    if (const int fd = open_partial_file(); fd >= 0) {
      // Only backtrace_symbols_fd() is safe here. It writes to a descriptor, so the frames go
      // through a pipe.
      std::array<void*, kMaxFrames> frames{};
      const int count = ::backtrace(frames.data(), kMaxFrames);
      RawWriter writer(fd);
      writer.plain(R"({"message": {"message": ")");
      writer.json(signal_text(number));
      writer.plain(R"(", "extraInfo": {"py_callstack": ")");
      std::array<int, 2> channel{};
      // Usually, 64 frames of symbol names fit into a pipe (64 KiB). The rest is cut off.
      if (::pipe2(channel.data(), O_CLOEXEC | O_NONBLOCK) == 0) {
        ::backtrace_symbols_fd(frames.data(), count, channel[1]);
        ::close(channel[1]);
        std::array<char, 512> piece{};
        for (ssize_t n = 0; (n = ::read(channel[0], piece.data(), piece.size())) > 0;)
          writer.json({piece.data(), static_cast<std::size_t>(n)});
        ::close(channel[0]);
      }
      writer.plain(R"(", "timestamp": ")");
      writer.number(::time(nullptr));
      writer.plain(R"("}}})");
      writer.flush();
      put_in_place(fd);
    }
  }
  // SA_RESETHAND has removed this handler, so the signal now has its usual effect.
  ::raise(number);
}

void install_signal_handlers() {
  static std::array<char, kSignalStackBytes> stack;
  stack_t alternative{};
  alternative.ss_sp = stack.data();
  alternative.ss_size = stack.size();
  ::sigaltstack(&alternative, nullptr);  // After a stack overflow, the usual stack has no room.
  struct sigaction action {};
  action.sa_handler = on_fatal_signal;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND) | SA_NODEFER;
  for (const int number : kFatalSignals)
    ::sigaction(number, &action, nullptr);
  // The first call of backtrace() loads libgcc, which allocates memory. The handler must not do
  // that.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
}

}  // namespace

std::string format_error_file(const ErrorFileEntry& entry) {
  std::string text;
  const auto quoted = [&text](std::string_view value) {
    text += '"';
    escape_json(value, is_utf8(value) ? HighBytes::Keep : HighBytes::Replace,
                [&text](char c) { text += c; });
    text += '"';
  };
  text += R"({"message": {"message": )";
  quoted(entry.message);
  text += R"(, "extraInfo": {"py_callstack": )";
  quoted(entry.stack);
  // The timestamp is a text, as in Python's @record.
  text += R"(, "timestamp": ")" + std::to_string(entry.timestamp_s) + R"("}}})";
  return text;
}

int record(const std::function<int()>& body) {
  if (const char* path = std::getenv("TORCHELASTIC_ERROR_FILE")) {
    Settings& fixed = settings();
    if (std::strlen(path) < fixed.error_file.size()) {
      std::snprintf(fixed.error_file.data(), fixed.error_file.size(), "%s", path);
      std::snprintf(fixed.partial_file.data(), fixed.partial_file.size(), "%s.partial", path);
    }
  }
  std::set_terminate(on_terminate);
  install_signal_handlers();
  return body();
}

}  // namespace muster
