// LibTorch's and Gloo's errors, as c10::Error that says which operation it was. Private.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include "muster/error.h"

namespace muster {

/// "all_reduce in group \"0\", rank 1 of 4".
inline std::string operation_text(const std::string& name, const std::string& group, int rank,
                                  int size) {
  return name + " in group \"" + group + "\", rank " + std::to_string(rank) + " of " +
         std::to_string(size);
}

/// What Gloo throws (a lost peer, a timeout) is no c10::Error, but is to be one here.
[[noreturn]] inline void throw_named(const std::string& what, const std::exception& error) {
  C10_THROW_ERROR(DistBackendError, what + ": " + error.what());
}

/// Runs `call`; `describe()` is asked only if it throws.
template <class Describe, class Call>
auto with_named_errors(Describe describe, Call call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (c10::Error& error) {
    error.add_context(describe());
    throw;
  } catch (const std::exception& error) {
    throw_named(describe(), error);
  }
}

}  // namespace muster
