// The exception of the worker SDK.
#pragma once

#include <stdexcept>

namespace muster {

/// An error that the SDK itself finds. The text says what is wrong, with which value, and what to
/// do. An error that LibTorch finds (a timeout, a lost peer, a wrong shape) is a c10::Error, as
/// LibTorch's users expect. Both are a std::exception.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace muster
