// libFuzzer: the JSON of the native door, from nodes and from hosts, and the token's handshake.
//
// An accepted message must be the same when it is written and read again. The lines of the input
// are also sent to a host with a token, one after the other, as by one client.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/access/token_proof.h"
#include "rendezvous/messages/native_codec.h"
#include "tests/support/plain_crypto.h"

namespace {

using namespace muster;

std::string json_of(const NativeRequest& request) {
  return encode(request).substr(1 + kNativeLengthBytes);
}
std::string json_of(const NativeMessage& message) {
  return encode(message).substr(kNativeLengthBytes);
}

template <typename Decode>
void check_round_trip(std::string_view json, Decode decode) {
  const auto first = decode(json);
  if (!first) {
    if (describe(first.error()).empty()) std::abort();
    return;
  }
  const std::string written = json_of(*first);
  const auto second = decode(written);
  if (!second || json_of(*second) != written) std::abort();
}

void send_to_gate(std::string_view lines) {
  TokenGate gate(std::make_shared<const HostTokens>(
      std::make_shared<const muster::testing::PlainCrypto>("secret")));
  while (!lines.empty() && !gate.open()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const TokenGate::Step step = gate.receive(line);
    // A step never both closes the connection and passes on a message.
    if (!step.close.empty() && step.serve) std::abort();
    if (!step.close.empty()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_round_trip(text, [](std::string_view json) { return decode_native_request(json, {}); });
  check_round_trip(text, [](std::string_view json) { return decode_native_message(json); });
  if (size >= kNativeLengthBytes) static_cast<void>(read_native_length(text));
  send_to_gate(text);
  return 0;
}
