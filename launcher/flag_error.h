// Checked<T>: a value, or what is wrong with a flag, for the person who gave it.
#pragma once

#include <string>

#include <boost/system/result.hpp>

namespace muster {

/// Says what was given, where, what is wrong with it and what to do. Ends muster with 1, as
/// torchrun's own checks do; usage errors (argparse.h) end it with 2.
struct FlagError {
  std::string message;
};

template <typename T>
using Checked = boost::system::result<T, FlagError>;

}  // namespace muster
