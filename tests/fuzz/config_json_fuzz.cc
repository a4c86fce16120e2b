// Feeds any text to the reader of configuration files. With clang's libFuzzer: -fsanitize=fuzzer.
// Without it, main() below mutates a file with a seeded generator:
// config_json_fuzz [rounds] [seed].

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/config_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<muster::ConfigKey> keys = {{"port", muster::ConfigKind::Number},
                                                      {"http", muster::ConfigKind::Text},
                                                      {"bind", muster::ConfigKind::Texts},
                                                      {"only-store", muster::ConfigKind::Flag}};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const muster::ConfigFile file = muster::decode_config(text, keys);
  // No key occurs twice, and only a list of texts has several values.
  if (file.entries.size() > keys.size()) std::abort();
  for (const muster::ConfigEntry& entry : file.entries) {
    const auto known = std::find_if(keys.begin(), keys.end(), [&](const muster::ConfigKey& key) {
      return key.name == entry.key;
    });
    if (known == keys.end()) std::abort();
    if (known->kind == muster::ConfigKind::Flag && !entry.values.empty()) std::abort();
    if (known->kind != muster::ConfigKind::Texts && entry.values.size() > 1) std::abort();
  }
  return 0;
}

#ifndef MUSTER_LIBFUZZER
#include <cstdio>

#include "tests/support/prng.h"

int main(int argc, char** argv) {
  const auto rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 200'000;
  muster::testing::Prng prng(argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1);
  const std::string whole =
      R"({"port": 29400, "http": "[::1]:9400", "bind": ["::1", "a\u00e4"], "only-store": true})";
  constexpr std::string_view kBytes = "{}[]\",:0a-\\ \nue+.\x80\xff";
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::string text = whole;
    for (auto changes = 1 + prng.below(6); changes-- > 0 && !text.empty();) {
      const auto at = static_cast<std::size_t>(prng.below(text.size()));
      const char byte = kBytes[static_cast<std::size_t>(prng.below(kBytes.size()))];
      switch (prng.below(3)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1 + prng.below(3), byte);
          break;
        default:
          text.erase(at, prng.below(12));
          break;
      }
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(rounds));
}
#endif
