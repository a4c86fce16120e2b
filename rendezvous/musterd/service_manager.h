// Notifies the service manager about this daemon: ready, status, watchdog, stopping.
//
// Uses sd_notify(3) of libsystemd, which is loaded only if NOTIFY_SOCKET is set: elsewhere the
// program does not need the library. Without NOTIFY_SOCKET every call does nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace muster {

/// To be used on the io_context's thread, or while it does not run.
class ServiceManager {
 public:
  /// `status` returns the line that `systemctl status` shows. It is called on the io_context's
  /// thread. Logs one warning if there is a service manager that cannot be notified.
  ServiceManager(boost::asio::io_context& loop, std::function<std::string()> status);
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;
  ~ServiceManager();

  /// Reports that the service is ready. From now on a timer on the io_context updates the status
  /// and, if the manager has a watchdog (WatchdogSec=), notifies it twice in each of its intervals.
  /// So the manager detects a loop that hangs, whatever else the process does.
  void ready();
  /// Reports that the service ends. The io_context has nothing more to do for this object.
  void stopping();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;  // Null: there is no service manager to notify.
};

}  // namespace muster
