// The smallest possible store server: the physical limit to which musterd is compared.
//
// It has one epoll set, and does one recv() and at most one send() for each readable socket. It
// parses just enough to answer VALIDATE, PING, SET, WAIT, GET, ADD and DELETE_KEY from a fixed
// table. It has no limits, no reassembly of split requests, and no waiting: a request that does not
// arrive completely ends the program. One value may be large: it is received into the buffer where
// it stays, always the same memory, and sent from there. This is not a real store.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kSlots = 1 << 12;
constexpr std::size_t kValueBytes = 4096;
constexpr std::size_t kLargeReadBytes = 1 << 20;

struct Slot {
  std::uint64_t size = 0;
  std::array<char, kValueBytes> value;
};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::uint64_t load_u64(const char* from) {
  std::uint64_t number = 0;
  std::memcpy(&number, from, sizeof number);
  return number;
}

// FNV-1a over the last bytes, because keys differ at their end. If two keys share a slot, that does
// not matter here.
std::size_t slot_of(const char* key, std::uint64_t size) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::uint64_t i = size > 16 ? size - 16 : 0; i < size; ++i)
    hash = (hash ^ static_cast<unsigned char>(key[i])) * 0x100000001b3;
  return (hash ^ (hash >> 32)) % kSlots;
}

class Table {
 public:
  // Serves the request at `at`, and writes its answer to `out`, which moves to the answer's end.
  // Returns the begin of the next request.
  const char* serve(const char* at, const char* end, char*& out) {
    const char code = *at++;
    if (code == 0) return at + 4;
    if (code == 13) {
      std::memcpy(out, at, 4);
      out += 4;
      return at + 4;
    }
    if (code == 6) at += 8;  // WAIT: skips the number of keys, which is 1.
    const std::uint64_t key_bytes = load_u64(at);
    Slot& slot = slots_[slot_of(at + 8, key_bytes)];
    at += 8 + key_bytes;
    switch (code) {
      case 1: {
        slot.size = load_u64(at);
        if (slot.size > kValueBytes) return begin_large(slot.size, at + 8, end);
        std::memcpy(slot.value.data(), at + 8, slot.size);
        return at + 8 + slot.size;
      }
      case 3:
        std::memcpy(out, &slot.size, 8);
        if (slot.size > kValueBytes) {
          out += 8;
          large_wanted_ = true;
          return at;
        }
        std::memcpy(out + 8, slot.value.data(), slot.size);
        out += 8 + slot.size;
        return at;
      case 4: {
        const std::uint64_t sum = ++slot.size;
        std::memcpy(out, &sum, 8);
        out += 8;
        return at + 8;
      }
      case 6:
        *out++ = 0;
        return at;
      case 8: {
        const std::uint64_t deleted = 1;
        slot.size = 0;
        std::memcpy(out, &deleted, 8);
        out += 8;
        return at;
      }
      default:
        fail("unknown request");
    }
  }

  // If the next bytes belong to the large value, reads them and returns true.
  bool read_large(int fd) {
    if (large_missing_ == 0) return false;
    char* to = large_.data() + large_.size() - large_missing_;
    const ssize_t got = ::recv(fd, to, std::min(large_missing_, kLargeReadBytes), 0);
    if (got <= 0) fail("large value");
    large_missing_ -= static_cast<std::size_t>(got);
    return true;
  }
  // If a GET asked for the large value, sends all of it. Serves no other client meanwhile.
  void send_large(int fd) {
    std::size_t sent = large_wanted_ ? 0 : large_.size();
    large_wanted_ = false;
    while (sent < large_.size()) {
      const ssize_t part = ::send(fd, large_.data() + sent, large_.size() - sent, MSG_NOSIGNAL);
      if (part > 0) sent += static_cast<std::size_t>(part);
      pollfd writable{fd, POLLOUT, 0};
      if (part < 0 && (errno != EAGAIN || ::poll(&writable, 1, -1) < 0)) return;
    }
  }

 private:
  const char* begin_large(std::uint64_t size, const char* at, const char* end) {
    large_.resize(size);
    const auto there = std::min(size, static_cast<std::uint64_t>(end - at));
    std::memcpy(large_.data(), at, there);
    large_missing_ = size - there;
    return at + there;
  }

  std::vector<char> large_;
  std::size_t large_missing_ = 0;
  bool large_wanted_ = false;
  std::unique_ptr<std::array<Slot, kSlots>> owned_ = std::make_unique<std::array<Slot, kSlots>>();
  std::array<Slot, kSlots>& slots_ = *owned_;
};

int listen_on_loopback() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int on = 1;
  ::setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) < 0) fail("bind");
  if (::listen(listener, -1) < 0) fail("listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("bare: listening on 127.0.0.1:%u\n", static_cast<unsigned>(ntohs(address.sin_port)));
  std::fflush(stdout);
  return listener;
}

void watch(int set, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
}

void serve_forever(int listener, Table& table) {
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  watch(set, listener);
  auto in = std::make_unique<std::array<char, kReadBytes>>();
  auto out = std::make_unique<std::array<char, 16 * kReadBytes>>();
  std::array<epoll_event, 256> events;
  for (;;) {
    const int count = ::epoll_wait(set, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == listener) {
        watch(set, ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        continue;
      }
      if (table.read_large(fd)) continue;
      const ssize_t got = ::recv(fd, in->data(), in->size(), 0);
      if (got <= 0) {
        ::close(fd);
        continue;
      }
      char* end = out->data();
      for (const char* at = in->data(); at < in->data() + got;)
        at = table.serve(at, in->data() + got, end);
      const auto bytes = static_cast<std::size_t>(end - out->data());
      if (bytes > 0 && ::send(fd, out->data(), bytes, MSG_NOSIGNAL) < 0) ::close(fd);
      table.send_large(fd);
    }
  }
}

}  // namespace

int main() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Table table;  // Made before the port is printed, so that its memory is mapped by then.
  serve_forever(listen_on_loopback(), table);
}
