#include "rendezvous/http/http_route.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <locale>
#include <optional>
#include <utility>
#include <vector>

#include <boost/algorithm/string/predicate.hpp>
#include <boost/asio/ip/address.hpp>

#include "base/percent.h"
#include "rendezvous/http/page_assets.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/notice.h"
#include "rendezvous/rounds/run_view.h"

namespace muster::http {
namespace {

constexpr std::string_view kLoginSecret = "secret=";

using Routed = boost::system::result<Route, RouteError>;

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && !text.empty();
}

RouteError bad_request(std::string message) {
  return {400, "bad_request", std::move(message)};
}

// One of a query's parameters, "name=value".
struct Parameter {
  std::string_view pair, name, value;
};
// Removes the first parameter of a query that is not empty, and returns it.
Parameter take_parameter(std::string_view& query) {
  const std::string_view pair = query.substr(0, query.find('&'));
  query.remove_prefix(std::min(query.size(), pair.size() + 1));
  const std::string_view name = pair.substr(0, pair.find('='));
  return {pair, name, pair.substr(std::min(pair.size(), name.size() + 1))};
}

// Parses a query such as "offset=3&limit=10".
boost::system::result<Page, RouteError> parse_page(std::string_view query, std::size_t most) {
  Page page{0, most};
  while (!query.empty()) {
    const auto [pair, name, value] = take_parameter(query);
    if (name != "offset" && name != "limit")
      return bad_request("unknown parameter '" + std::string(name) +
                         "': this resource knows offset and limit");
    std::int64_t number = 0;
    if (!parse_number(value, number) || number < 0)
      return bad_request(std::string(name) + " is not a whole number from 0 on, of 64 bits");
    (name == "offset" ? page.offset : page.limit) = static_cast<std::size_t>(number);
  }
  page.limit = std::min(page.limit, most);
  return page;
}

boost::system::result<std::string, RouteError> parse_run_id(std::string_view text) {
  auto id = percent_decode(text);
  if (!id || id->empty() || id->size() > kMaxRunIdBytes)
    return bad_request("the run id is empty, too long or not percent-encoded");
  return *std::move(id);
}

// Parses a query such as "run=a&run=b".
Routed route_of_events(std::string_view query) {
  EventStream stream;
  while (!query.empty()) {
    const std::string_view pair = take_parameter(query).pair;
    constexpr std::string_view kRun = "run=";
    if (!pair.starts_with(kRun))
      return bad_request("the stream of the list knows run=ID, once for each run to watch");
    auto id = parse_run_id(pair.substr(kRun.size()));
    if (!id) return id.error();
    if (stream.watched.size() == kMaxWatchedRuns)
      return bad_request("a stream watches at most " + std::to_string(kMaxWatchedRuns) + " runs");
    stream.watched.push_back(*std::move(id));
  }
  return stream;
}

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    path.remove_prefix(1);  // Removes the slash.
    parts.push_back(path.substr(0, path.find('/')));
    path.remove_prefix(parts.back().size());
  }
  return parts;
}

// Parses a query such as "stream=stderr&offset=-1000&attempt=2".
Routed route_of_log(RankQuestion question, std::string_view query) {
  while (!query.empty()) {
    const auto [pair, name, value] = take_parameter(query);
    if (name == "stream" && (value == "stdout" || value == "stderr"))
      question.asked.from_stderr = value == "stderr";
    else if (!(name == "offset" && parse_number(value, question.asked.offset)) &&
             !(name == "attempt" && parse_number(value, question.asked.attempt) &&
               question.asked.attempt >= 0))
      return bad_request("a log knows stream=stdout or stderr, offset and attempt, whole numbers");
  }
  // The smallest integer cannot be negated, so it is avoided.
  question.asked.offset =
      std::max(question.asked.offset, std::numeric_limits<std::int64_t>::min() + 1);
  return question;
}

Routed route_of_rank(std::string id, const std::vector<std::string_view>& parts,
                     std::string_view query) {
  RankQuestion question{.id = std::move(id), .rank = 0, .asked = {}};
  if (!parse_number(parts[5], question.rank) || question.rank < 0)
    return bad_request("a rank is a whole number from 0 on");
  if (parts[6] == "log") return route_of_log(std::move(question), query);
  question.asked.what = NodeAsked::What::Stacks;
  if (parts[6] == "stacks" && query.empty()) return question;
  return RouteError{404, "not_found", "a rank has /log, and POST finds /stacks"};
}

