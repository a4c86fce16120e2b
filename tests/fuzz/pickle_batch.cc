// The state codec as a filter for pickle_differential.py, with little cost for each input.
//
// Input: a batch of pickles, each after its length of four bytes, little-endian; then the length
// 0xffffffff. After each batch, the output has for each pickle a length and the codec's encoding of
// the state that it has read; length 0: refused. Then the next batch may come.

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/base64.h"
#include "rendezvous/torchrun/state_codec.h"

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

void append(std::string& answers, const std::string& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  for (std::size_t i = 0; i < 4; ++i)
    answers += static_cast<char>(length >> (8 * i) & 0xff);
  answers += bytes;
}

void send(std::string& answers) {
  std::fwrite(answers.data(), 1, answers.size(), stdout);
  std::fflush(stdout);
  answers.clear();
}

}  // namespace

int main() {
  constexpr std::uint32_t kMaxInput = 1 << 24;
  constexpr std::uint32_t kNoMore = 0xffffffff;
  std::string answers;
  for (std::string head(4, '\0'); read_exactly(head);) {
    const std::uint32_t length = length_of(head);
    if (length == kNoMore) {
      send(answers);
      continue;
    }
    std::string pickled(length <= kMaxInput ? length : 0, '\0');
    if (length > kMaxInput || !read_exactly(pickled)) return 1;
    const auto state = muster::decode_state(muster::base64_encode(pickled));
    if (!state || !state->has_value()) {
      append(answers, {});
      continue;
    }
    const std::string text = muster::encode_state(**state);
    const auto served = muster::base64_decode(text);
    if (!served) return 2;
    // The encoding that clients read must decode to the same state.
    const auto again = muster::decode_state(text);
    if (!again || !(**again == **state)) return 3;
    append(answers, *served);
  }
}
