// A value, or the error why there is none.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

namespace muster::pickle {

/// Why a pickle was refused, and at which byte of it.
struct PickleError {
  std::size_t offset = 0;
  std::string reason;
  /// True: Python may read this pickle, but it has something that this reader does not read;
  /// `reason` names it. False: the pickle is truncated or malformed, and `reason` says how.
  bool not_supported = false;
};

template <typename T>
class PickleResult {
 public:
  PickleResult(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  PickleResult(PickleError error) : content_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return content_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  /// Only valid if has_value().
  T& operator*() { return *std::get_if<0>(&content_); }
  const T& operator*() const { return *std::get_if<0>(&content_); }
  const T* operator->() const { return std::get_if<0>(&content_); }
  /// Only valid if not has_value().
  const PickleError& error() const { return *std::get_if<1>(&content_); }

 private:
  std::variant<T, PickleError> content_;
};

}  // namespace muster::pickle
