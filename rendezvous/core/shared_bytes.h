// Bytes that several may look at and nobody copies: values of the store, replies on their way out.
//
// References are counted without atomics: everything that shares a block lives on one thread. A
// block counts in the MemoryAccount that it was made with until its last reference goes.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "rendezvous/core/memory_account.h"

namespace muster {

namespace detail {
struct BytesBlock;
}

/// A piece of a counted block of memory. A copy is another look at the same bytes.
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
  /// What it holds in memory, spare room and the rest of the block included.
  std::size_t footprint() const;
  /// What its block would free: nothing if somebody else looks at the block, too.
  std::size_t freed_alone() const;
  /// The footprint of a copy of so many bytes.
  static std::size_t footprint_of(std::size_t bytes);

  /// Becomes `bytes`: in place if nobody else looks at the block and it fits, else in a new one.
  void assign(std::string_view bytes, MemoryAccount* account = nullptr);
  /// Adds `bytes` at the end; others who look at the block see what they saw before.
  void append(std::string_view bytes, MemoryAccount* account = nullptr);
  /// footprint() after append(), at the most.
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

/// Bytes that their owner keeps, as opposed to those that only wait to be sent: they count as kept.
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

/// A growing buffer, parts of which can become SharedBytes without a copy. Memory follows what
/// has arrived, not what a peer has announced.
class ByteBuffer {
 public:
  explicit ByteBuffer(MemoryAccount* account = nullptr) : account_(account) {}
  ByteBuffer(const ByteBuffer&) = delete;
  ByteBuffer& operator=(const ByteBuffer&) = delete;
  ~ByteBuffer() { clear(); }

  std::string_view view() const;
  std::size_t size() const { return size_; }
  std::size_t capacity() const;
  /// What it holds in memory.
  std::size_t footprint() const;
  bool empty() const { return size_ == 0; }

  void append(std::string_view bytes);
  /// Room behind the content, at least one byte of it and at most up to `wanted` bytes in all;
  /// `wanted` is above size(). The caller writes there and calls commit().
  std::pair<char*, std::size_t> room(std::size_t wanted);
  void commit(std::size_t bytes) { size_ += bytes; }
  /// Drops the first `bytes`; safe while parts are shared.
  void erase_front(std::size_t bytes);
  /// Drops everything, memory included.
  void clear();

  /// Whether `part` lies in this buffer and fills most of it, so that keeping the buffer for its
  /// sake wastes little.
  bool mostly(std::string_view part) const;
  /// `part`, which lies in this buffer, without a copy. From now on the content may only be
  /// dropped: erase_front() or clear().
  SharedBytes share(std::string_view part);

 private:
  void grow(std::size_t capacity);

  MemoryAccount* account_;
  detail::BytesBlock* block_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace muster
