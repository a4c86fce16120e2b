// What a service manager is told of a daemon: ready, what it does, still alive, stopping.
//
// Speaks sd_notify(3) through libsystemd, which is loaded only where NOTIFY_SOCKET is set: the
// program needs no such library elsewhere. Without NOTIFY_SOCKET every call does nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace muster {

/// To be used on the io_context's thread, or while it does not run.
class ServiceManager {
 public:
  /// `status` gives the line that `systemctl status` shows; it is asked on the io_context's thread.
  /// Logs one warning if there is somebody to tell and no way to.
  ServiceManager(boost::asio::io_context& loop, std::function<std::string()> status);
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;
  ~ServiceManager();

  /// The service is up. From now on a timer on the io_context renews the status and, if the manager
  /// wants that (WatchdogSec=), says twice in each of its intervals that the loop turns: a loop
  /// that does not is noticed, whatever else the process does.
  void ready();
  /// The service ends on purpose. The io_context has nothing more to do for this object.
  void stopping();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;  // Empty: nobody to tell.
};

}  // namespace muster
