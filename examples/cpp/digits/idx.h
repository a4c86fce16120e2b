// Reads IDX files, the format that MNIST comes in. Needs the standard library only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

/// A data file is missing or is not what it should be. The text says which, and what to do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Images of one size and what they show; `pixels` holds one image after the other.
struct Digits {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

/// The `part` ("train" or "t10k") of a folder of MNIST files, not compressed. Throws DataError.
Digits read_digits(const std::filesystem::path& folder, const std::string& part);

}  // namespace digits
