// The state codec as a filter for pickle_differential.py, with little cost for each input.
//
// In: a length of four bytes, little-endian, and a pickle; again and again. Out: for each a length
// and what the codec writes of the state that it has read; length 0: refused.

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "rendezvous/wire/base64.h"
#include "rendezvous/wire/state_codec.h"

namespace {

bool read_exactly(std::string& bytes) {
  return std::fread(bytes.data(), 1, bytes.size(), stdin) == bytes.size();
}

std::uint32_t length_of(const std::string& head) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < 4; ++i)
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(head[i])) << (8 * i);
  return length;
}

void write(const std::string& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::array<char, 4> head{};
  for (std::size_t i = 0; i < 4; ++i)
    head[i] = static_cast<char>(length >> (8 * i) & 0xff);
  std::fwrite(head.data(), 1, head.size(), stdout);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int main() {
  constexpr std::uint32_t kMaxInput = 1 << 24;
  for (std::string head(4, '\0'); read_exactly(head);) {
    const std::uint32_t length = length_of(head);
    std::string pickled(length <= kMaxInput ? length : 0, '\0');
    if (length > kMaxInput || !read_exactly(pickled)) return 1;
    const auto state = muster::decode_state(muster::base64_encode(pickled));
    if (!state || !state->has_value()) {
      write({});
      continue;
    }
    const auto served = muster::base64_decode(muster::encode_state(**state));
    if (!served) return 2;
    // What is served is read as what was understood.
    const auto again = muster::decode_state(muster::encode_state(**state));
    if (!again || !(**again == **state)) return 3;
    write(*served);
  }
}
