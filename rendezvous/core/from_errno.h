// The kernel's errors as error codes.

#pragma once

#include <boost/system/error_code.hpp>

namespace muster {

/// What errno was after a system call that failed.
inline boost::system::error_code from_errno(int number) {
  return {number, boost::system::system_category()};
}

}  // namespace muster
