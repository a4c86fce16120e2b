#include "launcher/http_flag.h"

#include "rendezvous/http/http_route.h"

namespace muster {

Checked<void> plan_http(const Flags& flags, AgentOptions& plan) {
  if (!flags.http) return {};
  const std::string name = flags.name_of(OptionId::Http);
  RendezvousOptions& rendezvous = plan.rendezvous;
  if (const auto address = http::parse_address(*flags.http); !address)
    return FlagError{name + ": " + address.error().reason};
  if (rendezvous.backend != RendezvousBackend::C10d)
    return FlagError{name +
                     " shows a run whose rendezvous is here, and the static backend has none; give "
                     "--rdzv-backend c10d, or --standalone"};
  if (!rendezvous.further.empty())
    return FlagError{name +
                     " is for a rendezvous that a muster hosts, and --rdzv-endpoint names several "
                     "musterds; start those with --http"};
  rendezvous.http = *flags.http;
  if (!rendezvous.standalone) return {};
  // A rendezvous of one node, on a free port of loopback.
  rendezvous.host = "127.0.0.1";
  rendezvous.port = 0;
  if (flags.rdzv_token_file) rendezvous.token_file = *flags.rdzv_token_file;
  const auto settings =
      make_settings({.run_id = plan.run_id, .max_restarts = plan.max_restarts}, {});
  if (!settings) return FlagError{settings.error().reason};
  rendezvous.settings = *settings;
  rendezvous.settings.is_host = true;
  return {};
}

Checked<void> check_http_access(const Flags& flags, const RendezvousOptions& rendezvous) {
  if (rendezvous.http.empty() || rendezvous.token) return {};
  const auto address = http::parse_address(rendezvous.http);
  if (!address || http::is_loopback(*address)) return {};
  return FlagError{flags.name_of(OptionId::Http) + ": others than this machine's users reach " +
                   rendezvous.http +
                   ", and without a token nobody would be asked who they are. Give "
                   "--rdzv-token-file, too, or leave the address out (a port alone means "
                   "127.0.0.1) and use ssh -L from elsewhere"};
}

}  // namespace muster
