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
  /// From this size on once kManyBytes are in the queue: a client that asks for one value many
  /// times must not make us copy it as often.
  static constexpr std::size_t kShareFromManyBytes = 64;
  static constexpr std::size_t kManyBytes = 64 << 10;
  /// What a value that is not copied costs here.
  static constexpr std::size_t kPieceBytes = 64;

  void add(std::string_view bytes);
  void add(const SharedBytes& bytes);
  void add_byte(std::uint8_t byte);
  void add_u32(std::uint32_t number);
  void add_u64(std::uint64_t number);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  /// What the queue holds in memory, without the values that it only refers to.
  std::size_t memory() const { return text_bytes_ + pieces_.capacity() * sizeof(Piece); }
  /// So many bytes of text will be added.
  void reserve_text(std::size_t bytes) { text().reserve(text().size() + bytes); }
  /// So many values will be referred to: a long list of them takes no room to grow.
  void reserve(std::size_t values) {
    if (values > pieces_.size()) pieces_.reserve(pieces_.size() + values + 1);
  }
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
    std::string text;
    SharedBytes shared;  // Behind the text, or empty.
    std::size_t size() const { return text.size() + shared.size(); }
  };
  static_assert(sizeof(Piece) <= kPieceBytes);
  std::string& text();
  void refer_to(const SharedBytes& bytes);

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;   // Pieces before it are sent.
  std::size_t offset_ = 0;  // Within the first one.
  std::size_t size_ = 0;
  std::size_t text_bytes_ = 0;  // Of all pieces that are not yet sent in whole.
};

}  // namespace muster
