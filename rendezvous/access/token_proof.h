// The token of a rendezvous: how a node and a host of the native door prove to each other that they
// have the token, without sending it.
//
// Pure: the primitives (a keyed hash, a comparison in constant time, random numbers) are behind
// TokenCrypto, and tests use their own. docs/protocol.md has the messages, docs/security.md
// describes their purpose.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/messages/native_codec.h"

namespace muster {

/// A token and the operations with it. May be used by several threads: it never changes.
class TokenCrypto {
 public:
  static constexpr std::size_t kNonceBytes = 32;

  virtual ~TokenCrypto() = default;
  /// kNonceBytes bytes that cannot be predicted and never repeat.
  virtual std::string nonce() const = 0;
  /// HMAC-SHA-256 of `text`, with the token as the key: 32 bytes.
  virtual std::string mac(std::string_view text) const = 0;
  /// Whether both are equal. The time does not depend on the place of a difference.
  virtual bool equal(std::string_view a, std::string_view b) const = 0;
};
using SharedTokenCrypto = std::shared_ptr<const TokenCrypto>;
/// Whether both are the same token. Null is one, too.
bool same_token(const SharedTokenCrypto& one, const SharedTokenCrypto& other);

/// The tokens that a host requires. May be used by several threads: they never change.
class HostTokens {
 public:
  using OfRuns = std::map<std::string, SharedTokenCrypto, std::less<>>;

  /// `common` is the token of all runs without a token of their own. It must not be null.
  explicit HostTokens(SharedTokenCrypto common, OfRuns of_runs = {})
      : common_(std::move(common)), of_runs_(std::move(of_runs)) {}

  const TokenCrypto& of(std::string_view run) const {
    const auto own = of_runs_.find(run);
    return own == of_runs_.end() ? *common_ : *own->second;
  }

 private:
  SharedTokenCrypto common_;
  OfRuns of_runs_;
};
using SharedHostTokens = std::shared_ptr<const HostTokens>;

/// The node's side of the proof, for one connection.
class TokenClaim {
 public:
  explicit TokenClaim(const TokenCrypto& crypto);

  /// The nonce for the first message (hello or reach). It shows that the node has a token.
  const std::string& nonce() const { return nonce_; }
  /// Answers the host's challenge. `first_json` is the first message as it was sent.
  NativeProve answer(const NativeChallenge& challenge, std::string_view first_json);
  /// Whether the host has the token. `proof` is from the host's answer to the first message. Always
  /// false before answer().
  bool is_host(std::string_view proof) const;

 private:
  const TokenCrypto& crypto_;
  std::string nonce_;
  std::string expected_;
};

/// The host's side of the proof, for one connection. The host serves no message before the gate is
/// open.
class TokenGate {
 public:
  explicit TokenGate(SharedHostTokens tokens) : tokens_(std::move(tokens)) {}

  struct Step {
    std::optional<NativeMessage> reply = {};
    std::string close = {};  // Why to close the connection after `reply`; empty: it stays open.
    std::string_view cause = "token refused";  // For the log limiter. The text is static.
    /// The first message, which must be served now. If open(), its answer must have host_proof().
    std::optional<std::string> serve = {};
  };
  /// Handles a message that came before the gate was open.
  Step receive(std::string_view json);
  bool open() const { return phase_ == Phase::Open; }
  /// This host's own proof, once the gate is open.
  const std::string& host_proof() const { return host_proof_; }
  /// The kept bytes whose number the client chooses.
  std::size_t memory() const { return first_json_.capacity(); }

 private:
  enum class Phase { First, Challenged, Open };
  Step receive_first(std::string_view json);
  Step receive_proof(const NativeProve& prove);

  const SharedHostTokens tokens_;
  const TokenCrypto* crypto_ = nullptr;  // The token of the first message's run.
  Phase phase_ = Phase::First;
  std::string first_json_;
  std::string nonce_;
  std::string host_proof_;
};

}  // namespace muster
