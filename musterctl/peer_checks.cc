#include "musterctl/peer_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "musterctl/run_text.h"

namespace muster::ctl {
namespace {

constexpr double kSlowPeerMs = 10;
constexpr double kPeerClockWarning = 1;
constexpr double kPeerClockFailure = 30;

using PeerChecks = std::vector<Check>;

// The advice for the most frequent problem: firewalls between the nodes.
constexpr const char* kPortAdvice =
    "Gloo and NCCL connect in both directions, to ports that the kernel picks (sysctl "
    "net.ipv4.ip_local_port_range): let TCP through between the nodes in firewalls and security "
    "groups. If this is not the network of the job, name its interface: GLOO_SOCKET_IFNAME and "
    "NCCL_SOCKET_IFNAME";

std::string name_of(const NodeFacts& node) {
  const std::string host = node.host.empty() ? node.address : node.host;
  return host + " (rank " + std::to_string(node.rank) + ")";
}

std::string text_of(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

std::string address_text(const std::string& address, const std::string& interface) {
  if (address.empty()) return "no address";
  return interface.empty() ? address : interface + " " + address;
}

/// The probe if the test went far enough to measure the connection; otherwise null.
const Probe* reached(const std::optional<Probe>& probe) {
  return probe && probe->stage >= ProbeStage::Sending ? &*probe : nullptr;
}

bool is_done(const std::optional<Probe>& probe) {
  return probe && probe->stage == ProbeStage::Done;
}

// `there`: true for the direction from this node to the peer.
Check reach_check(const PeerFacts& peer, bool there) {
  const std::optional<Probe>& probe = there ? peer.to : peer.from;
  Check check{there ? "reach_to" : "reach_from", Verdict::Ok, "", "", name_of(peer.node)};
  const std::string who = there ? "this node" : "it";
  if (!probe) {
    check.verdict = Verdict::Failure;
    check.found = there ? "not tested: it did not come to its turn in time"
                        : "it has not said in time how it reaches this node";
    check.remedy =
        "look at what it prints: was it stopped, or is it overloaded? Then start the "
        "doctor on all nodes again";
    return check;
  }
  const std::string way = address_text(probe->from, probe->interface) + " to " + probe->to +
                          ", port " + std::to_string(probe->port);
  if (reached(probe) != nullptr) {
    check.found = who + " connects from " + way;
    return check;
  }
  check.verdict = Verdict::Failure;
  check.remedy = kPortAdvice;
  check.found = (probe->stage == ProbeStage::Connect ? who + " cannot connect from "
                                                     : who + " gets no answer, from ") +
                way + ": " + probe->error;
  return check;
}

Check mtu_check(const PeerFacts& peer, const Probe& to) {
  Check check{"path_mtu", Verdict::Ok, "", "", name_of(peer.node)};
  const int there = peer.from ? peer.from->interface_mtu : 0;
  const auto lost = [](const std::optional<Probe>& probe, ProbeStage stage) {
    return probe && probe->stage == stage;
  };
  const bool lost_there =
      lost(peer.to, ProbeStage::Sending) || lost(peer.from, ProbeStage::Receiving);
  const bool lost_back =
      lost(peer.to, ProbeStage::Receiving) || lost(peer.from, ProbeStage::Sending);
  const std::string sizes = "MTU " + std::to_string(to.interface_mtu) + " here (" + to.interface +
                            "), " + (there == 0 ? "unknown" : std::to_string(there)) + " there";
  if (lost_there || lost_back) {
    check.verdict = Verdict::Failure;
    check.found = std::string("short packets pass, long ones are lost ") +
                  (lost_there && lost_back ? "in both directions"
                   : lost_there            ? "on the way there"
                                           : "on the way back") +
                  ": " + sizes;
    check.remedy =
        "give all interfaces and switches between the nodes the same MTU (ip link set dev "
        "INTERFACE mtu 1500 to try), and let ICMP 'fragmentation needed' through";
  } else if (there != 0 && to.interface_mtu != there) {
    check.verdict = Verdict::Warning;
    check.found = sizes;
    check.remedy = "give both the same MTU: TCP copes with it, other protocols may lose packets";
  } else {
    check.found =
        std::to_string(to.path_mtu) + ", segments of " + std::to_string(to.segment) + " bytes";
  }
  return check;
}

Check latency_check(const PeerFacts& peer, const Probe& to) {
  Check check{"latency", Verdict::Ok, text_of("%.2f ms there and back", to.latency_ms), "",
              name_of(peer.node)};
  if (to.latency_ms > kSlowPeerMs) {
    check.verdict = Verdict::Warning;
    check.remedy =
        "each all-reduce takes several such ways: is it the network that is meant "
        "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), and are the nodes near each other?";
  }
  return check;
}

Check peer_clock_check(const PeerFacts& peer, const Probe& to) {
  const double ahead = to.ahead_seconds;
  const double off = std::abs(ahead);
  Check check{"peer_clock", Verdict::Ok,
              text_of("%.3f s ", off) + (ahead < 0 ? "behind" : "ahead of") + " this node's", "",
              name_of(peer.node)};
  if (off >= kPeerClockWarning) {
    check.verdict = off >= kPeerClockFailure ? Verdict::Failure : Verdict::Warning;
    check.remedy =
        "synchronise clocks (chrony, systemd-timesyncd): logs of several nodes cannot be compared, "
        "certificates may seem to be out of date, and torchrun nodes judge each other by clocks";
  }
  return check;
}

Check versions_check(const NodeFacts& own, const NodeFacts& peer) {
  Check check{"versions", Verdict::Ok, "", "", name_of(peer)};
  const auto shown = [](const std::string& version) { return version.empty() ? "none" : version; };
  const auto compare = [&](const char* name, const std::string& here, const std::string& there) {
    if (here.empty() && there.empty()) return;
    check.found += (check.found.empty() ? "" : ", ") + std::string(name) + " " + shown(there);
    if (here == there) return;
    check.found += " (here " + shown(here) + ")";
    check.verdict = Verdict::Warning;
    check.remedy =
        "install the same versions on all nodes: processes of different releases of torch or NCCL "
        "may not understand each other";
  };
  compare("muster", own.muster, peer.muster);
  compare("torch", own.torch, peer.torch);
  compare("NCCL", own.nccl, peer.nccl);
  return check;
}

void reduce_check(const NodeFacts& own, const PeerFacts& peer, PeerChecks& checks) {
  Check check{"all_reduce", Verdict::Ok, "", "", name_of(peer.node)};
  if (peer.reduce) {
    check.found = text_of("with Gloo, %.1f ms to meet and to sum", peer.reduce->ms);
    if (!peer.reduce->right) {
      check.verdict = Verdict::Failure;
      check.found =
          "Gloo: " + (peer.reduce->error.empty() ? "the sum is wrong" : peer.reduce->error);
      check.remedy =
          "Gloo listens at the address of GLOO_SOCKET_IFNAME, otherwise at the address of this "
          "machine's host name (see host_name): name the interface of the job's network, and let "
          "its ports through";
    }
    checks.push_back(std::move(check));
    return;
  }
  // Without connections in both directions there is no all-reduce; the checks of those say so.
  if (!is_done(peer.to) || !is_done(peer.from) || !own.reduces) return;
  check.verdict = Verdict::Note;
  check.found = "not tried: " +
                (peer.node.no_reduce.empty() ? "its Python is not ready" : peer.node.no_reduce);
  checks.push_back(std::move(check));
}

Check meeting_check(const PairFacts& facts) {
  Check check{"nodes", Verdict::Ok, "", ""};
  const std::string count = std::to_string(facts.nodes) + " nodes ";
  if (!facts.own) {
    check.verdict = Verdict::Failure;
    check.found = count + "have not met at " + facts.endpoint +
                  (facts.error.empty() ? std::string() : ": " + facts.error);
    check.remedy =
        "start the same command on all of them, with the same --nodes, --rdzv-endpoint and "
        "--rdzv-id; what muster printed says who was missing";
    return check;
  }
  check.found = count + "have met at " + facts.endpoint + "; this one is rank " +
                std::to_string(facts.own->rank);
  if (facts.own->variable.empty() && !facts.own->address.empty())
    check.found += ", at " + facts.own->address;
  if (!facts.own->variable.empty())
    check.found += ", at " + facts.own->address + " because of " + facts.own->variable;
  if (facts.complete) return check;
  check.verdict = Verdict::Failure;
  check.found += "; only " + std::to_string(facts.peers.size()) + " of " +
                 std::to_string(facts.nodes - 1) + " others had their turn" +
                 (facts.error.empty() ? std::string() : ": " + facts.error);
  check.remedy = "a node that ends early ends the test for all: look at what the others print";
  return check;
}

// Adds a failure for each node that was to come but has published no facts.
void absent_checks(const PairFacts& facts, int own_rank, PeerChecks& checks) {
  for (int rank = 0; rank < facts.nodes; ++rank) {
    const bool known = rank == own_rank || std::any_of(facts.peers.begin(), facts.peers.end(),
                                                       [rank](const PeerFacts& peer) {
                                                         return peer.node.rank == rank;
                                                       });
    if (known) continue;
    checks.push_back({"reach_to", Verdict::Failure, "not tested: it has not said where it is",
                      "look at what it prints: does it reach the workers' store of rank 0?",
                      "rank " + std::to_string(rank)});
  }
}

void local_reduce_check(const NodeFacts& own, bool no_torch, PeerChecks& checks) {
  if (own.reduces || own.no_reduce.empty()) return;
  Check check{"all_reduce", Verdict::Note, "not tried: " + own.no_reduce, ""};
  if (!no_torch)
    check.remedy =
        "to test with torch, activate the job's environment on all nodes, or name its "
        "Python in PYTHON_EXEC";
  checks.push_back(std::move(check));
}

}  // namespace

std::vector<Check> judge_pairs(const PairFacts& facts) {
  PeerChecks checks{meeting_check(facts)};
  if (!facts.own) return checks;
  local_reduce_check(*facts.own, facts.no_torch, checks);
  for (const PeerFacts& peer : facts.peers) {
    checks.push_back(reach_check(peer, true));
    checks.push_back(reach_check(peer, false));
    if (const Probe* to = reached(peer.to)) {
      checks.push_back(mtu_check(peer, *to));
      checks.push_back(latency_check(peer, *to));
      checks.push_back(peer_clock_check(peer, *to));
    }
    checks.push_back(versions_check(*facts.own, peer.node));
    reduce_check(*facts.own, peer, checks);
  }
  if (facts.complete) absent_checks(facts, facts.own->rank, checks);
  return checks;
}

std::string pairs_text(const PairFacts& facts) {
  if (facts.peers.empty()) return {};
  std::vector<Row> rows{{"PEER", "ADDRESS", "BY", "LATENCY", "MTU", "CLOCK", "ALL-REDUCE"}};
  for (const PeerFacts& peer : facts.peers) {
    Row row{safe(name_of(peer.node)), "-", "-", "no way", "-", "-", "-"};
    if (peer.to) {
      row[1] = safe(peer.to->to);
      row[2] = peer.to->interface.empty() ? "-" : safe(peer.to->interface);
    }
    if (const Probe* to = reached(peer.to)) {
      row[3] = text_of("%.2f ms", to->latency_ms);
      row[4] = is_done(peer.to) ? std::to_string(to->path_mtu) : "blocked";
      row[5] = text_of("%+.3f s", to->ahead_seconds);
    }
    if (peer.reduce) row[6] = peer.reduce->right ? text_of("%.1f ms", peer.reduce->ms) : "failed";
    rows.push_back(std::move(row));
  }
  return table_text(rows);
}

std::string pairs_json(const PairFacts& facts) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  const auto way = [](const std::optional<Probe>& probe) -> Json {
    if (!probe) return nullptr;
    return {{"from", probe->from},
            {"to", probe->to},
            {"port", probe->port},
            {"interface", probe->interface},
            {"connects", reached(probe) != nullptr},
            {"long_packets_pass", is_done(probe)},
            {"latency_ms", probe->latency_ms},
            {"path_mtu", probe->path_mtu},
            {"interface_mtu", probe->interface_mtu},
            {"segment_bytes", probe->segment},
            {"clock_ahead_seconds", probe->ahead_seconds},
            {"error", probe->error}};
  };
  for (const PeerFacts& peer : facts.peers) {
    Json reduce = nullptr;
    if (peer.reduce)
      reduce = {
          {"right", peer.reduce->right}, {"ms", peer.reduce->ms}, {"error", peer.reduce->error}};
    list.push_back({{"rank", peer.node.rank},
                    {"host", peer.node.host},
                    {"muster", peer.node.muster},
                    {"torch", peer.node.torch},
                    {"nccl", peer.node.nccl},
                    {"to", way(peer.to)},
                    {"from", way(peer.from)},
                    {"all_reduce", std::move(reduce)}});
  }
  return list.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace muster::ctl
