// How large the pipes of the workers' output may be.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace muster {

inline constexpr std::size_t kPipeBytesMax =
    1 << 20;  // The most that an unprivileged user may ask for.
inline constexpr std::size_t kPipeBytesUsual = 65536;  // The kernel's default.
// What the kernel gives a user whose pages are used up, and enough for an atomic write (PIPE_BUF).
inline constexpr std::size_t kPipeBytesMin = 8192;
// When a user has used up the pages for pipes, every new pipe of that user has two pages, and
// programs that rely on more hang. So many jobs fit. The log thread empties pipes to files at once;
// those to a console hold what a slow reader has not taken yet.
inline constexpr std::size_t kJobsWithFiles = 8;
inline constexpr std::size_t kJobsWithConsole = 4;
// With hundreds of workers, pipes of the usual size would use up the pages, too: they become
// smaller when those of one job would have more than this part.
inline constexpr std::size_t kPartOfUsualPipes = 4;

/// The size of each of `pipes` pipes of one of `jobs` jobs if a user may have `user_pages` pages in
/// all pipes (fs.pipe-user-pages-soft; 0: any number).
inline std::size_t pipe_bytes(std::size_t pipes, std::size_t jobs, std::size_t user_pages,
                              std::size_t page_bytes) {
  if (user_pages == 0) return kPipeBytesMax;
  const auto bytes_of_each = [&](std::size_t parts) {
    return std::bit_floor(user_pages / parts * page_bytes / std::max<std::size_t>(pipes, 1));
  };
  if (const std::size_t bytes = bytes_of_each(jobs); bytes > kPipeBytesUsual)
    return std::min(bytes, kPipeBytesMax);
  return std::clamp(bytes_of_each(kPartOfUsualPipes), kPipeBytesMin, kPipeBytesUsual);
}

/// A pipe of this size needs that this part of the user's pages is left for other programs: half of
/// them, for pipes of the usual size an eighth.
inline std::size_t reserved_part(std::size_t pipe_bytes) {
  return pipe_bytes > kPipeBytesUsual ? 2 : 8;
}

/// How many pipes of `piece_bytes` have this part of the user's pages. Of very small pipes fewer.
inline std::size_t reserve_pieces(std::size_t user_pages, std::size_t part, std::size_t page_bytes,
                                  std::size_t piece_bytes) {
  constexpr std::size_t kPiecesMax = 64;
  const std::size_t bytes = user_pages / part * page_bytes;
  return std::min(bytes / std::max<std::size_t>(piece_bytes, 1), kPiecesMax);
}

}  // namespace muster
