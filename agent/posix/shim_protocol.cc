#include "agent/posix/shim_protocol.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/posix/kernel_calls.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/write_all.h"
#include "base/from_errno.h"

namespace muster {
namespace {

constexpr std::size_t kFdsMax = 6;  // The command, three streams and two log files' handles.
constexpr std::size_t kCommandBytesMax = std::size_t{1} << 30;  // Far above execve's limit.

// The layout of a command: this header, the CPU mask, then the path, the two log files, the
// arguments and the variables. A NUL ends each string.
struct Header {
  std::uint64_t argc;
  std::uint64_t envc;
  std::uint64_t mask_words;
};

// The form that the kernel uses: bit n of the words is CPU n.
using MaskWord = unsigned long;

std::vector<MaskWord> mask_of(const std::set<int>& cpus) {
  constexpr std::size_t kBits = 8 * sizeof(MaskWord);
  std::vector<MaskWord> words;
  for (const int cpu : cpus) {
    const auto bit = static_cast<std::size_t>(cpu);
    if (words.size() <= bit / kBits) words.resize(bit / kBits + 1);
    words[bit / kBits] |= MaskWord{1} << (bit % kBits);
  }
  return words;
}

std::string serialise(const WorkerCommand& command) {
  const std::vector<MaskWord> mask = mask_of(command.cpus);
  const Header header{command.argv.size(), command.env.size(), mask.size()};
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  if (!mask.empty())
    out.append(reinterpret_cast<const char*>(mask.data()), mask.size() * sizeof(MaskWord));
  const auto add = [&out](const std::string& s) { out.append(s.c_str(), s.size() + 1); };
  add(command.path);
  for (const std::string& s : command.log_files)
    add(s);
  for (const std::string& s : command.argv)
    add(s);
  for (const std::string& s : command.env)
    add(s);
  return out;
}

// Used if `ulimit -f` is too small: that limit holds for memfds, too. Fails for a large command of
// a user without privileges.
Result<OwnedFd> pack_into_pipe(const std::string& text) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return from_errno(errno);
  OwnedFd read_end(ends[0]);
  const OwnedFd write_end(ends[1]);
  ssize_t written = ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(text.size()));
  if (written >= 0) written = ::write(ends[1], text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return read_end;
  return from_errno(written < 0 ? errno : EFBIG);
}

}  // namespace

Result<OwnedFd> pack_command(const WorkerCommand& command) {
  const std::string text = serialise(command);
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && text.size() > limit.rlim_cur)
    return pack_into_pipe(text);
  OwnedFd fd(make_memory_file("muster-command"));
  if (!fd.is_open()) return from_errno(errno);
  if (const auto error = write_all(fd.get(), text)) return error;
  return fd;
}

std::optional<PackedCommand> read_command(int fd) {
  ::lseek(fd, 0, SEEK_SET);  // Fails for a pipe, which needs no seek.
  PackedCommand packed{.bytes =
                           std::make_shared<std::string>(read_beginning(fd, kCommandBytesMax))};
  std::string& bytes = *packed.bytes;
  Header header{};
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  char* at = bytes.data() + sizeof header;
  char* const end = bytes.data() + bytes.size();
  if (header.mask_words > static_cast<std::size_t>(end - at) / sizeof(MaskWord))
    return std::nullopt;
  const std::size_t mask_bytes = header.mask_words * sizeof(MaskWord);
  packed.cpu_mask = {reinterpret_cast<const std::byte*>(at), mask_bytes};
  at += mask_bytes;
  const auto next = [&at, end]() -> char* {
    auto* nul = static_cast<char*>(std::memchr(at, '\0', static_cast<std::size_t>(end - at)));
    return nul == nullptr ? nullptr : std::exchange(at, nul + 1);
  };
  packed.path = next();
  if (packed.path == nullptr) return std::nullopt;
  for (const char*& file : packed.log_files) {
    file = next();
    if (file == nullptr) return std::nullopt;
  }
  for (std::uint64_t i = 0; i < header.argc + header.envc; ++i) {
    char* text = next();
    if (text == nullptr) return std::nullopt;
    (i < header.argc ? packed.argv : packed.env).push_back(text);
  }
  packed.argv.push_back(nullptr);
  packed.env.push_back(nullptr);
  return packed;
}

Result<std::pair<int, int>> make_shim_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return from_errno(errno);
  return std::pair(ends[0], ends[1]);
}

boost::system::error_code send_packet(int socket, const void* data, std::size_t bytes,
                                      const std::vector<OwnedFd>& fds) {
  iovec part{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return from_errno(errno);
  }
}

Result<std::vector<OwnedFd>> receive_packet(int socket, void* data, std::size_t bytes) {
  iovec part{data, bytes};
  msghdr message{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  // A peer that ends before it has read all packets resets the connection. The first call returns
  // ECONNRESET, and the next calls return the packets that the peer sent before its end.
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0) return from_errno(errno);
  std::vector<OwnedFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at < header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (n == 0) return from_errno(ENOTCONN);
  if (static_cast<std::size_t>(n) != bytes) return from_errno(EPROTO);
  return fds;
}

}  // namespace muster
