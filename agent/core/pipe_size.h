// How large the pipes of the workers' output may be.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace muster {

inline constexpr std::size_t kPipeBytesMax =
    1 << 20;  // The most that an unprivileged user may ask for.
inline constexpr std::size_t kPipeBytesMin = 65536;  // The kernel's default.
// When a user has used up the pages for pipes, every new pipe of that user has two pages, and
// programs that rely on more hang. So many jobs fit. The log thread empties pipes to files at once;
// those to a console hold what a slow reader has not taken yet.
inline constexpr std::size_t kJobsWithFiles = 8;
inline constexpr std::size_t kJobsWithConsole = 4;

/// The size of each of `pipes` pipes of one of `jobs` jobs if a user may have `user_pages` pages in
/// all pipes (fs.pipe-user-pages-soft; 0: any number).
inline std::size_t pipe_bytes(std::size_t pipes, std::size_t jobs, std::size_t user_pages,
                              std::size_t page_bytes) {
  if (user_pages == 0) return kPipeBytesMax;
  const std::size_t share = user_pages / jobs / std::max<std::size_t>(pipes, 1) * page_bytes;
  return std::clamp(std::bit_floor(share), kPipeBytesMin, kPipeBytesMax);
}

/// How many pipes of `piece_bytes` have the pages that stay with the user's other programs: half of
/// them, of very small pipes less.
inline std::size_t reserve_pieces(std::size_t user_pages, std::size_t page_bytes,
                                  std::size_t piece_bytes) {
  constexpr std::size_t kPiecesMax = 64;
  return std::min(user_pages / 2 * page_bytes / std::max<std::size_t>(piece_bytes, 1), kPiecesMax);
}

}  // namespace muster
