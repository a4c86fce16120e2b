// The door of muster nodes: serves the messages of the native protocol. A node proves the token
// first, if the server requires one. A connection gets this door with its first native message.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/access/token_proof.h"

namespace muster {

class Connection;
struct ConnectionShared;

class NativeDoor {
 public:
  /// `client` must outlive the door.
  explicit NativeDoor(Connection& client);

  void serve(std::string_view json);
  /// Whether the client has proven that it has the token.
  bool has_proof() const { return gate_ && gate_->open(); }
  /// The kept bytes whose number the client chooses.
  std::size_t memory() const { return gate_ ? gate_->memory() : 0; }

 private:
  void refuse_plain();
  void serve_gate(std::string_view json);
  void serve_message(std::string_view json);
  void serve_reach(std::string_view json);
  std::string refusal_of_certificate(std::string_view json) const;
  void become_member(std::string_view hello);

  Connection& client_;
  ConnectionShared& shared_;
  std::unique_ptr<TokenGate> gate_;  // With a token: exists from the first message on.
};

}  // namespace muster
