// Certificates, a key and a CA, read once: what the TLS connections of one process have in common.
//
// TLS is OpenSSL's libssl (3 or 1.1.1), loaded only here: docs/decisions/0019-tls.md.
#pragma once

#include <memory>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_engine.h"

namespace muster {

/// PEM files; an empty name: none.
struct TlsFiles {
  std::string certificate;  // This side's, with the CAs between it and the root behind it.
  std::string key;          // Of the certificate, without a passphrase.
  std::string ca;           // Who must have signed the peer's certificate.

  bool any() const { return !certificate.empty() || !key.empty() || !ca.empty(); }
};

struct TlsError {
  std::string reason;  // Which file, what is wrong with it, what to do.
};

enum class TlsSide { Client, Server };

/// TLS 1.3 and nothing older. Good for any thread.
class TlsContext {
 public:
  TlsContext() = default;
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  virtual ~TlsContext() = default;

  /// For one connection. `host`: at the client's side the name or the numeric address that the
  /// server's certificate must be for; not used at the server's side.
  virtual std::unique_ptr<TlsEngine> new_engine(const std::string& host) const = 0;
  virtual TlsSide side() const = 0;
  /// Whether the peer must show a certificate of `ca`. Always at the client's side.
  virtual bool asks_certificate() const = 0;
};
using SharedTlsContext = std::shared_ptr<const TlsContext>;

/// Reads the files. A server needs a certificate and a key, and asks clients for a certificate if
/// there is a `ca`. A client needs a `ca`, and shows a certificate if it has one.
boost::system::result<SharedTlsContext, TlsError> make_tls_context(TlsSide side,
                                                                   const TlsFiles& files);

}  // namespace muster
