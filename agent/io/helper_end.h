// Waits on the control loop until a helper process has ended.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/posix/helper_process.h"
#include "base/from_errno.h"
#include "base/result.h"

namespace muster {

/// A descriptor that becomes readable when `helper` has ended. Fails if no descriptor is left.
inline Result<boost::asio::posix::stream_descriptor> watch_end(boost::asio::io_context& io,
                                                               const HelperProcess& helper) {
  boost::asio::posix::stream_descriptor end(io);
  OwnedFd copy(::fcntl(helper.pidfd(), F_DUPFD_CLOEXEC, 3));
  if (!copy.is_open()) return from_errno(errno);
  boost::system::error_code error;
  end.assign(copy.get(), error);
  if (error) return error;
  copy.release();
  return {boost::system::in_place_value, std::move(end)};
}

}  // namespace muster
