// The rendezvous' token: how a node and a host of the native door prove to each other that they
// have it, without sending it.
//
// Pure: the primitives (a keyed hash, a comparison in constant time, random numbers) are behind
// TokenCrypto, and tests put others there. docs/protocol.md has the messages, docs/security.md what
// they are good for.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/wire/native_codec.h"

namespace muster {

/// What a token is good for, with the token inside. For any thread: nothing in it changes.
class TokenCrypto {
 public:
  static constexpr std::size_t kNonceBytes = 32;

  virtual ~TokenCrypto() = default;
  /// kNonceBytes bytes that nobody can foresee, and that never come again.
  virtual std::string nonce() const = 0;
  /// HMAC-SHA-256 of `text`, with the token as the key: 32 bytes.
  virtual std::string mac(std::string_view text) const = 0;
  /// Whether both are the same. The time does not depend on where they differ.
  virtual bool equal(std::string_view a, std::string_view b) const = 0;
};
using SharedTokenCrypto = std::shared_ptr<const TokenCrypto>;

/// The tokens that a host asks for. For any thread: nothing in it changes.
class HostTokens {
 public:
  using OfRuns = std::map<std::string, SharedTokenCrypto, std::less<>>;

  /// `common` is not null: the token of all runs that have none of their own.
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

/// A node's side, for one connection.
class TokenClaim {
 public:
  explicit TokenClaim(const TokenCrypto& crypto);

  /// For the first message (hello or reach): says that the node has a token.
  const std::string& nonce() const { return nonce_; }
  /// Answers the host's challenge. `first_json`: the first message as it was sent.
  NativeProve answer(const NativeChallenge& challenge, std::string_view first_json);
  /// Whether the host has the token: `proof` came with the answer to the first message. Never
  /// before answer().
  bool is_host(std::string_view proof) const;

 private:
  const TokenCrypto& crypto_;
  std::string nonce_;
  std::string expected_;
};

/// A host's side, for one connection: nothing of it is served before the gate is open.
class TokenGate {
 public:
  explicit TokenGate(SharedHostTokens tokens) : tokens_(std::move(tokens)) {}

  struct Step {
    std::optional<NativeMessage> reply = {};
    std::string close = {};  // Why the connection is to be closed after `reply`; empty: it stays.
    std::string_view cause = "token refused";  // For the log's limiter; lives for ever.
    /// The first message, which is to be served now. Its answer has host_proof() in it if open().
    std::optional<std::string> serve = {};
  };
  /// A message that came before the gate was open.
  Step receive(std::string_view json);
  bool open() const { return phase_ == Phase::Open; }
  /// This host's own proof, once the gate is open.
  const std::string& host_proof() const { return host_proof_; }
  /// Bytes that are kept for the client, of which it chooses the number.
  std::size_t memory() const { return first_json_.capacity(); }

 private:
  enum class Phase { First, Challenged, Open };
  Step receive_first(std::string_view json);
  Step receive_proof(const NativeProve& prove);

  const SharedHostTokens tokens_;
  const TokenCrypto* crypto_ = nullptr;  // Of the run that the first message names.
  Phase phase_ = Phase::First;
  std::string first_json_;
  std::string nonce_;
  std::string host_proof_;
};

}  // namespace muster
