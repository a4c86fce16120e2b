// libFuzzer: the records of musterd's state file, which a disk may damage.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/state/run_record_codec.h"

namespace {

template <typename Decode>
void check_round_trip(std::string_view text, Decode decode) {
  const auto record = decode(text);
  if (!record) return;
  const std::string written = encode(*record);
  const auto again = decode(written);
  if (!again || encode(*again) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_round_trip(text, [](auto record) { return muster::decode_run_record(record); });
  check_round_trip(text, [](auto record) { return muster::decode_member_record(record); });
  check_round_trip(text, [](auto record) { return muster::decode_ended_run(record); });
  return 0;
}
