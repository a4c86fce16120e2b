#include "musterctl/endpoint_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace muster::ctl {
namespace {

constexpr double kSlowConnectMs = 50;
constexpr double kClockWarning = 1;
constexpr double kClockFailure = 30;

using Checks = std::vector<Check>;

void check_clock(const EndpointFacts& facts, Checks& checks) {
  if (!facts.clock_ahead_seconds) return;
  const double off = std::abs(*facts.clock_ahead_seconds);
  char found[96];
  std::snprintf(found, sizeof found, "%.2f s %s musterd's", off,
                *facts.clock_ahead_seconds < 0 ? "behind" : "ahead of");
  Check check{"clock", Verdict::Ok, found, ""};
  if (off >= kClockWarning) {
    check.verdict = off >= kClockFailure ? Verdict::Failure : Verdict::Warning;
    check.remedy =
        "synchronise clocks (chrony, systemd-timesyncd): logs of several nodes cannot "
        "be compared, and torchrun nodes judge each other by clocks";
  }
  checks.push_back(std::move(check));
}

std::string remedy_for(const EndpointFacts& facts) {
  if (facts.refused)
    return "musterd answered with this error: do what it says, or give another --endpoint";
  const auto colon = facts.endpoint.rfind(':');
  std::string host = facts.endpoint.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (facts.error.starts_with("cannot look up"))
    return "is the name right? Ask this machine's resolver with: getent hosts " + host;
  const std::string port = colon == std::string::npos ? "PORT" : facts.endpoint.substr(colon + 1);
  return "is the host up, does the program listen, and does a firewall let the port through? Check "
         "from this machine with: nc -vz " +
         host + " " + port;
}

void check_endpoint(const EndpointFacts& facts, Checks& checks) {
  Check check{"endpoint", Verdict::Ok, "", ""};
  char connect[64];
  std::snprintf(connect, sizeof connect, ", connected in %.1f ms", facts.connect_ms);
  check.found = facts.what + " " + facts.endpoint + " (" + joined(facts.addresses) + ")" + connect;
  if (!facts.error.empty()) {
    check.verdict = Verdict::Failure;
    check.found = facts.what + " " + facts.endpoint + ": " + facts.error;
    check.remedy = remedy_for(facts);
  } else if (facts.connect_ms > kSlowConnectMs) {
    check.verdict = Verdict::Warning;
    check.remedy =
        "the way there is slow: leases are 5 s, and each restart takes several rounds "
        "of messages";
  }
  checks.push_back(std::move(check));
  check_clock(facts, checks);
}

/// A musterd that stands by does not listen: where several endpoints are given, one may be away.
void check_reach(const DoctorFacts& facts, Checks& checks) {
  const auto is_reached = [](const EndpointFacts& endpoint) {
    return endpoint.what == kRendezvous && endpoint.error.empty();
  };
  const bool is_somewhere = std::any_of(facts.endpoints.begin(), facts.endpoints.end(), is_reached);
  for (const EndpointFacts& endpoint : facts.endpoints) {
    check_endpoint(endpoint, checks);
    if (endpoint.what != kRendezvous || endpoint.error.empty() || !is_somewhere) continue;
    checks.back().verdict = Verdict::Note;
    checks.back().remedy = "another endpoint answers: a musterd that stands by does not listen";
  }
}

/// Hosts that do not share their state make two worlds of one run.
void check_states(const DoctorFacts& facts, Checks& checks) {
  if (facts.hosts.empty()) return;
  Check check{"state", Verdict::Ok, "", ""};
  const MetHost& first = facts.hosts.front();
  const auto other = std::find_if(facts.hosts.begin(), facts.hosts.end(),
                                  [&](const MetHost& host) { return host.differs_from(first); });
  const auto silent = std::find_if(facts.endpoints.begin(), facts.endpoints.end(),
                                   [](const EndpointFacts& endpoint) {
                                     return endpoint.what == kRendezvous && !endpoint.error.empty();
                                   });
  if (other != facts.hosts.end()) {
    check.verdict = Verdict::Failure;
    check.found = "the hosts at " + first.place + " and " + other->place +
                  " do not share their state: the nodes of one run could become two worlds";
    check.remedy =
        "give all musterds the same --state=etcd://..., or name one of them only in "
        "--rdzv-endpoint";
  } else if (silent != facts.endpoints.end() && !first.state_is_shared) {
    check.verdict = Verdict::Warning;
    check.found = "the host at " + first.place + " keeps its state for itself, and " +
                  silent->endpoint + " does not answer";
    check.remedy = "if another musterd belongs there, give both the same --state=etcd://...";
  } else if (facts.hosts.size() > 1) {
    check.found =
        std::to_string(facts.hosts.size()) + " addresses of the rendezvous have one state";
  } else {
    return;
  }
  checks.push_back(std::move(check));
}

}  // namespace

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

void check_endpoints(const DoctorFacts& facts, Checks& checks) {
  check_reach(facts, checks);
  check_states(facts, checks);
}

}  // namespace muster::ctl
