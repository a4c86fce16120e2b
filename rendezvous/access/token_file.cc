#include "rendezvous/access/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

namespace muster {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";
constexpr const char* kMakeOne = "make one with `openssl rand -hex 32`";

/// Closes the file that was read.
struct OpenFile {
  explicit OpenFile(int descriptor) : fd(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

std::string system_text() {
  return std::generic_category().message(errno);
}

/// Why the type or the permissions of the file are refused. Empty: they are not.
std::string complaint(const struct stat& file, const std::string& path) {
  if (!S_ISREG(file.st_mode)) return "it is not a regular file";
  if ((file.st_mode & S_IROTH) != 0)
    return "every user of this machine may read it: `chmod 600 " + path +
           "` takes that back (or 640, for a group)";
  if ((file.st_mode & (S_IWOTH | S_IWGRP)) != 0)
    return "others than its owner may change it: `chmod 600 " + path + "` takes that back";
  return {};
}

/// Why the token is refused. Empty: it is not.
std::string complaint(std::string_view token) {
  const bool is_text =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.empty()) return std::string("it is empty; ") + kMakeOne;
  if (!is_text)
    return std::string(
               "a token is one word of printable ASCII characters, and this is something "
               "else; ") +
           kMakeOne;
  if (token.size() < kMinTokenBytes)
    return "its token has " + std::to_string(token.size()) + " characters, fewer than " +
           std::to_string(kMinTokenBytes) + ": it could be guessed; " + kMakeOne;
  return {};
}

/// Reads up to `most` bytes. Returns std::nullopt if the file cannot be read; errno says why.
std::optional<std::string> read_all(int fd, std::size_t most) {
  std::string text(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const ssize_t got = ::read(fd, text.data() + size, most - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

std::optional<std::string> credential_token_file() {
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  std::string path = std::string(folder) + "/rdzv-token";
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  return path;
}

namespace {

/// The content of a file with a secret, or why it is refused.
boost::system::result<std::string, TokenError> read_secret(const std::string& path,
                                                           std::size_t most) {
  // O_NONBLOCK: opening a FIFO must not block.
  const OpenFile opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat file {};
  if (opened.fd < 0 || ::fstat(opened.fd, &file) != 0) return TokenError{system_text()};
  if (const std::string why = complaint(file, path); !why.empty()) return TokenError{why};
  auto text = read_all(opened.fd, most + 1);
  if (!text) return TokenError{system_text()};
  if (text->size() > most)
    return TokenError{"it is longer than " + std::to_string(most) + " bytes"};
  // The tag is needed, because a TokenError can also be made from a string.
  return {boost::system::in_place_value, *std::move(text)};
}

TokenError refused_token(const std::string& path, const std::string& why) {
  return {"the token file " + path + ": " + why};
}

}  // namespace

boost::system::result<std::string, TokenError> read_token_file(const std::string& path) {
  const auto text = read_secret(path, kMaxTokenBytes);
  if (!text) return refused_token(path, text.error().reason);
  const std::size_t begin = std::min(text->find_first_not_of(kWhiteSpace), text->size());
  const std::size_t end = text->find_last_not_of(kWhiteSpace) + 1;
  std::string token = begin < end ? text->substr(begin, end - begin) : std::string();
  if (const std::string why = complaint(std::string_view(token)); !why.empty())
    return refused_token(path, why);
  return {boost::system::in_place_value, std::move(token)};
}

boost::system::result<RunTokenTexts, TokenError> read_run_tokens_file(const std::string& path) {
  const auto text = read_secret(path, kMaxRunTokensBytes);
  if (!text) return refused_token(path, text.error().reason);
  auto tokens = parse_run_tokens(*text, [](std::string_view token) { return complaint(token); });
  if (!tokens) return refused_token(path, tokens.error().reason);
  return *std::move(tokens);
}

boost::system::result<std::string, TokenError> read_secret_line(const std::string& path,
                                                                std::size_t most) {
  const auto refuse = [&path](const std::string& why) {
    return TokenError{"the file " + path + ": " + why};
  };
  const auto text = read_secret(path, most + 2);
  if (!text) return refuse(text.error().reason);
  std::string line = text->substr(0, text->find('\n'));
  if (line.ends_with('\r')) line.pop_back();
  if (line.empty()) return refuse("its first line is empty");
  if (line.size() > most)
    return refuse("its first line is longer than " + std::to_string(most) + " bytes");
  return {boost::system::in_place_value, std::move(line)};
}

}  // namespace muster
