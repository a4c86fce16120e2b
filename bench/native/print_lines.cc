// The worker of the bench's tee measurement. It prints the numbers from 1 to COUNT, one per line,
// as fast as possible, in blocks of the size that stdio uses for a file.
//
//     print_lines COUNT    MUSTER_BENCH_NOTES names the pipe for the notes.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "bench/native/notes.h"

namespace {

constexpr std::size_t kBlockBytes = 8192;  // The buffer of Python and glibc without a terminal.

bool write_all(const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = write(STDOUT_FILENO, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

bool print_numbers(long count) {
  char block[kBlockBytes];
  char line[24];
  std::size_t used = 0;
  for (long number = 1; number <= count; ++number) {
    char* end = std::to_chars(line, line + sizeof line - 1, number).ptr;
    *end++ = '\n';
    const auto length = static_cast<std::size_t>(end - line);
    const std::size_t fits = length < kBlockBytes - used ? length : kBlockBytes - used;
    std::memcpy(block + used, line, fits);
    used += fits;
    if (used < kBlockBytes) continue;
    if (!write_all(block, used)) return false;
    used = length - fits;
    std::memcpy(block, line + fits, used);
  }
  return write_all(block, used);
}

}  // namespace

int main(int argc, char** argv) {
  using muster::bench::monotonic_ns;
  const long long at_main = monotonic_ns();
  const muster::bench::Notes notes;
  long count = 0;
  if (argc != 2 ||
      std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), count).ec != std::errc{}) {
    std::fprintf(stderr, "usage: print_lines COUNT\n");
    return 64;
  }
  notes.write_line("main", at_main);
  if (!print_numbers(count)) {
    std::perror("print_lines: write");
    return 74;
  }
  notes.write_line("end", monotonic_ns());
  return 0;
}
