// The door of PyTorch's clients: serves the requests of the c10d protocol from the store, and those
// for the state of a run from the run service. A connection uses it until its first native message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/host/run_service.h"
#include "rendezvous/store/store_request.h"

namespace muster {

class Connection;
struct ConnectionShared;

class StoreDoor {
 public:
  /// `client` must outlive the door.
  explicit StoreDoor(Connection& client);

  /// Whether this client was found to be allowed to use the store. Once true, it stays so.
  bool is_open() const { return open_; }
  /// Finds out whether the client may use the store. If not, refuses it, and returns false.
  bool open();
  void serve(const Request& request);

 private:
  bool stays_in_run(const Request& request);
  bool fits_in_run(const Request& request);
  bool about_runs(const Request& request) const;
  void serve_state(const Request& request);
  void compare_set_state(const Request& request);
  bool return_key_to_store(const Request& request);
  bool refuse_plant(const Request& request);
  void warn_of_other_use(const std::string& what) const;
  void list_keys_of_run();
  bool may_build(std::size_t reply_bytes);
  Reply apply(const Request& request);
  void send_reply(const Reply& reply);

  Connection& client_;
  ConnectionShared& shared_;
  bool open_;
  std::string run_scope_;  // With runs_apart: the only run whose keys the client may use.
};

}  // namespace muster
