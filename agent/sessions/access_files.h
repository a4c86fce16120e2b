// The files with this node's token, certificate, key and CA, which may be renewed while a job runs.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "agent/core/agent_options.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/tls/tls_context.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

struct AccessFiles {
  std::string token;  // The path. Empty: no token.
  TlsFiles tls;
  SharedTls client;  // Null: plain TCP.
  SharedTls host;    // Null: this node cannot host with TLS.
  const std::shared_ptr<std::atomic<bool>> reading = std::make_shared<std::atomic<bool>>(false);

  bool any() const { return !token.empty() || client != nullptr; }
};

/// The tokens that a node may prove to a host, or to a workers' store: the file's, and the one that
/// it has proven before. A host that was started earlier may still have that one.
class NodeTokens {
 public:
  /// `first`: the token of the agent's start. Null: this node has none.
  explicit NodeTokens(SharedTokenCrypto first) : proven_(std::move(first)) {}

  /// The file was read again. Null: it could not be read.
  void read(const SharedTokenCrypto& token);
  /// The other side has accepted `token`.
  void proven(const SharedTokenCrypto& token) { proven_ = token; }
  const SharedTokenCrypto& proven() const { return proven_; }
  /// In the order in which to try them; a null one if this node has none.
  std::vector<SharedTokenCrypto> to_try() const;

 private:
  SharedTokenCrypto proven_;
  SharedTokenCrypto newest_;
};

std::shared_ptr<AccessFiles> access_files(const RendezvousOptions& rendezvous);

/// Reads the files again, on another thread and for a bounded time. Later connections use what was
/// read. A file that is missing, incomplete or wrong changes nothing. Returns the token; null if
/// there is none, or none that could be read.
boost::asio::awaitable<SharedTokenCrypto> renew_access(std::shared_ptr<AccessFiles> files);

}  // namespace muster
