// Bytes that wait to be sent to one client, oldest first. Small ones are copied together, large
// values are only referred to.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/shared_bytes.h"

namespace muster {

class ReplyQueue {
 public:
  /// Values of this size or larger are not copied.
  static constexpr std::size_t kShareBytes = 16 << 10;
  /// The same limit once kManyBytes are in the queue: a client that asks for one value many times
  /// must not make the server copy it as often.
  static constexpr std::size_t kShareFromManyBytes = 64;
  static constexpr std::size_t kManyBytes = 64 << 10;
  /// The memory of the queue for a value that is not copied.
  static constexpr std::size_t kPieceBytes = 64;

  void add(std::string_view bytes);
  void add(const SharedBytes& bytes);
  void add_byte(std::uint8_t byte);
  void add_u32(std::uint32_t number);
  void add_u64(std::uint64_t number);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  /// The memory of the queue, without the values that it only refers to.
  std::size_t memory() const { return text_bytes_ + pieces_.capacity() * sizeof(Piece); }
  /// Reserves memory for so many bytes of text.
  void reserve_text(std::size_t bytes) { text().reserve(text().size() + bytes); }
  /// Reserves memory for references to so many values, so that a long list needs no spare capacity.
  void reserve(std::size_t values) {
    if (values > pieces_.size()) pieces_.reserve(pieces_.size() + values + 1);
  }
  /// Fills `pieces` with the next bytes to send; returns the number of pieces that it has filled.
  std::size_t gather(std::span<std::string_view> pieces) const;
  /// Removes the first `bytes`, which have been sent.
  void consume(std::size_t bytes);
  /// Removes all bytes. Keeps a little memory for the next reply, so that replies to a busy client
  /// need no allocation.
  void clear();
  /// Moves all bytes of `other` to the end of this queue.
  void append(ReplyQueue& other);

 private:
  struct Piece {
    std::string text;
    SharedBytes shared;  // Follows the text; may be empty.
    std::size_t size() const { return text.size() + shared.size(); }
  };
  static_assert(sizeof(Piece) <= kPieceBytes);
  std::string& text();
  void refer_to(const SharedBytes& bytes);

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;   // The first piece that is not sent completely.
  std::size_t offset_ = 0;  // Sent bytes of that piece.
  std::size_t size_ = 0;
  std::size_t text_bytes_ = 0;  // Text of all pieces that are not sent completely.
};

}  // namespace muster
