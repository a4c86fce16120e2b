// The machine of the reader: the pickle's bytes, the stack, the memo, and the counters for limits.
// Only for pickle/reader.cc.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pickle/reader.h"

namespace muster::pickle {

class Machine {
 protected:
  static constexpr Ref kMark = 0xffffffff;     // Only on the stack.
  static constexpr Ref kNotMade = 0xffffffff;  // Only for shared values that do not exist yet.

  Machine(std::string_view bytes, Graph& graph, const PickleLimits& limits)
      : bytes_(bytes), graph_(graph), limits_(limits) {
    small_integers_.fill(kNotMade);
  }

  void fail(std::string reason) {
    if (!failed_) failed_ = PickleError{.offset = at_, .reason = std::move(reason)};
  }
  /// Fails on a pickle that Python's unpickler may read, but this reader or its Rules do not.
  void refuse(std::string what) {
    if (!failed_)
      failed_ = PickleError{.offset = at_, .reason = std::move(what), .not_supported = true};
  }
  std::string_view consume(std::uint64_t count) {
    if (count > bytes_.size() - position_) {
      fail("truncated");
      return {};
    }
    const auto taken = bytes_.substr(position_, static_cast<std::size_t>(count));
    position_ += taken.size();
    return taken;
  }
  std::uint64_t number(std::size_t width) {
    std::uint64_t value = 0;
    const auto taken = consume(width);
    for (std::size_t i = 0; i < taken.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return value;
  }

  Ref make(Kind kind, std::int64_t number = 0, std::string_view text = {}) {
    constexpr std::size_t kValuesOfAnyPickle = 16;
    if (made_ >= limits_.values ||
        made_ >= bytes_.size() / limits_.bytes_per_value + kValuesOfAnyPickle) {
      fail("more values than a pickle of this size may hold");
      return 0;
    }
    ++made_;
    return graph_.add({.kind = kind,
                       .offset = static_cast<std::uint32_t>(
                           std::min<std::size_t>(at_, std::numeric_limits<std::uint32_t>::max())),
                       .number = number,
                       .text = text,
                       .items = {}});
  }
  Ref make(Kind kind, std::vector<Ref> items) {
    const Ref made = make(kind);
    if (!failed_) graph_.at(made).items = std::move(items);
    return made;
  }
  /// As in CPython, there is one None, one True, one False, one empty tuple, and one of each small
  /// integer.
  void push_shared(Ref& shared, Kind kind, std::int64_t number = 0) {
    if (shared == kNotMade) {
      const Ref made = make(kind, number);
      if (failed_) return;
      shared = made;
    }
    push(shared);
  }
  void integer(std::int64_t value) {
    if (value >= 0 && static_cast<std::uint64_t>(value) < small_integers_.size())
      return push_shared(small_integers_[static_cast<std::size_t>(value)], Kind::Integer, value);
    push(Kind::Integer, value);
  }
  void push(Ref ref) {
    if (stack_.size() >= limits_.stack) return fail("the stack is deeper than the limit");
    stack_.push_back(ref);
  }
  void push(Kind kind, std::int64_t number = 0, std::string_view text = {}) {
    const Ref ref = make(kind, number, text);
    if (!failed_) push(ref);
  }
  std::optional<Ref> pop() {
    if (stack_.empty() || stack_.back() == kMark) {
      fail("stack underflow");
      return std::nullopt;
    }
    const Ref ref = stack_.back();
    stack_.pop_back();
    return ref;
  }
  std::optional<std::vector<Ref>> pop_to_mark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), kMark);
    if (mark == stack_.rend()) {
      fail("no mark");
      return std::nullopt;
    }
    std::vector<Ref> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return items;
  }
  Value* top(Kind kind, const char* otherwise) {
    if (stack_.empty() || stack_.back() == kMark || !graph_.is(stack_.back(), kind)) {
      fail(otherwise);
      return nullptr;
    }
    return &graph_.at(stack_.back());
  }

  /// Python's picklers number memo entries without a gap. So the next number is the number of
  /// entries, which CPython's MEMOIZE uses, and the memo needs no memory for unused numbers.
  void memoize(std::uint64_t index) {
    if (failed_) return;
    if (stack_.empty() || stack_.back() == kMark) return fail("nothing to memoize");
    if (index > memo_.size()) return fail("memo " + std::to_string(index) + " leaves a gap");
    if (index == memo_.size())
      memo_.push_back(stack_.back());
    else
      memo_[static_cast<std::size_t>(index)] = stack_.back();
  }
  void get(std::uint64_t index) {
    if (failed_) return;
    if (index >= memo_.size()) return fail("memo " + std::to_string(index) + " was never stored");
    push(memo_[static_cast<std::size_t>(index)]);
  }

  /// A line of text, without its line feed.
  std::string_view line() {
    constexpr std::size_t kMaxLineBytes = 128;
    const auto end = bytes_.substr(position_, kMaxLineBytes).find('\n');
    if (end == std::string_view::npos) {
      fail("a name without an end");
      return {};
    }
    const auto taken = consume(end);
    position_ += 1;
    return taken;
  }

  std::string_view bytes_;
  Graph& graph_;
  const PickleLimits& limits_;
  std::size_t position_ = 0;
  std::size_t at_ = 0;  // The position of the current opcode.
  std::vector<Ref> stack_;
  std::vector<Ref> memo_;
  std::size_t made_ = 0;    // The number of values.
  std::size_t copied_ = 0;  // Bytes of texts that were copied as bytes objects.
  Ref none_ = kNotMade;
  Ref true_ = kNotMade;
  Ref false_ = kNotMade;
  Ref empty_tuple_ = kNotMade;
  std::array<Ref, 256> small_integers_{};
  std::optional<PickleError> failed_;
};

}  // namespace muster::pickle
