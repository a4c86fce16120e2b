// The certificate, key and CA of a process. They are read once and shared by its TLS connections.
//
// TLS uses OpenSSL's libssl (3 or 1.1.1), which is loaded only here: docs/decisions/0019-tls.md.
#pragma once

#include <memory>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_engine.h"

namespace muster {

/// Paths of PEM files. An empty path: no file.
struct TlsFiles {
  std::string certificate;  // The own certificate, followed by the CAs between it and the root.
  std::string key;          // The key of the certificate, without a passphrase.
  std::string ca;           // The CA that must have signed the peer's certificate.

  bool any() const { return !certificate.empty() || !key.empty() || !ca.empty(); }
};

struct TlsError {
  std::string reason;  // The file, what is wrong with it, and what to do.
};

enum class TlsSide { Client, Server };

/// For TLS 1.3 only. May be used on any thread.
class TlsContext {
 public:
  TlsContext() = default;
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  virtual ~TlsContext() = default;

  /// Creates the engine of one connection. At a client, `host` is the name or the numeric address
  /// that the server's certificate must have. A server does not use it.
  virtual std::unique_ptr<TlsEngine> new_engine(const std::string& host) const = 0;
  virtual TlsSide side() const = 0;
  /// Whether the peer must have a certificate that `ca` has signed. Always true at a client.
  virtual bool asks_certificate() const = 0;
};
using SharedTlsContext = std::shared_ptr<const TlsContext>;

/// Reads the files. A server needs a certificate and a key, and asks clients for a certificate if
/// there is a `ca`. A client needs a `ca`, and sends a certificate if it has one.
boost::system::result<SharedTlsContext, TlsError> make_tls_context(TlsSide side,
                                                                   const TlsFiles& files);

}  // namespace muster
