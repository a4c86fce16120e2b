// Turns the method and target of a request into the resource that it names. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/rendezvous_events.h"

namespace muster::http {

/// A file of the page for browsers.
struct Asset {
  std::string_view type;
  std::string_view content;  // Has static lifetime.
};
/// GET /healthz: shows that the process answers.
struct Health {};
/// GET /readyz: shows that the loop that serves the jobs answers.
struct Ready {};
struct Metrics {};
struct Page {
  std::size_t offset = 0;
  std::size_t limit = 0;
};
struct RunList {
  Page page;
};
struct OneRun {
  std::string id;
};
struct NodeList {
  std::string id;
  Page page;
};
/// How fast the workers of a run have taken their steps.
struct StepList {
  std::string id;
};
/// Server-sent events of one run. If the id is empty: of the list of runs, and of the watched runs.
struct EventStream {
  std::string id;
  std::vector<std::string> watched = {};
};
/// The most runs that one stream watches beside the list.
inline constexpr std::size_t kMaxWatchedRuns = 8;
/// Which program this is, and where it runs.
struct ServerInfo {};

/// The link by which a browser logs in.
struct Login {
  std::string secret;
};
/// POST: creates such a link.
struct NewLogin {};

/// POST: an operation of an operator.
struct Action {
  std::string id;
  OperatorAsked asked = OperatorAsked::What::Restart;
};

/// A question to the node that has this global rank. GET reads its log, POST reads its stacks.
struct RankQuestion {
  std::string id;
  int rank = 0;
  NodeAsked asked;
};

using Route = std::variant<Action, NewLogin, Login, Asset, Health, Ready, Metrics, ServerInfo,
                           RunList, OneRun, NodeList, StepList, EventStream, RankQuestion>;

/// Whether the route needs POST, because it changes something or makes a node do work.
inline bool changes(const Route& route) {
  const auto* of_rank = std::get_if<RankQuestion>(&route);
  return std::holds_alternative<Action>(route) || std::holds_alternative<NewLogin>(route) ||
         (of_rank != nullptr && of_rank->asked.what == NodeAsked::What::Stacks);
}

/// Whether the route is only for clients that may change the run. This includes a worker's output,
/// which may contain anything.
inline bool for_operators(const Route& route) {
  return changes(route) || std::holds_alternative<RankQuestion>(route);
}

/// The run that the route concerns. Empty: none, or all runs.
std::string_view run_of(const Route& route);

struct RouteError {
  unsigned status = 404;
  std::string code;     // One word, for programs.
  std::string message;  // A sentence, for people.
  std::string_view allow = "GET, HEAD";
};

struct RouteRequest {
  std::string_view method;
  std::string_view target;
};

/// A target that names its host, too: "http://host/path". Servers must understand it (RFC 9112,
/// 3.2.2), and its host counts in place of the field Host.
struct AbsoluteTarget {
  std::string host;
  std::string target;  // "/path"
};
/// Empty: the target has another form.
std::optional<AbsoluteTarget> absolute_target(std::string_view target);

/// Ids in a target must be percent-encoded. A target has at most kMaxTargetBytes.
boost::system::result<Route, RouteError> find_route(const RouteRequest& request);

inline constexpr std::size_t kMaxTargetBytes = 4096;

/// Whether the Host field names a loopback address or localhost. This protects a server that every
/// user of this machine may use from pages of other sites (DNS rebinding).
bool names_loopback(std::string_view host);

/// "9400", "127.0.0.1:9400", "[::1]:9400". The address is empty if only a port is given.
struct HttpAddress {
  std::string address;
  unsigned short port = 0;
};
struct AddressError {
  std::string reason;  // A sentence for the user.
};
boost::system::result<HttpAddress, AddressError> parse_address(std::string_view text);
/// Whether only this machine reaches the address.
bool is_loopback(const HttpAddress& address);
/// Returns why HTTP may not be served at `text`, the value of `option`, without a token: other
/// machines reach the address. Empty: it may, or `text` is no address.
std::string refusal_without_token(std::string_view option, std::string_view text);

}  // namespace muster::http
