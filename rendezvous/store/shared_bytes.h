// Shared bytes that are not copied: values of the store, and replies that wait to be sent.
//
// References are counted without atomics: all owners of a block live on one thread. A block counts
// in the MemoryAccount with which it was made until its last reference is gone.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "rendezvous/store/memory_account.h"

namespace muster {

namespace detail {
struct BytesBlock;
}

/// A part of a reference-counted block of memory. A copy refers to the same bytes.
class SharedBytes {
 public:
  SharedBytes() = default;
  SharedBytes(const SharedBytes& other);
  SharedBytes(SharedBytes&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        begin_(std::exchange(other.begin_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  SharedBytes& operator=(SharedBytes other) noexcept {
    std::swap(block_, other.block_);
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~SharedBytes();

  static SharedBytes copy_of(std::string_view bytes, MemoryAccount* account = nullptr);

  std::string_view view() const { return {begin_, size_}; }
  std::size_t size() const { return size_; }
  /// The memory of the whole block, including spare room.
  std::size_t footprint() const;
  /// The memory that releasing this object would free: 0 if the block has other owners.
  std::size_t freed_alone() const;
  /// The footprint of a copy of so many bytes.
  static std::size_t footprint_of(std::size_t bytes);

  /// Replaces the content: in place if the block has no other owner and `bytes` fit, otherwise in a
  /// new block.
  void assign(std::string_view bytes, MemoryAccount* account = nullptr);
  /// Adds `bytes`, which must not be a part of this object, at the end. Other owners of the block
  /// do not see them.
  void append(std::string_view bytes, MemoryAccount* account = nullptr);
  /// The largest possible footprint() after append().
  std::size_t footprint_after_append(std::size_t bytes) const;

 private:
  friend class ByteBuffer;
  SharedBytes(detail::BytesBlock* block, char* begin, std::size_t size)
      : block_(block), begin_(begin), size_(size) {}
  std::size_t room() const;  // From begin_ to the end of the block.

  detail::BytesBlock* block_ = nullptr;
  char* begin_ = nullptr;
  std::size_t size_ = 0;
};

/// Bytes that count in MemoryAccount::kept, unlike bytes that only wait to be sent.
class KeptBytes {
 public:
  KeptBytes() = default;
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;
  ~KeptBytes() { count(false); }
  /// `bytes` count in `account`, which may be null.
  void assign(SharedBytes bytes, MemoryAccount* account) {
    count(false);
    bytes_ = std::move(bytes);
    account_ = account;
    count(true);
  }
  const SharedBytes& bytes() const { return bytes_; }

 private:
  void count(bool add) {
    if (account_ == nullptr) return;
    if (add)
      account_->kept += bytes_.footprint();
    else
      account_->kept -= bytes_.footprint();
  }

  SharedBytes bytes_;
  MemoryAccount* account_ = nullptr;
};

/// A growing buffer, parts of which can become SharedBytes without a copy. Its memory grows with
/// the bytes that have arrived, not with the length that a peer has announced.
class ByteBuffer {
 public:
  explicit ByteBuffer(MemoryAccount* account = nullptr) : account_(account) {}
  ByteBuffer(const ByteBuffer&) = delete;
  ByteBuffer& operator=(const ByteBuffer&) = delete;
  ~ByteBuffer() { clear(); }

  std::string_view view() const;
  std::size_t size() const { return size_; }
  std::size_t capacity() const;
  /// The memory of the buffer.
  std::size_t footprint() const;
  bool empty() const { return size_ == 0; }

  void append(std::string_view bytes);
  /// Free space after the content, at least one byte. Content and space have at most `wanted` bytes
  /// together; `wanted` must be larger than size(). The caller writes there and calls commit().
  std::pair<char*, std::size_t> room(std::size_t wanted);
  void commit(std::size_t bytes) { size_ += bytes; }
  /// Removes the first `bytes`; safe while parts are shared.
  void erase_front(std::size_t bytes);
  /// Removes all content and releases the memory.
  void clear();

  /// Whether `part` lies in this buffer and fills most of it, so that sharing the buffer for this
  /// part wastes little memory.
  bool mostly(std::string_view part) const;
  /// Shares `part`, which must lie in this buffer, without a copy. After that only erase_front() or
  /// clear() may be called.
  SharedBytes share(std::string_view part);

 private:
  void grow(std::size_t capacity);

  MemoryAccount* account_;
  detail::BytesBlock* block_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace muster
