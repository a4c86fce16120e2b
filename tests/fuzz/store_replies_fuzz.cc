// libFuzzer: the replies of a store to an agent: lengths, counts, texts. The first byte chooses the
// kind of the reply and its limit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "rendezvous/store/reply_reader.h"

namespace {

using namespace muster;

ReplyReader reader_for(std::uint8_t asked) {
  const std::uint64_t limit = asked & 0x80U ? std::uint64_t{1} << 30 : 100;
  switch (asked % 5) {
    case 0:
      return ReplyReader::number();
    case 1:
      return ReplyReader::text(limit);
    case 2:
      return ReplyReader::texts(asked / 5 % 5, limit);
    case 3:
      return ReplyReader::list(limit);
    default:
      return ReplyReader::popped(limit);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ReplyReader reader = reader_for(data[0]);
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto held = [&] {
    return std::accumulate(
        reader.found().begin(), reader.found().end(), std::size_t{0},
        [](std::size_t sum, const std::string& text) { return sum + text.size(); });
  };
  for (;;) {
    const std::span<char> to = reader.wanted();
    // The texts may take twice the bytes that have arrived, or one piece (kFirstBytes).
    if (held() > 2 * size + (std::size_t{1} << 20)) std::abort();
    if (to.empty() || to.size() > rest.size()) break;
    std::copy_n(rest.begin(), to.size(), to.begin());
    rest.remove_prefix(to.size());
    if (!reader.received()) break;
    if (reader.found().size() > size) std::abort();  // Each text has a length field of 8 bytes.
  }
  if (!(data[0] & 0x80U) && reader.wanted().empty() && held() > 100) std::abort();
  return 0;
}