std::size_t characters_in(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

/// Parses "notice=120&reason=kernel%20update" into a drain with a notice.
Routed route_of_notice(Action action, std::string_view query) {
  std::int64_t seconds = 0;
  while (!query.empty()) {
    const auto [pair, name, value] = take_parameter(query);
    const auto reason = name == "reason" ? percent_decode(value) : std::nullopt;
    if (reason && characters_in(*reason) <= kMaxNoticeReasonBytes)
      action.asked.reason = *reason;
    else if (name != "notice" || !parse_number(value, seconds) || seconds < 1 ||
             seconds > kMaxNoticeSeconds)
      return bad_request("a drain knows notice, 1 to " + std::to_string(kMaxNoticeSeconds) +
                         " seconds, and reason, a text of at most " +
                         std::to_string(kMaxNoticeReasonBytes) + " characters");
  }
  if (seconds == 0) return action;  // Without a notice nobody is told the reason.
  action.asked.notice = std::chrono::seconds(seconds);
  if (action.asked.reason.empty()) action.asked.reason = "drained by an operator";
  return action;
}

Routed route_of_node(std::string id, const std::vector<std::string_view>& parts,
                     std::string_view query) {
  using What = OperatorAsked::What;
  auto node = percent_decode(parts[5]);
  if (!node || node->empty() || node->size() > kMaxNodeTextBytes)
    return bad_request("the node's name is empty, too long or not percent-encoded");
  const std::string_view what = parts[6];
  if (what == "drain" && !query.empty())
    return route_of_notice({std::move(id), {What::Drain, std::move(*node)}}, query);
  if (!query.empty()) return bad_request("only drain knows parameters: notice and reason");
  if (what == "drain") return Action{std::move(id), {What::Drain, std::move(*node)}};
  if (what == "exclude") return Action{std::move(id), {What::Exclude, std::move(*node)}};
  if (what == "allow") return Action{std::move(id), {What::Allow, std::move(*node)}};
  return RouteError{404, "not_found", "POST finds /drain, /exclude and /allow of a node"};
}

Routed route_of_run(const std::vector<std::string_view>& parts, std::string_view query) {
  auto id = parse_run_id(parts[3]);
  if (!id) return id.error();
  const std::string_view what = parts.size() > 4 ? parts[4] : std::string_view();
  if (parts.size() == 5 && what == "nodes") {
    const auto page = parse_page(query, kMaxViewedNodes);
    if (!page) return page.error();
    return NodeList{std::move(*id), *page};
  }
  if (parts.size() == 7 && what == "ranks") return route_of_rank(std::move(*id), parts, query);
  if (parts.size() == 7 && what == "nodes") return route_of_node(std::move(*id), parts, query);
  if (!query.empty()) return bad_request("this resource knows no parameters");
  if (parts.size() == 4) return OneRun{std::move(*id)};
  if (parts.size() == 5 && what == "events") return EventStream{std::move(*id)};
  if (parts.size() == 5 && what == "steps") return StepList{std::move(*id)};
  if (parts.size() == 5 && what == "restart")
    return Action{std::move(*id), OperatorAsked::What::Restart};
  if (parts.size() == 5 && what == "stop") return Action{std::move(*id), OperatorAsked::What::Stop};
  return RouteError{
      404, "not_found",
      "a run has /nodes, /steps, /events, /ranks/RANK/log, and POST finds /restart, /stop, "
      "/ranks/RANK/stacks and /nodes/NODE/drain, exclude or allow"};
}

Routed route_of_path(std::string_view path, std::string_view query) {
  const auto parts = split_path(path);
  const bool api = parts.size() >= 3 && parts[0] == "api" && parts[1] == "v1";
  if (api && parts[2] == "runs") {
    if (parts.size() > 3) return route_of_run(parts, query);
    const auto page = parse_page(query, kMaxViewedRuns);
    if (!page) return page.error();
    return RunList{*page};
  }
  if (path == "/login") {
    if (!query.starts_with(kLoginSecret)) return bad_request("the link has no secret");
    return Login{std::string(query.substr(kLoginSecret.size()))};
  }
  if (api && parts.size() == 3 && parts[2] == "events") return route_of_events(query);
  if (!query.empty()) return bad_request("this resource knows no parameters");
  if (api && parts.size() == 3 && parts[2] == "server") return ServerInfo{};
  if (api && parts.size() == 3 && parts[2] == "login") return NewLogin{};
  if (const auto asset = find_asset(path)) return *asset;
  if (path == "/healthz") return Health{};
  if (path == "/readyz") return Ready{};
  if (path == "/metrics") return Metrics{};
  return RouteError{
      404, "not_found",
      "there are /, /api/v1/runs, /api/v1/runs/ID, /api/v1/runs/ID/nodes, "
      "/api/v1/runs/ID/steps, /api/v1/runs/ID/events, /api/v1/events, /api/v1/server, "
      "/api/v1/openapi.json, /metrics, "
      "/healthz and /readyz"};
}

}  // namespace

