#include "rendezvous/wire/reply_queue.h"

#include <array>
#include <cstdint>
#include <utility>

#include <boost/endian/conversion.hpp>

#include "rendezvous/core/check.h"

namespace muster {

namespace {

constexpr std::size_t kTextKept = 64 << 10;

}  // namespace

// The text that may still grow: the last piece's, unless that is a reference.
std::string& ReplyQueue::text() {
  if (pieces_.empty() || pieces_.back().shared.size() > 0) pieces_.emplace_back();
  return pieces_.back().text;
}

void ReplyQueue::add(std::string_view bytes) {
  if (bytes.empty()) return;
  text().append(bytes);
  size_ += bytes.size();
}

void ReplyQueue::add(const SharedBytes& bytes) {
  if (bytes.size() < kShareBytes) return add(bytes.view());
  pieces_.push_back(Piece{{}, bytes});
  size_ += bytes.size();
}

void ReplyQueue::add_byte(std::uint8_t byte) {
  text().push_back(static_cast<char>(byte));
  ++size_;
}

void ReplyQueue::add_u32(std::uint32_t number) {
  std::array<unsigned char, 4> bytes;
  boost::endian::store_little_u32(bytes.data(), number);
  add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void ReplyQueue::add_u64(std::uint64_t number) {
  std::array<unsigned char, 8> bytes;
  boost::endian::store_little_u64(bytes.data(), number);
  add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::size_t ReplyQueue::gather(std::span<std::string_view> out) const {
  std::size_t count = 0;
  for (std::size_t i = first_; i < pieces_.size() && count < out.size(); ++i) {
    std::string_view view = pieces_[i].view();
    if (i == first_) view.remove_prefix(offset_);
    if (!view.empty()) out[count++] = view;
  }
  return count;
}

void ReplyQueue::consume(std::size_t bytes) {
  MUSTER_CHECK(bytes <= size_);
  size_ -= bytes;
  if (size_ == 0) return clear();
  offset_ += bytes;
  while (offset_ >= pieces_[first_].view().size()) {
    offset_ -= pieces_[first_].view().size();
    pieces_[first_++] = Piece{};  // Its memory, now.
  }
  // The sent ones are dropped together now and then: each is moved once, on the average.
  if (first_ > 16 && first_ > pieces_.size() / 2) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void ReplyQueue::clear() {
  first_ = offset_ = size_ = 0;
  const bool keep = pieces_.size() == 1 && pieces_[0].shared.size() == 0 &&
                    pieces_[0].text.capacity() <= kTextKept;
  if (keep)
    pieces_[0].text.clear();
  else
    pieces_ = {};
}

void ReplyQueue::take(ReplyQueue& other) {
  if (empty()) {
    std::swap(pieces_, other.pieces_);
    std::swap(first_, other.first_);
    std::swap(offset_, other.offset_);
    std::swap(size_, other.size_);
    other.clear();
    return;
  }
  std::array<std::string_view, 1> piece;
  while (other.gather(piece) > 0) {
    Piece& from = other.pieces_[other.first_];
    if (other.offset_ == 0 && from.shared.size() > 0)
      add(from.shared);
    else
      add(piece[0]);
    other.consume(piece[0].size());
  }
}

}  // namespace muster
