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
#include "rendezvous/service/run_state.h"

namespace muster {

struct EtcdStateOptions {
  EtcdAddress etcd;
  std::string name;  // Of this process, for the others' logs.
  std::int64_t lease_seconds = 3;
  std::size_t history = 1'000;
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
};

/// Begins to stand by, and to lead when it can. The destructor writes what was recorded, if etcd
/// answers soon, and lets another one lead.
std::unique_ptr<RunState> start_etcd_state(EtcdStateOptions options, EtcdStateHandlers handlers);

}  // namespace muster
