// Keeps the state of a run service in etcd, and elects the host that may serve it. Several hosts
// share the state.
//
// Its own thread talks to etcd, like the storage thread of SQLite:
// docs/decisions/0017-etcd-client.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/state/etcd/etcd_address.h"
#include "rendezvous/state/etcd/etcd_client.h"
#include "rendezvous/state/run_state.h"

namespace muster {

struct EtcdStateOptions {
  EtcdAddress etcd;
  SharedTls tls = {};                            // Null: plain HTTP.
  std::shared_ptr<EtcdTlsFiles> tls_files = {};  // As in EtcdPeers.
  std::string name;  // The name of this process in the logs of the others.
  std::int64_t lease_seconds = 3;
  std::size_t history = 1'000;
  /// For hosts that serve one run. etcd removes the records if no host has renewed them for
  /// records_seconds (0: the records stay), and ended_records_seconds after the host of an ended
  /// run has closed.
  std::int64_t records_seconds = 0;
  std::int64_t ended_records_seconds = 60;
};

/// All handlers are called on the storage thread.
struct EtcdStateHandlers {
  /// Called each time that the reason changes.
  std::function<void(const std::string& why)> on_standing_by;
  /// Called once: load() returns the state from etcd, and the runs may be served.
  std::function<void()> on_leading;
  /// Called once, as the last handler: nothing may be acknowledged any more, and the state from
  /// load() is out of date.
  std::function<void(const std::string& why)> on_lost;
  /// Called instead of on_leading: the records in etcd cannot be read.
  std::function<void(const std::string& reason)> on_unusable;
  /// As in EtcdElection::Handlers. Both may be empty.
  std::function<void(const std::string& value)> on_leader = {};
  std::function<void(const std::string& why)> on_refused = {};
};

/// "HOST (pid N)": the name of this process in the logs of the others.
std::string process_text();

class EtcdRunState : public RunState {
 public:
  /// After on_leading: sets the value of the leader's key, which has the name until then.
  virtual void announce(std::string value) = 0;
  /// After on_leading: the address of this machine on the connection to etcd.
  virtual EtcdOwnAddress own_address() const = 0;
  /// Writes the recorded changes if etcd answers soon, and lets another host lead. `closed` is
  /// called on the storage thread just before that thread ends. To be called at most once.
  virtual void close(std::function<void()> closed) = 0;
};

/// Starts to stand by, and leads when it can. The destructor calls close() and waits for its end.
/// Throws std::system_error if there can be no thread for it.
std::unique_ptr<EtcdRunState> start_etcd_state(const EtcdStateOptions& options,
                                               EtcdStateHandlers handlers);

}  // namespace muster
