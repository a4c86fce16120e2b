// Limits on what a client of a store may send, and on what a store holds.
//
// docs/protocol.md lists them, with musterd's option for each limit that can be changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

struct StoreLimits {
  std::size_t keys = 4'000'000;               // Names stored, queued or waited for.
  std::size_t bytes = std::size_t{16} << 30;  // Names, values, queues, waits, states and inputs.
  /// A value that APPENDs have made. An append to a value that a client is being sent copies it.
  std::size_t appended_bytes = std::size_t{1} << 30;
};

/// The limits of one request to the store; native messages have kMaxHelloBytes and kMaxNativeBytes.
/// The first three are those of torch's libuv server.
struct CodecLimits {
  std::uint64_t key_bytes = 8192;
  std::uint64_t value_bytes = std::uint64_t{8} << 20;
  std::uint64_t keys_per_request = 131'072;
  std::uint64_t request_bytes = std::uint64_t{2} << 30;  // torch has no such limit.
  /// Whether a client may use the native door: native_codec.h.
  bool native_door = false;
  /// The number of native messages at the beginning to which the limit of a hello applies. With a
  /// token, the proof is one of them.
  int short_native_messages = 1;
};

}  // namespace muster
