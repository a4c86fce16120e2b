// Bytes on their way to one client, oldest first. Small ones are copied together, large values
// are only referred to.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/shared_bytes.h"

namespace muster {

class ReplyQueue {
 public:
  /// From this size on a value is not copied.
  static constexpr std::size_t kShareBytes = 16 << 10;

  void add(std::string_view bytes);
  void add(const SharedBytes& bytes);
  void add_byte(std::uint8_t byte);
  void add_u32(std::uint32_t number);
  void add_u64(std::uint64_t number);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  /// The next bytes to send, as pieces; returns how many pieces it has filled in.
  std::size_t gather(std::span<std::string_view> pieces) const;
  /// These have been sent.
  void consume(std::size_t bytes);
  /// Empty again. Keeps a little memory for the next reply, so that a busy client allocates none.
  void clear();
  /// Everything in `other`, behind what is here; `other` is empty afterwards.
  void take(ReplyQueue& other);

 private:
  struct Piece {
    std::string text;  // One of the two.
    SharedBytes shared;
    std::string_view view() const { return shared.size() > 0 ? shared.view() : text; }
  };
  std::string& text();

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;   // Pieces before it are sent.
  std::size_t offset_ = 0;  // Within the first one.
  std::size_t size_ = 0;
};

}  // namespace muster
