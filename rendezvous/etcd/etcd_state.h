// The state of a run service in etcd, and the right to serve it: several musterds share both.
//
// One thread of its own talks to etcd, as the storage thread of SQLite writes the file:
// docs/decisions/0017-etcd-client.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/etcd/etcd_address.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/service/run_state.h"

namespace muster {

struct EtcdStateOptions {
  EtcdAddress etcd;
  SharedTls tls = {};  // Null: plain HTTP.
  std::string name;    // Of this process, for the others' logs.
  std::int64_t lease_seconds = 3;
  std::size_t history = 1'000;
  /// Where hosts come and go with their runs. etcd removes what is kept when no host has renewed it
  /// for so long, and so long after the host of an ended run has closed. 0: it stays.
  std::int64_t records_seconds = 0;
  std::int64_t ended_records_seconds = 60;
};

/// Called on the storage thread.
struct EtcdStateHandlers {
  /// Each time that the reason changes.
  std::function<void(const std::string& why)> on_standing_by;
  /// Once: load() gives what etcd has, and the runs may be served.
  std::function<void()> on_leading;
  /// Once, and then nothing more: nothing may be acknowledged, whatever load() gave is out of date.
  std::function<void(const std::string& why)> on_lost;
  /// Instead of on_leading: what etcd has cannot be read.
  std::function<void(const std::string& reason)> on_unusable;
  /// Those of EtcdElection::Handlers; may be empty.
  std::function<void(const std::string& value)> on_leader = {};
  std::function<void(const std::string& why)> on_refused = {};
};

/// "HOST (pid N)", a name for the logs of the others.
std::string process_text();

class EtcdRunState : public RunState {
 public:
  /// After on_leading: from now on the leader's key says this instead of the name.
  virtual void announce(std::string value) = 0;
  /// After on_leading: by which address this machine reaches etcd.
  virtual EtcdOwnAddress own_address() const = 0;
  /// Writes what was recorded, if etcd answers soon, and lets another one lead. `closed` is called
  /// on the storage thread, whose last act that is. At most once.
  virtual void close(std::function<void()> closed) = 0;
};

/// Begins to stand by, and to lead when it can. The destructor closes, and waits for that.
std::unique_ptr<EtcdRunState> start_etcd_state(EtcdStateOptions options,
                                               EtcdStateHandlers handlers);

}  // namespace muster
