#include "agent/sessions/access_files.h"

#include <functional>
#include <utility>

#include "base/net/bounded_work.h"
#include "rendezvous/access/openssl_token.h"

namespace muster {

namespace asio = boost::asio;

namespace {

struct Read {
  SharedTokenCrypto token;
  SharedTlsContext client;
  SharedTlsContext host;
};

SharedTlsContext context_of(const SharedTls& tls, TlsSide side, const TlsFiles& files) {
  if (!tls) return nullptr;
  auto context = make_tls_context(side, files);
  return context ? *std::move(context) : nullptr;
}

}  // namespace

void NodeTokens::read(const SharedTokenCrypto& token) {
  if (token && proven_) newest_ = token;
}

std::vector<SharedTokenCrypto> NodeTokens::to_try() const {
  if (!newest_ || same_token(newest_, proven_)) return {proven_};
  return {newest_, proven_};
}

std::shared_ptr<AccessFiles> access_files(const RendezvousOptions& rendezvous) {
  auto files = std::make_shared<AccessFiles>();
  if (rendezvous.token) files->token = rendezvous.token_file;
  files->tls = {.certificate = rendezvous.tls_certificate,
                .key = rendezvous.tls_key,
                .ca = rendezvous.tls_ca};
  files->client = rendezvous.tls;
  files->host = rendezvous.host_tls;
  return files;
}

asio::awaitable<SharedTokenCrypto> renew_access(std::shared_ptr<AccessFiles> files) {
  if (!files->any()) co_return nullptr;
  const auto read = std::make_shared<Read>();
  std::function<void()> work = [files, read] {
    if (auto token = load_token(files->token)) read->token = *std::move(token);
    read->client = context_of(files->client, TlsSide::Client, files->tls);
    read->host = context_of(files->host, TlsSide::Server, files->tls);
  };
  if (!co_await reread_in_time(files->reading, std::move(work))) co_return nullptr;
  if (read->client) files->client->renew(read->client);
  if (read->host) files->host->renew(read->host);
  co_return read->token;
}

}  // namespace muster
