#include "launcher/tls_setup.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/core/tls_allow.h"

namespace muster {
namespace {

Checked<void> take(const Flags& flags, OptionId id, const std::optional<std::string>& given,
                   RendezvousBackend backend, std::string& file) {
  if (!given) return {};
  if (given->empty()) return FlagError{flags.name_of(id) + " is empty; give a file's name"};
  if (backend == RendezvousBackend::Static)
    return FlagError{flags.name_of(id) +
                     " cannot protect the static backend, whose store speaks no TLS; give "
                     "--rdzv-backend c10d"};
  file = *given;
  return {};
}

/// The certificates that a rendezvous here lets in. It serves one run only.
Checked<void> take_allowed(const Flags& flags, RendezvousOptions& to) {
  if (!flags.rdzv_tls_allow) return {};
  const std::string name = flags.name_of(OptionId::RdzvTlsAllow);
  if (to.tls_certificate.empty())
    return FlagError{name +
                     " is for a rendezvous that this node hosts with TLS; give --rdzv-tls-ca, "
                     "--rdzv-tls-cert and --rdzv-tls-key, too"};
  auto allow = parse_tls_allow_names(*flags.rdzv_tls_allow);
  if (!allow) return FlagError{name + ": " + allow.error().reason};
  to.tls_allow = std::make_shared<const TlsAllow>(*std::move(allow));
  return {};
}

}  // namespace

Checked<void> plan_tls(const Flags& flags, RendezvousOptions& to) {
  const RendezvousBackend backend = to.backend;
  for (const auto& taken :
       {take(flags, OptionId::RdzvTlsCa, flags.rdzv_tls_ca, backend, to.tls_ca),
        take(flags, OptionId::RdzvTlsCert, flags.rdzv_tls_cert, backend, to.tls_certificate),
        take(flags, OptionId::RdzvTlsKey, flags.rdzv_tls_key, backend, to.tls_key)})
    if (!taken) return taken;
  if (to.tls_certificate.empty() != to.tls_key.empty())
    return FlagError{"--rdzv-tls-cert and --rdzv-tls-key: a certificate needs its key; give both"};
  if (to.tls_ca.empty() && !to.tls_certificate.empty())
    return FlagError{
        "--rdzv-tls-cert: without the CA of the host's certificate anybody could pose as the host; "
        "give --rdzv-tls-ca, too"};
  if (backend == RendezvousBackend::Etcd && !to.tls_ca.empty() && to.tls_certificate.empty())
    return FlagError{
        "--rdzv-tls-ca: with the etcd backend every node may become the host, and needs a "
        "certificate as one; give --rdzv-tls-cert and --rdzv-tls-key, too"};
  return take_allowed(flags, to);
}

}  // namespace muster
