// The frame of a native message, as the decoder of the store's requests knows it: both doors are on
// one port.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

/// The first byte of a client's frame. A torch server does not know it and closes the connection.
inline constexpr std::uint8_t kNativeQuery = 0x6d;
/// The size of the length field, which is little-endian.
inline constexpr std::size_t kNativeLengthBytes = 8;
/// The JSON of a connection's first native message, a hello, which has two short texts.
inline constexpr std::size_t kMaxHelloBytes = std::size_t{16} << 10;
/// The JSON of any other message. Its largest text is a reason, and JSON may need six bytes for
/// each byte of it.
inline constexpr std::size_t kMaxNativeBytes = std::size_t{128} << 10;

}  // namespace muster
