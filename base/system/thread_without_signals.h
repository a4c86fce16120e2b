// Starts threads that handle no signals.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace muster {

/// Starts a thread in which all signals are blocked, so that other threads handle them. Throws
/// std::system_error, as std::thread does.
template <typename Run>
std::thread thread_without_signals(Run run) {
  struct Mask {
    Mask() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    Mask(const Mask&) = delete;
    Mask& operator=(const Mask&) = delete;
    ~Mask() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before{};
  };
  const Mask mask;  // A new thread inherits the mask of its creator.
  return std::thread(std::move(run));
}

}  // namespace muster
