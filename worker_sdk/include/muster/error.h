// What the worker SDK throws.
#pragma once

#include <stdexcept>

namespace muster {

/// Every error that the SDK itself finds: the text says what is wrong, with which value, and what
/// to do. Errors that LibTorch finds (a timeout, a lost peer, a wrong shape) stay c10::Error, as
/// LibTorch's users expect; both are std::exception.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace muster
