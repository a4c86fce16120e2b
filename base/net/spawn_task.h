// co_spawn for coroutines that no other coroutine awaits. Their failure must not be silent.
#pragma once

#include <exception>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>

namespace muster {

/// Writes the error to stderr and ends the process. It does not use the log: the thread that writes
/// the log's lines would end before it had written this one.
[[noreturn]] void end_after_failed_task(const char* name, const std::exception_ptr& error);

/// Starts `task`. An exception that leaves the task is a bug: it ends the process with a message.
/// `name` is for the message, and must be a literal, because it must live as long as the task.
inline void spawn_task(const boost::asio::any_io_executor& executor, const char* name,
                       boost::asio::awaitable<void> task) {
  boost::asio::co_spawn(executor, std::move(task), [name](const std::exception_ptr& error) {
    if (error) end_after_failed_task(name, error);
  });
}

}  // namespace muster
