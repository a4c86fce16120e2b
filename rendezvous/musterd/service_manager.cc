#include "rendezvous/musterd/service_manager.h"

#include <dlfcn.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "base/system/library_function.h"

namespace muster {
namespace {

using std::chrono::microseconds;

// How often the status is updated, unless the watchdog has a shorter interval.
constexpr microseconds kStatusInterval = std::chrono::seconds(10);

struct LibSystemd {
  static constexpr const char* kLibrary = "libsystemd.so.0";

  decltype(&sd_notify) notify = nullptr;
  decltype(&sd_watchdog_enabled) watchdog_enabled = nullptr;

  /// Loads the library, which stays loaded. Returns an empty text, or what is missing.
  std::string open() {
    void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return ::dlerror();
    const bool complete = find_function(library, "sd_notify", notify) &&
                          find_function(library, "sd_watchdog_enabled", watchdog_enabled);
    return complete ? std::string() : ::dlerror();
  }
};

}  // namespace

class ServiceManager::Impl {
 public:
  Impl(boost::asio::io_context& loop, std::function<std::string()> status, LibSystemd systemd)
      : timer_(loop), status_(std::move(status)), systemd_(systemd) {
    std::uint64_t timeout_us = 0;
    const int enabled = systemd_.watchdog_enabled(0, &timeout_us);
    if (enabled < 0)
      spdlog::warn("watchdog_unknown reason=\"sd_watchdog_enabled: {}\"", std::strerror(-enabled));
    watchdog_ = enabled > 0;
    // Half of the timeout, as sd_watchdog_enabled(3) recommends. A timeout of 1 us must not become
    // a busy loop.
    if (watchdog_)
      interval_ = std::clamp(microseconds(timeout_us / 2), microseconds(1000), kStatusInterval);
  }

  void ready() {
    last_status_ = status_();
    notify(fmt::format("READY=1\nSTATUS={}", last_status_));
    arm();
  }

  void stopping() {
    timer_.cancel();
    stopping_ = true;
    notify("STOPPING=1\nSTATUS=stopping");
  }

 private:
  void arm() {
    timer_.expires_after(interval_);
    timer_.async_wait([this](const boost::system::error_code& ec) {
      // If the timer had already expired when it was cancelled, the handler gets no error.
      if (ec || stopping_) return;
      tick();
      arm();
    });
  }

  void tick() {
    std::string message;
    if (watchdog_) message = "WATCHDOG=1";
    if (std::string status = status_(); status != last_status_) {
      message += fmt::format("{}STATUS={}", message.empty() ? "" : "\n", status);
      last_status_ = std::move(status);
    }
    if (!message.empty()) notify(message);
  }

  void notify(const std::string& message) {
    const int sent = systemd_.notify(0, message.c_str());
    if (sent >= 0 || std::exchange(warned_, true)) return;
    const char* socket = std::getenv("NOTIFY_SOCKET");
    spdlog::warn("service_manager_not_told socket={} reason=\"sd_notify: {}\"",
                 socket == nullptr ? "" : socket, std::strerror(-sent));
  }

  boost::asio::steady_timer timer_;
  std::function<std::string()> status_;
  LibSystemd systemd_;
  microseconds interval_ = kStatusInterval;
  std::string last_status_;
  bool watchdog_ = false;
  bool stopping_ = false;
  bool warned_ = false;
};

ServiceManager::ServiceManager(boost::asio::io_context& loop, std::function<std::string()> status) {
  const char* socket = std::getenv("NOTIFY_SOCKET");
  if (socket == nullptr || *socket == '\0') return;
  LibSystemd systemd;
  if (const std::string missing = systemd.open(); !missing.empty()) {
    spdlog::warn(
        "service_manager_not_told socket={} reason=\"{}\": it will take this service for one that "
        "does not start. Install libsystemd (libsystemd0 in Debian and Ubuntu, systemd-libs in "
        "Fedora and Red Hat), or write Type=exec and no WatchdogSec= in the unit",
        socket, missing);
    return;
  }
  impl_ = std::make_unique<Impl>(loop, std::move(status), systemd);
}

ServiceManager::~ServiceManager() = default;

void ServiceManager::ready() {
  if (impl_) impl_->ready();
}

void ServiceManager::stopping() {
  if (impl_) impl_->stopping();
}

}  // namespace muster
