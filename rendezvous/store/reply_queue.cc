#include "rendezvous/store/reply_queue.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <boost/endian/conversion.hpp>

#include "base/check.h"

namespace muster {

namespace {

constexpr std::size_t kTextKept = 64 << 10;

}  // namespace

// The text to which bytes can be appended: that of the last piece, or of a new piece if the last
// one already has a shared value.
std::string& ReplyQueue::text() {
  if (pieces_.empty() || pieces_.back().shared.size() > 0) pieces_.emplace_back();
  return pieces_.back().text;
}

void ReplyQueue::add(std::string_view bytes) {
  if (bytes.empty()) return;
  text().append(bytes);
  size_ += bytes.size();
  text_bytes_ += bytes.size();
}

void ReplyQueue::add(const SharedBytes& bytes) {
  const std::size_t share_from = size_ < kManyBytes ? kShareBytes : kShareFromManyBytes;
  if (bytes.size() < share_from) return add(bytes.view());
  refer_to(bytes);
}

void ReplyQueue::refer_to(const SharedBytes& bytes) {
  if (pieces_.empty() || pieces_.back().shared.size() > 0) pieces_.emplace_back();
  pieces_.back().shared = bytes;
  size_ += bytes.size();
}

void ReplyQueue::add_byte(std::uint8_t byte) {
  text().push_back(static_cast<char>(byte));
  ++size_;
  ++text_bytes_;
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
  std::size_t sent = offset_;  // Sent bytes of the current piece.
  for (std::size_t i = first_; i < pieces_.size(); ++i) {
    for (const std::string_view view :
         {std::string_view(pieces_[i].text), pieces_[i].shared.view()}) {
      const std::size_t skipped = std::min(sent, view.size());
      sent -= skipped;
      if (skipped == view.size()) continue;
      if (count == out.size()) return count;
      out[count++] = view.substr(skipped);
    }
  }
  return count;
}

void ReplyQueue::consume(std::size_t bytes) {
  MUSTER_CHECK(bytes <= size_);
  size_ -= bytes;
  if (size_ == 0) return clear();
  offset_ += bytes;
  while (offset_ >= pieces_[first_].size()) {
    offset_ -= pieces_[first_].size();
    text_bytes_ -= pieces_[first_].text.size();
    pieces_[first_++] = Piece{};  // Frees its memory now.
  }
  // Sent pieces are erased together from time to time, so that each piece moves once on average.
  if (first_ > 16 && first_ > pieces_.size() / 2) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void ReplyQueue::clear() {
  first_ = offset_ = size_ = text_bytes_ = 0;
  const bool keep = pieces_.size() == 1 && pieces_[0].shared.size() == 0 &&
                    pieces_[0].text.capacity() <= kTextKept;
  if (keep)
    pieces_[0].text.clear();
  else
    pieces_ = {};
}

void ReplyQueue::append(ReplyQueue& other) {
  if (empty()) {
    std::swap(pieces_, other.pieces_);
    std::swap(first_, other.first_);
    std::swap(offset_, other.offset_);
    std::swap(size_, other.size_);
    std::swap(text_bytes_, other.text_bytes_);
    other.clear();
  } else {
    std::size_t sent = other.offset_;
    for (std::size_t i = other.first_; i < other.pieces_.size(); ++i) {
      const Piece& piece = other.pieces_[i];
      const std::size_t text_sent = std::min(sent, piece.text.size());
      sent -= text_sent;
      add(std::string_view(piece.text).substr(text_sent));
      if (sent > 0)
        add(piece.shared.view().substr(std::exchange(sent, 0)));
      else if (piece.shared.size() > 0)
        refer_to(piece.shared);
    }
    other.clear();
  }
  // These bytes may wait for long until they are sent, so they keep no spare capacity.
  if (!pieces_.empty() && pieces_.back().text.capacity() > 2 * pieces_.back().text.size())
    pieces_.back().text.shrink_to_fit();
}

}  // namespace muster
