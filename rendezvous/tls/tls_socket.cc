#include "rendezvous/tls/tls_socket.h"

#include <utility>

#include <boost/asio/ip/address.hpp>
#include <spdlog/spdlog.h>

#include "base/printable_text.h"
#include "base/system/clock.h"
#include "base/system/log_limiter.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

boost::system::result<SecuredSocket> secure_socket(asio::ip::tcp::socket& socket, TlsPump& tls,
                                                   const std::string& host) {
  error_code gone;
  SecuredSocket secured;
  secured.local = socket.local_endpoint(gone);
  if (!gone) secured.remote = socket.remote_endpoint(gone);
  if (gone) return gone;
  error_code ec;
  OwnedFd tcp(socket.release(ec));
  if (ec) return ec;
  auto joined = tls.join(std::move(tcp), host);
  if (!joined) return joined.error();
  // Asio reads and writes the plain end like any stream. Functions that need the TCP socket use
  // `status`.
  socket.assign(secured.local.protocol(), joined->plain.get(), ec);
  if (ec) return ec;
  joined->plain.release();
  secured.status = std::move(joined->status);
  return secured;
}

SharedTls make_tls_server(SharedTlsContext context) {
  // Only the pump's thread uses the limiter.
  const auto log = std::make_shared<LogLimiter>();
  return std::make_shared<TlsPump>(std::move(context),
                                   [log](const std::string& peer, const TlsFailure& failure) {
                                     error_code ignored;
                                     const auto address = asio::ip::make_address(peer, ignored);
                                     const auto left_out = log->admit(now(), "tls", address);
                                     if (!left_out) return;
                                     spdlog::warn("tls_failed peer={} reason=\"{}\" left_out={}",
                                                  peer, printable_text(failure.reason), *left_out);
                                   });
}

SharedTls make_tls_client(SharedTlsContext context) {
  return std::make_shared<TlsPump>(std::move(context));
}

}  // namespace muster
