// errno values as error codes.

#pragma once

#include <boost/system/error_code.hpp>

namespace muster {

/// `number` is the errno of a failed system call.
inline boost::system::error_code from_errno(int number) {
  return {number, boost::system::system_category()};
}

}  // namespace muster
