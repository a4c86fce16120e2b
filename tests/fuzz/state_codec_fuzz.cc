// Feeds bytes that a peer might send to the state decoder. With clang's libFuzzer:
// -fsanitize=fuzzer. Without it, main() below mutates the seeds of tests/conformance/rendezvous
// with a seeded generator: state_codec_fuzz FOLDER [rounds] [seed].

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/base64.h"
#include "rendezvous/torchrun/state_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // The bytes are used as a pickle, and as the text itself.
  for (const std::string& text : {muster::base64_encode(bytes), std::string(bytes)}) {
    const auto state = muster::decode_state(text);
    if (!state || !state->has_value()) continue;
    // An accepted state must be the same when it is written and read again.
    const auto again = muster::decode_state(muster::encode_state(**state));
    if (!again || !(**again == **state)) std::abort();
  }
  return 0;
}

#ifndef MUSTER_LIBFUZZER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/support/prng.h"

namespace {

void flip_bit(char& byte, std::uint64_t bit) {
  byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << bit));
}

void mutate(std::string& bytes, muster::testing::Prng& prng) {
  const auto anywhere = [&] { return static_cast<std::size_t>(prng.below(bytes.size())); };
  if (bytes.empty()) return;
  switch (prng.below(6)) {
    case 0:
      bytes[anywhere()] = static_cast<char>(prng.next());
      break;
    case 1:
      flip_bit(bytes[anywhere()], prng.below(8));
      break;
    case 2:
      bytes.erase(anywhere(), prng.below(16));
      break;
    case 3:
      bytes.insert(anywhere(), 1 + prng.below(4), static_cast<char>(prng.next()));
      break;
    case 4:
      bytes.insert(anywhere(), bytes.substr(anywhere(), prng.below(64)));
      break;
    default:
      bytes.resize(anywhere());
      break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto rounds = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 200'000;
  muster::testing::Prng prng(argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 1);
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (entry.path().extension() != ".b64" || entry.file_size() > 4096) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (const auto bytes = muster::base64_decode(text)) seeds.push_back(*bytes);
  }
  if (seeds.size() < 20) return 3;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::string bytes = seeds[prng.below(seeds.size())];
    for (auto changes = prng.below(6); changes-- > 0;)
      mutate(bytes, prng);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%llu inputs from %zu seeds\n", static_cast<unsigned long long>(rounds),
              seeds.size());
}
#endif
