// The bytes of one client that were read but not served yet. They count in the memory of the store.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "rendezvous/store/memory_account.h"
#include "rendezvous/store/shared_bytes.h"

namespace muster {

class ReceivedBytes {
 public:
  /// `account` must outlive this object.
  explicit ReceivedBytes(MemoryAccount& account) : account_(account), buffer_(&account) {}
  ReceivedBytes(const ReceivedBytes&) = delete;
  ReceivedBytes& operator=(const ReceivedBytes&) = delete;
  ~ReceivedBytes() { account_.kept -= counted_; }

  bool empty() const { return buffer_.empty(); }
  std::size_t size() const { return buffer_.size(); }
  std::string_view view() const { return buffer_.view(); }
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// Appends bytes of a request that has `wanted` bytes, as far as they are known. Returns how many
  /// it has taken. Bytes after the request are taken only if they need no new memory: the memory of
  /// a large request ends exactly with the request.
  std::size_t top_up(std::string_view bytes, std::size_t wanted);
  /// Memory for more bytes of a request that has `wanted` bytes, as ByteBuffer::room().
  std::pair<char*, std::size_t> room(std::size_t wanted);
  void commit(std::size_t bytes) { buffer_.commit(bytes); }
  void erase_front(std::size_t bytes) { buffer_.erase_front(bytes); }
  /// Removes all bytes. count() must follow.
  void clear() { buffer_.clear(); }
  /// For a store that keeps a part of the bytes without a copy.
  ByteBuffer& buffer() { return buffer_; }

  /// Counts the present memory, and `more` bytes that the client makes the server keep elsewhere.
  /// Returns whether the number has changed and is not 0.
  bool count(std::size_t more);

 private:
  MemoryAccount& account_;
  ByteBuffer buffer_;
  std::size_t counted_ = 0;
};

}  // namespace muster
