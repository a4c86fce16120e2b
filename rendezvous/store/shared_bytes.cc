#include "rendezvous/store/shared_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include "base/check.h"

namespace muster {

namespace detail {

struct BytesBlock {
  std::size_t references;
  std::size_t capacity;
  MemoryAccount* account;

  std::size_t footprint() const {
    return sizeof(BytesBlock) + MemoryAccount::kBlockBytes + capacity;
  }
  char* data() { return reinterpret_cast<char*>(this + 1); }
};

}  // namespace detail

namespace {

using detail::BytesBlock;

// malloc and realloc instead of new: for large blocks realloc moves pages instead of bytes.
BytesBlock* resize_block(BytesBlock* block, std::size_t capacity, MemoryAccount* account) {
  const bool fresh = block == nullptr;
  const std::size_t before = fresh ? 0 : block->footprint();
  auto* resized = static_cast<BytesBlock*>(std::realloc(block, sizeof(BytesBlock) + capacity));
  if (resized == nullptr) throw std::bad_alloc();
  if (fresh) resized->references = 1;
  resized->capacity = capacity;
  resized->account = account;
  if (account != nullptr) {
    account->blocks += resized->footprint() - before;
    account->allocated += resized->footprint();
  }
  return resized;
}

void release(BytesBlock* block) {
  if (block == nullptr || --block->references > 0) return;
  if (block->account != nullptr) block->account->blocks -= block->footprint();
  std::free(block);
}

void copy(char* to, std::string_view from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

// The capacity for a value that grows. Appending byte by byte must not take quadratic time, but a
// large value must not double its memory.
std::size_t grown(std::size_t bytes) {
  constexpr std::size_t kSpareMax = 1 << 20;
  return bytes + std::min(bytes, kSpareMax);
}

}  // namespace

SharedBytes::SharedBytes(const SharedBytes& other)
    : block_(other.block_), begin_(other.begin_), size_(other.size_) {
  if (block_ != nullptr) ++block_->references;
}

SharedBytes::~SharedBytes() {
  release(block_);
}

SharedBytes SharedBytes::copy_of(std::string_view bytes, MemoryAccount* account) {
  if (bytes.empty()) return {};
  BytesBlock* block = resize_block(nullptr, bytes.size(), account);
  copy(block->data(), bytes);
  return {block, block->data(), bytes.size()};
}

std::size_t SharedBytes::footprint() const {
  return block_ == nullptr ? 0 : block_->footprint();
}

std::size_t SharedBytes::freed_alone() const {
  return block_ != nullptr && block_->references == 1 ? block_->footprint() : 0;
}

std::size_t SharedBytes::footprint_of(std::size_t bytes) {
  return sizeof(BytesBlock) + MemoryAccount::kBlockBytes + bytes;
}

std::size_t SharedBytes::room() const {
  return block_ == nullptr ? 0
                           : static_cast<std::size_t>(block_->data() + block_->capacity - begin_);
}

void SharedBytes::assign(std::string_view bytes, MemoryAccount* account) {
  // A block that is much larger than its new content is released: it would waste memory.
  const bool fits = block_ != nullptr && block_->references == 1 && bytes.size() <= room() &&
                    block_->capacity <= 2 * bytes.size() + 64;
  if (!fits) {
    *this = copy_of(bytes, account);
    return;
  }
  if (!bytes.empty()) std::memmove(begin_, bytes.data(), bytes.size());
  size_ = bytes.size();
}

void SharedBytes::append(std::string_view bytes, MemoryAccount* account) {
  if (bytes.empty()) return;
  const bool alone = block_ != nullptr && block_->references == 1;
  const bool fits = size_ + bytes.size() <= room();
  if (alone && !fits && begin_ == block_->data()) {
    block_ = resize_block(block_, grown(size_ + bytes.size()), account);
    begin_ = block_->data();
  } else if (!alone || !fits) {
    BytesBlock* block = resize_block(nullptr, grown(size_ + bytes.size()), account);
    copy(block->data(), view());
    copy(block->data() + size_, bytes);
    *this = SharedBytes(block, block->data(), size_ + bytes.size());
    return;
  }
  std::memcpy(begin_ + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

std::size_t SharedBytes::footprint_after_append(std::size_t bytes) const {
  return std::max(footprint(), footprint_of(grown(size_ + bytes)));
}

std::string_view ByteBuffer::view() const {
  return block_ == nullptr ? std::string_view() : std::string_view(block_->data(), size_);
}

std::size_t ByteBuffer::capacity() const {
  return block_ == nullptr ? 0 : block_->capacity;
}

std::size_t ByteBuffer::footprint() const {
  return block_ == nullptr ? 0 : block_->footprint();
}

void ByteBuffer::grow(std::size_t capacity) {
  MUSTER_CHECK(block_ == nullptr || block_->references == 1);
  block_ = resize_block(block_, capacity, account_);
}

void ByteBuffer::append(std::string_view bytes) {
  if (bytes.empty()) return;
  if (size_ + bytes.size() > capacity()) grow(std::max(2 * size_, size_ + bytes.size()));
  std::memcpy(block_->data() + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

std::pair<char*, std::size_t> ByteBuffer::room(std::size_t wanted) {
  constexpr std::size_t kFirstBytes = std::size_t{256} << 10;
  MUSTER_CHECK(wanted > size_);
  if (capacity() < wanted && capacity() - size_ < kFirstBytes / 4)
    grow(std::min(wanted, std::max(2 * capacity(), size_ + kFirstBytes)));
  return {block_->data() + size_, std::min(wanted, capacity()) - size_};
}

void ByteBuffer::erase_front(std::size_t bytes) {
  MUSTER_CHECK(bytes <= size_);
  if (bytes == size_) return clear();
  const std::string_view rest = view().substr(bytes);
  if (block_->references == 1) {
    std::memmove(block_->data(), rest.data(), rest.size());
    size_ = rest.size();
    return;
  }
  BytesBlock* block = resize_block(nullptr, rest.size(), account_);
  copy(block->data(), rest);
  size_ = rest.size();
  release(std::exchange(block_, block));
}

void ByteBuffer::clear() {
  release(std::exchange(block_, nullptr));
  size_ = 0;
}

bool ByteBuffer::mostly(std::string_view part) const {
  const std::less_equal<> in_order;
  return block_ != nullptr && in_order(block_->data(), part.data()) &&
         in_order(part.data() + part.size(), block_->data() + size_) &&
         part.size() >= block_->capacity - block_->capacity / 4;
}

SharedBytes ByteBuffer::share(std::string_view part) {
  ++block_->references;
  return {block_, const_cast<char*>(part.data()), part.size()};
}

}  // namespace muster
