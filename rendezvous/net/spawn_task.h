// co_spawn for coroutines that no other coroutine awaits. Their failure must not be silent.
#pragma once

#include <cstdlib>
#include <exception>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <spdlog/spdlog.h>

namespace muster {

/// Starts `task`. An exception that leaves the task is a bug: it is logged and ends the process.
/// `name` is for the log, and must be a literal, because it must live as long as the task.
inline void spawn_task(const boost::asio::any_io_executor& executor, const char* name,
                       boost::asio::awaitable<void> task) {
  boost::asio::co_spawn(executor, std::move(task), [name](const std::exception_ptr& error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      spdlog::critical("task_failed task={} error=\"{}\"", name, e.what());
    } catch (...) {
      spdlog::critical("task_failed task={} error=\"not a std::exception\"", name);
    }
    std::abort();
  });
}

}  // namespace muster
