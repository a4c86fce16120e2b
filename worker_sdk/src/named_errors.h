// Turns errors of LibTorch and Gloo into c10::Error with the name of the operation. Private.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "muster/error.h"

namespace muster {

/// Returns a text such as: all_reduce in group "0", rank 1 of 4
inline std::string operation_text(const std::string& name, const std::string& group, int rank,
                                  int size) {
  return name + " in group \"" + group + "\", rank " + std::to_string(rank) + " of " +
         std::to_string(size);
}

/// Throws a c10::Error for an exception of another type. Gloo throws such exceptions for a lost
/// peer or a timeout.
[[noreturn]] inline void throw_named(const std::string& what, const std::exception& error) {
  C10_THROW_ERROR(DistBackendError, what + ": " + error.what());
}

/// Runs `call` and returns its result. Calls `describe()` only if `call` throws.
template <class Describe, class Call>
auto with_named_errors(Describe describe, Call call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (c10::Error& error) {
    // NamedGloo may have added the same text.
    const std::string text = describe();
    if (std::string_view(error.what_without_backtrace()).find(text) == std::string_view::npos)
      error.add_context(text);
    throw;
  } catch (const std::exception& error) {
    throw_named(describe(), error);
  }
}

}  // namespace muster
