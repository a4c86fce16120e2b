// What one client has to do with the runs of its server: the run that it is a member of, the
// account that it counts in, and the run whose keys it waits for. leave() ends all of that.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/messages/native_codec.h"
#include "rendezvous/server/client_socket.h"
#include "rendezvous/server/connection_shared.h"

namespace muster {

class ClientRuns {
 public:
  /// Both must outlive this object.
  ClientRuns(ConnectionShared& shared, ConnectionId id, const ClientSocket& socket)
      : shared_(shared), socket_(socket), id_(id) {}
  ClientRuns(const ClientRuns&) = delete;
  ClientRuns& operator=(const ClientRuns&) = delete;
  ~ClientRuns();

  /// Counts this client to the run, unless it already belongs to one. Returns false if the run has
  /// no room for the client.
  bool enter(std::string_view run);
  /// The account of its run, or null: it belongs to no run. It changes at most once.
  RunAccount* account() const { return account_; }

  /// The run service gets a request of this client, and must be told when the client leaves.
  void become_known() { known_ = true; }
  bool is_known() const { return known_; }
  /// The client is a member of the run that its hello names: c10d clients at its address may use
  /// the run's keys. Only the first call has an effect.
  void become_member(const NativeHello& hello);
  bool is_member() const { return !member_of_.empty(); }
  /// The key of the state of the run that it is a member of.
  const std::string& member_of() const { return member_of_; }

  /// The client waits for keys of the run. It has at most one wait: one for another run ends.
  void wait_for(std::string_view run);
  /// Ends its wait in the store, if there is one.
  void end_wait();
  /// Does the same, but leaves the work to end_wait() or the end of this object.
  void abandon_wait() { shared_.abandon(id_, waits_for_run_); }
  /// Tells the run service when the client begins or ends to wait for a key. A torchrun node has
  /// only one connection, so it cannot send heartbeats while it waits.
  void report_wait(const Request& request);
  bool is_waiting() const { return waits_; }

  /// Leaves the runs, but not its wait and its account.
  void leave();

 private:
  ConnectionShared& shared_;
  const ClientSocket& socket_;
  ConnectionId id_;
  bool known_ = false;  // The run service knows this client.
  bool waits_ = false;  // Whether the client waits, as last reported to the run service.
  RunAccount* account_ = nullptr;
  std::string member_of_;      // The run that shared_.c10d counts it as a member of, or empty.
  std::string waits_for_run_;  // The run whose keys it has last waited for.
};

}  // namespace muster