std::optional<AbsoluteTarget> absolute_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    std::string path(target.substr(end));
    if (!path.starts_with('/')) path.insert(0, "/");
    return AbsoluteTarget{std::string(target.substr(0, end)), std::move(path)};
  }
  return std::nullopt;
}

Routed find_route(const RouteRequest& request) {
  if (request.target.size() > kMaxTargetBytes)
    return RouteError{414, "target_too_long",
                      "the target has more than " + std::to_string(kMaxTargetBytes) + " bytes"};
  if (request.target.empty() || request.target.front() != '/')
    return bad_request("the target does not begin with a slash");
  const std::size_t question = request.target.find('?');
  const std::string_view path = request.target.substr(0, question);
  const std::string_view query =
      question == std::string_view::npos ? "" : request.target.substr(question + 1);
  auto route = route_of_path(path, query);
  if (!route) return route;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (changes(*route) ? request.method == "POST" : reads) return route;
  if (changes(*route))
    return RouteError{405, "method_not_allowed", "this is asked for with POST", "POST"};
  return RouteError{405, "method_not_allowed", "only GET and HEAD are served here"};
}

std::string_view run_of(const Route& route) {
  return std::visit(
      [](const auto& each) -> std::string_view {
        if constexpr (requires { each.id; }) return each.id;
        return {};
      },
      route);
}

bool names_loopback(std::string_view host) {
  std::string_view name = host;
  if (!name.empty() && name.front() == '[') {
    const std::size_t end = name.find(']');
    if (end == std::string_view::npos) return false;
    name = name.substr(1, end - 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  if (boost::algorithm::iequals(name, "localhost", std::locale::classic())) return true;
  boost::system::error_code no_address;
  const auto address = boost::asio::ip::make_address(std::string(name), no_address);
  return !no_address && address.is_loopback();
}

bool is_loopback(const HttpAddress& address) {
  boost::system::error_code ec;
  return address.address.empty() ||
         boost::asio::ip::make_address(address.address, ec).is_loopback();
}

std::string refusal_without_token(std::string_view option, std::string_view text) {
  const auto address = parse_address(text);
  if (!address || is_loopback(*address)) return {};
  return std::string(option) + ": others than this machine's users reach " + std::string(text) +
         ", and without a token they would be let in unasked. Give --rdzv-token-file, too, or "
         "leave the address out (a port alone means 127.0.0.1) and use ssh -L from elsewhere";
}

boost::system::result<HttpAddress, AddressError> parse_address(std::string_view text) {
  const std::string shown(text.substr(0, 100));
  HttpAddress parsed;
  const std::size_t colon = text.rfind(':');
  std::string_view port = text;
  if (colon != std::string_view::npos) {
    std::string_view address = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (address.size() >= 2 && address.front() == '[' && address.back() == ']')
      address = address.substr(1, address.size() - 2);
    else if (address.find(':') != std::string_view::npos)
      return AddressError{"'" + shown + "': an IPv6 address stands in brackets, as in [::1]:9400"};
    boost::system::error_code ec;
    boost::asio::ip::make_address(std::string(address), ec);
    if (ec)
      return AddressError{"'" + shown + "' does not begin with a numeric IPv4 or IPv6 address"};
    parsed.address = address;
  }
  if (!parse_number(port, parsed.port))
    return AddressError{"'" + shown + "' is neither a port from 0 to 65535 nor ADDRESS:PORT"};
  return parsed;
}

}  // namespace muster::http
