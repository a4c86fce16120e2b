#include "idx.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace digits {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x08 << 8;
constexpr std::uint8_t kDigits = 10;

struct File {
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint8_t> elements;
};

std::uint32_t big_endian(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value << 8 | bytes[at + i];
  return value;
}

File read(const std::filesystem::path& path, std::size_t dimensions) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    throw DataError(path.string() +
                    ": cannot be read. Expected MNIST's four files there, not compressed: name the "
                    "folder with --data-dir.");
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(stream), {}};
  const std::size_t header = 4 + 4 * dimensions;
  if (bytes.size() < header || big_endian(bytes, 0) != (kUnsignedBytes | dimensions))
    throw DataError(path.string() + ": no IDX file of unsigned bytes in " +
                    std::to_string(dimensions) + " dimensions. Is it still compressed?");
  File file;
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    file.sizes.push_back(big_endian(bytes, 4 + 4 * i));
    // Checks before it multiplies, so that the product cannot overflow.
    if (file.sizes.back() == 0 || expected > bytes.size() / file.sizes.back())
      throw DataError(path.string() + ": its header announces more than the file holds.");
    expected *= file.sizes.back();
  }
  if (bytes.size() - header != expected)
    throw DataError(path.string() + ": " + std::to_string(bytes.size()) + " bytes, expected " +
                    std::to_string(header + expected) + ". Get the file again.");
  file.elements.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return file;
}

}  // namespace

Digits read_digits(const std::filesystem::path& folder, const std::string& part) {
  File images = read(folder / (part + "-images-idx3-ubyte"), 3);
  File labels = read(folder / (part + "-labels-idx1-ubyte"), 1);
  if (images.sizes[0] != labels.sizes[0])
    throw DataError(folder.string() + ": " + part + " has " + std::to_string(images.sizes[0]) +
                    " images, but " + std::to_string(labels.sizes[0]) + " labels.");
  if (*std::max_element(labels.elements.begin(), labels.elements.end()) >= kDigits)
    throw DataError(folder.string() + ": " + part + " has a label above 9.");
  return {.pixels = std::move(images.elements),
          .labels = std::move(labels.elements),
          .rows = images.sizes[1],
          .columns = images.sizes[2]};
}

}  // namespace digits
