// The completion token for coroutines that await Asio operations: an error is part of the result,
// not an exception.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace muster {

/// co_await operation(kNoThrow) gives a tuple whose first element is the error code.
inline constexpr auto kNoThrow = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace muster
