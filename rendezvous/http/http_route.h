// Which resource a request names: method and target to a value. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include <boost/system/result.hpp>

#include "rendezvous/core/node_report.h"
#include "rendezvous/core/rendezvous_events.h"

namespace muster::http {

/// A part of the page for browsers, as it is.
struct Asset {
  std::string_view type;
  std::string_view content;  // Lives for ever.
};
/// The process answers.
struct Health {};
/// The loop that serves the jobs answers.
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
/// Server-sent events of one run, or of the list of runs where the id is empty.
struct EventStream {
  std::string id;
};

/// The link by which a browser gets in: its secret.
struct Login {
  std::string secret;
};
/// POST: makes such a link.
struct NewLogin {};

/// POST: a person asks for it.
struct Action {
  std::string id;
  OperatorAsked asked = OperatorAsked::What::Restart;
};

/// A question to the node that has this global rank: GET for its log, POST for where it stands.
struct RankQuestion {
  std::string id;
  int rank = 0;
  NodeAsked asked;
};

using Route = std::variant<Action, NewLogin, Login, Asset, Health, Ready, Metrics, RunList, OneRun,
                           NodeList, EventStream, RankQuestion>;

/// Whether it is asked for with POST, since it changes something or makes a node work.
inline bool changes(const Route& route) {
  const auto* of_rank = std::get_if<RankQuestion>(&route);
  return std::holds_alternative<Action>(route) || std::holds_alternative<NewLogin>(route) ||
         (of_rank != nullptr && of_rank->asked.what == NodeAsked::What::Stacks);
}

/// Whether it is only for those who may change the run. A worker's output may hold anything.
inline bool for_operators(const Route& route) {
  return changes(route) || std::holds_alternative<RankQuestion>(route);
}

/// The run that the route is about; empty: none, or all of them.
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

/// Ids in a target are percent-encoded; a target is at most kMaxTargetBytes.
boost::system::result<Route, RouteError> find_route(const RouteRequest& request);

inline constexpr std::size_t kMaxTargetBytes = 4096;

/// Whether a browser means this server, and not one of another name: guards a server that anyone on
/// this machine may ask. `host` is the Host field.
bool names_loopback(std::string_view host);

/// "9400", "127.0.0.1:9400", "[::1]:9400". The address is empty if only a port is given.
struct HttpAddress {
  std::string address;
  unsigned short port = 0;
};
struct AddressError {
  std::string reason;  // A sentence for the person who gave it.
};
boost::system::result<HttpAddress, AddressError> parse_address(std::string_view text);
/// Whether only this machine reaches it.
bool is_loopback(const HttpAddress& address);

}  // namespace muster::http
