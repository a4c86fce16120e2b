// Checked<T>: a value, or an error message about a flag for the user.
#pragma once

#include <string>

#include <boost/system/result.hpp>

namespace muster {

/// The message names the flag and its value, the problem, and what to do. muster then exits with 1,
/// as after torchrun's own checks. After a usage error (argparse.h) it exits with 2.
struct FlagError {
  std::string message;
};

template <typename T>
using Checked = boost::system::result<T, FlagError>;

}  // namespace muster
