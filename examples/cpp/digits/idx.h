// Reads IDX files, the file format of MNIST. Needs only the standard library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

/// A data file is missing or invalid. The text names the file and says what to do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Images of one size and their labels. `pixels` has one image after the other, row by row.
struct Digits {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

/// Reads one part ("train" or "t10k") of a folder of MNIST files, which must not be compressed.
/// Throws DataError.
Digits read_digits(const std::filesystem::path& folder, const std::string& part);

}  // namespace digits
