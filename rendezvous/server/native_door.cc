#include "rendezvous/server/native_door.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/system/clock.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/server/connection.h"

namespace muster {

NativeDoor::NativeDoor(Connection& client) : client_(client), shared_(client.shared()) {}

void NativeDoor::serve(std::string_view json) {
  ++shared_.traffic.native_messages;
  if (shared_.tls && !client_.socket().is_secure()) return refuse_plain();
  if (client_.owes_token_proof()) return serve_gate(json);
  serve_message(json);
}

/// Refuses a node that does not use TLS.
void NativeDoor::refuse_plain() {
  const std::string text =
      "it speaks TLS with nodes: give this node --rdzv-tls-ca FILE, the CA that has signed the "
      "host's certificate";
  client_.out().add(encode(NativeMessage(NativeRefused{text})));
  client_.refuse_request("native message: not through TLS", "not through TLS");
}

/// Handles a message of a client that has not proven the token yet.
void NativeDoor::serve_gate(std::string_view json) {
  if (!gate_) gate_ = std::make_unique<TokenGate>(shared_.tokens);
  const TokenGate::Step step = gate_->receive(json);
  if (step.reply) client_.out().add(encode(*step.reply));
  if (!step.close.empty()) return client_.refuse_request(step.close, step.cause);
  if (!step.serve) return;
  serve_message(*step.serve);
  if (!gate_->open()) client_.refuse_request("native message: not a first one", "token not proven");
}

/// Why --tls-allow keeps this client out of the run that its hello names. Empty: it does not.
std::string NativeDoor::refusal_of_certificate(std::string_view json) const {
  if (!shared_.tls_rules || client_.runs().is_member()) return {};
  const auto request = decode_native_request(json, client_.id());
  const auto* hello = request ? std::get_if<NativeHello>(&*request) : nullptr;
  if (hello == nullptr) return {};  // The run service refuses it: it is not a first message.
  const auto names = client_.socket().peer_names();
  if (shared_.tls_rules->scope_of(names).admits(hello->run_id)) return {};
  return not_in_scope_text(hello->run_id, names);
}

void NativeDoor::become_member(std::string_view hello) {
  const auto request = decode_native_request(hello, client_.id());
  const auto* said = request ? std::get_if<NativeHello>(&*request) : nullptr;
  if (said != nullptr) client_.runs().become_member(*said);
}

void NativeDoor::serve_message(std::string_view json) {
  if (!shared_.runs) return serve_reach(json);
  const std::string proof = gate_ ? gate_->host_proof() : std::string();
  if (const std::string text = refusal_of_certificate(json); !text.empty()) {
    client_.out().add(encode(NativeMessage(NativeRefused{text, proof})));
    return client_.refuse_request("native hello refused: " + text, "certificate of another run");
  }
  client_.runs().become_known();
  NativeAnswer answer = shared_.runs->receive(
      client_.id(), json, client_.socket().peer_address().to_string(), shared_.time());
  if (answer.reply) {
    if (auto* welcome = std::get_if<NativeWelcome>(&*answer.reply)) {
      welcome->proof = proof;
      welcome->peer_end = end_text(client_.socket().peer());
      welcome->own_end = end_text(client_.socket().local());
      become_member(json);
      if (!client_.runs().enter(client_.runs().member_of())) {
        answer.close = shared_.accounts.too_many_connections();
        answer.cause = "limit run_connections";
        answer.reply = NativeRefused{answer.close};
      }
    }
    if (auto* refused = std::get_if<NativeRefused>(&*answer.reply)) refused->proof = proof;
    client_.out().add(encode(*answer.reply));
  }
  if (answer.close.empty()) return;
  if (answer.is_fault) return client_.refuse_request(answer.close, answer.cause);
  client_.turn_away(answer.close, answer.cause);
}

/// Answers the question of a node at a workers' store, which has no rendezvous.
void NativeDoor::serve_reach(std::string_view json) {
  const auto request = decode_native_request(json, client_.id());
  if (!request)
    return client_.refuse_request("native message: " + describe(request.error()),
                                  "native message refused");
  const auto* reach = std::get_if<NativeReach>(&*request);
  if (reach == nullptr)
    return client_.refuse_request("native message: no rendezvous is here",
                                  "native message refused");
  if (gate_ && reach->run_id != shared_.token_run)
    return client_.refuse_request("native message: a node of another run asks for this one's",
                                  "native message refused");
  if (gate_) shared_.c10d.introduced(client_.socket().peer_address());
  NativeReached reached;
  if (const auto whole_at = shared_.reach(*reach)) {
    reached.whole = true;
    reached.age = std::max(Duration::zero(), now() - *whole_at);
  }
  if (gate_) reached.proof = gate_->host_proof();
  client_.out().add(encode(NativeMessage(reached)));
}

}  // namespace muster
