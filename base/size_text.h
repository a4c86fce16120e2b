// Sizes of memory and files as text in messages for people.

#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace muster {

/// "64 MiB"; with a decimal, "64.0 MiB": where it matters whether a little is left or nothing.
inline std::string mebibytes_text(std::uint64_t bytes, int decimals = 0) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f MiB", decimals, static_cast<double>(bytes) / (1 << 20));
  return text;
}

/// "64 MiB", and from 1 GiB on "1.5 GiB".
inline std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  if (bytes < kGiB) return mebibytes_text(bytes);
  char text[64];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace muster
