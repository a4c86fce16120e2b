#include "rendezvous/http/http_session.h"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/net/no_throw.h"
#include "rendezvous/http/answer_waiter.h"
#include "rendezvous/http/http_gate.h"
#include "rendezvous/http/http_readiness.h"
#include "rendezvous/http/http_reply.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/http/run_view_json.h"

namespace muster::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using RequestParser = beast::http::request_parser<beast::http::string_body>;
using Response = beast::http::response<beast::http::string_body>;

namespace {

constexpr Duration kStreamInterval = std::chrono::milliseconds(500);
/// A program that reads the stacks may need half a minute.
constexpr Duration kStacksWithin = std::chrono::seconds(40);
/// If the disk hangs, an answer is delayed by RunServiceOptions::state_patience, which is 5 s.
constexpr Duration kActionWithin = std::chrono::seconds(8);
constexpr int kIntervalsPerComment = 30;  // A comment every 15 s shows that the stream is alive.

Reply no_such_run(const std::string& id) {
  return error_reply({404, "unknown_run",
                      "no run '" + id +
                          "' is known here: it has not begun, it meets elsewhere, or it ended so "
                          "long ago that newer runs have taken its place (musterd --history)"});
}

/// The error reply to a request whose view is not available. std::nullopt: the view is available.
/// `id`: the run. Empty: none.
std::optional<Reply> refusal_of_view(const SharedView& view, const std::string& id) {
  if (view == nullptr)
    return error_reply({503, "no_answer", "the loop that serves the jobs does not answer"});
  if (std::holds_alternative<UnknownRun>(*view)) return no_such_run(id);
  if (const auto* standby = std::get_if<StandingBy>(view.get()))
    return error_reply({503, "standing_by", objection_of_standby(standby->why)});
  return std::nullopt;
}

/// Clients without a token may read this reply, so it contains no names and no paths.
Reply readiness(const AllFigures& figures) {
  if (const auto objection = objection_to_readiness(figures)) return error_reply(*objection);
  return {200, kJsonType, "{\"ok\":true}\n"};
}

/// Counts a connection that has asked for a change, while it is open.
class OperatorConnection {
 public:
  explicit OperatorConnection(Shared& shared) : shared_(shared) { ++shared_.operator_connections; }
  OperatorConnection(const OperatorConnection&) = delete;
  OperatorConnection& operator=(const OperatorConnection&) = delete;
  ~OperatorConnection() {
    if (--shared_.operator_connections == 0 && shared_.on_operators_gone)
      shared_.on_operators_gone();
  }

 private:
  Shared& shared_;
};

class Session {
 public:
  Session(asio::ip::tcp::socket socket, std::shared_ptr<Shared> shared, HttpPeer peer)
      : stream_(std::move(socket)),
        buffer_(kMaxHeaderBytes + kMaxBodyBytes),
        shared_(std::move(shared)),
        gate_(*shared_, std::move(peer)) {}

  asio::awaitable<void> run();

 private:
  asio::awaitable<bool> serve_one(bool is_last);
  asio::awaitable<beast::error_code> read(RequestParser& parser);
  asio::awaitable<Reply> answer(const Route& route);
  asio::awaitable<Reply> ask(RankQuestion question);
  asio::awaitable<Reply> act(Action action);
  asio::awaitable<bool> send(Reply reply, const Request& request, bool keep);
  asio::awaitable<void> stream_events(EventStream asked, std::uint64_t seen);
  asio::awaitable<std::string> news_of(std::string run, std::string& digest);
  asio::awaitable<bool> write(std::string text);
  asio::awaitable<SharedView> fetch_view(ViewRequest request) {
    return shared_->views->get(std::move(request));
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::shared_ptr<Shared> shared_;
  std::optional<OperatorConnection> operator_connection_;
  HttpGate gate_;
  std::string_view allow_;  // The Allow field of a reply 405. Has static lifetime.
};

/// The reply to a request that cannot be parsed. std::nullopt: the client has disconnected or was
/// too slow, so the connection is closed without a reply.
std::optional<Reply> reply_to(const beast::error_code& ec) {
  namespace http = beast::http;
  if (ec == http::error::header_limit)
    return error_reply(
        {431, "headers_too_large",
         "the headers have more than " + std::to_string(kMaxHeaderBytes) + " bytes"});
  if (ec == http::error::body_limit)
    return error_reply({413, "body_too_large",
                        "the body has more than " + std::to_string(kMaxBodyBytes) + " bytes"});
  const bool gone = ec == beast::error::timeout || ec == http::error::end_of_stream ||
                    ec == http::error::partial_message ||
                    ec.category() == asio::error::get_system_category();
  if (gone) return std::nullopt;
  return error_reply({400, "bad_request", "not HTTP/1.1: " + ec.message()});
}

void set_security(beast::http::fields& fields) {
  namespace http = beast::http;
  fields.set("Content-Security-Policy",
             "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
             "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  fields.set("X-Content-Type-Options", "nosniff");
  fields.set("Referrer-Policy", "no-referrer");
  fields.set("Cross-Origin-Resource-Policy", "same-origin");
  fields.set("Cross-Origin-Opener-Policy", "same-origin");
  fields.set(http::field::cache_control, "no-store");
}

asio::awaitable<void> Session::run() {
  for (std::size_t i = 0; i < kMaxRequestsPerConnection; ++i) {
    const bool more = co_await serve_one(i + 1 == kMaxRequestsPerConnection);
    if (!more) break;
  }
  beast::error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

/// Reads a request. A client that waits with its body for "100 Continue" (RFC 9110, 10.1.1) gets
/// that, unless the fields alone are refused.
asio::awaitable<beast::error_code> Session::read(RequestParser& parser) {
  namespace http = beast::http;
  const auto [header_ec, header_bytes] =
      co_await http::async_read_header(stream_, buffer_, parser, kNoThrow);
  if (header_ec) co_return header_ec;
  const auto& request = parser.get();
  const bool waits = !parser.is_done() && request.version() == 11 &&
                     beast::iequals(request[http::field::expect], "100-continue");
  if (waits) {
    static constexpr std::string_view kContinue =
        "HTTP/1.1 100 Continue\r\n\r\n";  // Within the time of the whole request.
    const auto [write_ec, written] =
        co_await asio::async_write(stream_, asio::buffer(kContinue), kNoThrow);
    if (write_ec) co_return write_ec;
  }
  const auto [ec, bytes] = co_await http::async_read(stream_, buffer_, parser, kNoThrow);
  co_return ec;
}

asio::awaitable<bool> Session::serve_one(bool is_last) {
  RequestParser parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(kMaxBodyBytes);
  stream_.expires_after(kRequestWithin);
  std::optional<IdleConnections::Place> idle;
  if (!gate_.has_proven()) idle.emplace(shared_->idle, gate_.peer(), [this] { stream_.cancel(); });
  const beast::error_code ec = co_await read(parser);
  idle.reset();
  if (ec) {
    auto reply = reply_to(ec);
    if (!reply) co_return false;
    const Request none{beast::http::verb::get, "/", 11};
    co_await send(std::move(*reply), none, false);
    co_return false;
  }
  Request request = parser.release();
  if (const auto absolute = absolute_target(request.target())) {
    request.set(beast::http::field::host, absolute->host);
    request.target(absolute->target);
  }
  const std::string method(request.method_string());
  const std::string target(request.target());
  const auto route = find_route({method, target});
  std::optional<Reply> refusal = gate_.refusal_of(route ? &*route : nullptr, request);
  if (!refusal && !route) refusal = error_reply(route.error());
  const bool keep = request.keep_alive() && request.body().empty() && !is_last;
  if (!route && route.error().status == 405) allow_ = route.error().allow;
  if (refusal) co_return co_await send(std::move(*refusal), request, keep);
  if (const auto* action = std::get_if<Action>(&*route)) {
    Action asked = *action;
    Reply done = co_await act(std::move(asked));
    co_return co_await send(std::move(done), request, keep);
  }
  if (const auto* login = std::get_if<Login>(&*route)) {
    Reply page = gate_.log_in(*login, request);
    co_return co_await send(std::move(page), request, keep);
  }
  if (const auto* question = std::get_if<RankQuestion>(&*route)) {
    RankQuestion asked = *question;
    Reply answered = co_await ask(std::move(asked));
    co_return co_await send(std::move(answered), request, keep);
  }
  const auto* events = std::get_if<EventStream>(&*route);
  if (events != nullptr && request.method() == beast::http::verb::get) {
    std::uint64_t seen = 0;
    const std::string last(request["Last-Event-ID"]);
    std::from_chars(last.data(), last.data() + last.size(), seen);
    EventStream asked = *events;
    co_await stream_events(std::move(asked), seen);
    co_return false;
  }
  Reply reply = co_await answer(*route);
  co_return co_await send(std::move(reply), request, keep);
}

/// Asks a node. The node's answer is one bounded piece. The client asks for the next piece when it
/// has read this one.
asio::awaitable<Reply> Session::ask(RankQuestion question) {
  const auto waiter =
      std::make_shared<AnswerWaiter<std::optional<NodeAnswered>>>(stream_.get_executor());
  const auto number = shared_->questions.ask(question, waiter);
  const bool log = question.asked.what == NodeAsked::What::Log;
  const auto answered = co_await waiter->wait(log ? ViewSource::kAnswerWithin : kStacksWithin);
  if (!answered) {
    shared_->questions.forget(number);
    co_return error_reply({504, "node_is_silent", "the node has not answered in time"});
  }
  if (!*answered) co_return no_such_run(question.id);
  const NodeAnswered& answer = **answered;
  if (!answer.error.empty()) co_return error_reply({409, "not_possible", answer.error});
  Reply reply{200, kJsonType, answer_json(answer) + "\n"};
  co_return reply;
}

asio::awaitable<Reply> Session::act(Action action) {
  if (!operator_connection_) operator_connection_.emplace(*shared_);
  const auto waiter =
      std::make_shared<AnswerWaiter<std::optional<Operated>>>(stream_.get_executor());
  shared_->operate(action, waiter);
  const auto answered = co_await waiter->wait(kActionWithin);
  if (!answered)
    co_return error_reply({503, "no_answer",
                           "the loop that serves the jobs, or its disk or etcd, has not answered "
                           "in time. It may still be done: look at the run"});
  const std::optional<Operated>& answer = *answered;
  if (!answer) co_return no_such_run(action.id);
  if (!answer->objection.empty()) co_return error_reply({409, "not_possible", answer->objection});
  shared_->views->forget();
  Reply done{200, kJsonType, done_json(answer->text) + "\n"};
  co_return done;
}

asio::awaitable<Reply> Session::answer(const Route& route) {
  if (std::holds_alternative<NewLogin>(route)) co_return gate_.new_login();
  if (std::holds_alternative<Health>(route)) co_return Reply{200, kJsonType, "{\"ok\":true}\n"};
  if (const auto* asset = std::get_if<Asset>(&route)) {
    Reply page{200, std::string(asset->type), std::string(asset->content)};
    co_return page;
  }
  if (std::holds_alternative<ServerInfo>(route)) {
    Reply server{200, kJsonType, server_json(shared_->server) + "\n"};
    co_return server;
  }
  ViewRequest wanted;
  if (const auto* list = std::get_if<RunList>(&route)) {
    wanted.what = ViewRequest::What::Runs;
    wanted.scope = gate_.scope();
    wanted.offset = list->page.offset;
    wanted.limit = list->page.limit;
  } else if (const auto* run = std::get_if<OneRun>(&route)) {
    wanted.what = ViewRequest::What::Run;
    wanted.run = run->id;
  } else if (const auto* nodes = std::get_if<NodeList>(&route)) {
    wanted.what = ViewRequest::What::Run;
    wanted.run = nodes->id;
    wanted.offset = nodes->page.offset;
    wanted.limit = nodes->page.limit;
  } else if (const auto* steps = std::get_if<StepList>(&route)) {
    wanted.what = ViewRequest::What::Run;
    wanted.run = steps->id;
  } else if (const auto* events = std::get_if<EventStream>(&route)) {  // HEAD
    Reply head{200, "text/event-stream", {}};
    if (events->id.empty()) co_return head;
    wanted.what = ViewRequest::What::Run;
    wanted.run = events->id;
  }
  const std::string id = wanted.run;
  std::optional<IdleConnections::Place> waits;  // A stranger gives way here, too.
  if (!gate_.has_proven()) waits.emplace(shared_->idle, gate_.peer(), [this] { stream_.close(); });
  const SharedView view = co_await fetch_view(std::move(wanted));
  waits.reset();
  if (auto refusal = refusal_of_view(view, id)) co_return *std::move(refusal);
  if (const auto* runs = std::get_if<RunsView>(view.get())) {
    Reply reply{200, kJsonType, runs_json(*runs) + "\n"};
    co_return reply;
  }
  if (const auto* run = std::get_if<RunView>(view.get())) {
    Reply reply{200, kJsonType, {}};
    if (std::holds_alternative<EventStream>(route))
      reply.type = "text/event-stream";
    else if (std::holds_alternative<StepList>(route))
      reply.body = steps_json(*run) + "\n";
    else
      reply.body =
          (std::holds_alternative<NodeList>(route) ? nodes_json(*run) : run_json(*run)) + "\n";
    co_return reply;
  }
  const auto& figures = std::get<AllFigures>(*view);
  if (std::holds_alternative<Ready>(route)) co_return readiness(figures);
  Reply metrics{200, kMetricsType, metrics_text(figures, shared_->figures, shared_->began_seconds)};
  co_return metrics;
}

asio::awaitable<bool> Session::send(Reply reply, const Request& request, bool keep) {
  Response response{static_cast<beast::http::status>(reply.status), request.version()};
  set_security(response);
  response.set(beast::http::field::content_type, reply.type);
  if (reply.status == 405) response.set(beast::http::field::allow, std::string(allow_));
  for (const auto& [field, value] : reply.fields)
    response.insert(field, value);
  response.keep_alive(keep);
  const bool head = request.method() == beast::http::verb::head;
  const std::size_t length = reply.body.size();
  if (!head) response.body() = std::move(reply.body);
  response.content_length(length);
  ++shared_->figures.requests[reply.status];
  stream_.expires_after(kRequestWithin);
  std::optional<IdleConnections::Place> stalled;  // A stranger that does not read gives way, too.
  if (!gate_.has_proven())
    stalled.emplace(shared_->idle, gate_.peer(), [this] { stream_.cancel(); });
  const auto [ec, bytes] = co_await beast::http::async_write(stream_, response, kNoThrow);
  co_return !ec && keep;
}

asio::awaitable<bool> Session::write(std::string text) {
  stream_.expires_after(kRequestWithin);
  const auto [ec, bytes] = co_await asio::async_write(stream_, asio::buffer(text), kNoThrow);
  stream_.expires_never();
  co_return !ec;
}

// A text that changes whenever a new message about the list is necessary.
std::string digest_of(const RunsView& view) {
  std::string digest = std::to_string(view.total);
  for (const RunSummary& run : view.runs)
    digest.append(run.id)
        .append("\n")
        .append(to_string(run.state))
        .append(std::to_string(run.last_event.value_or(0)) + " " + std::to_string(run.nodes) +
                run.reason);
  return digest;
}
std::string digest_of(const RunView& view) {
  RunsView alone;
  alone.runs.push_back(view.summary);
  std::string digest = digest_of(alone);
  if (const auto& report = view.first_failure_report)
    digest += report->exit + report->because + report->message + report->stderr_end;
  return digest;
}

std::string message(std::string_view event, const std::string& data, std::uint64_t id = 0) {
  std::string text;
  if (id > 0) text = "id: " + std::to_string(id) + "\n";
  return text.append("event: ").append(event).append("\ndata: ").append(data).append("\n\n");
}

// The events after `seen`, and the whole run if anything in it has changed.
std::string messages_of(const RunView& view, std::string& digest, std::uint64_t& seen) {
  std::string text;
  // After a restart with an earlier clock the numbers are lower. An older musterd began with 1.
  if (seen > view.summary.last_event.value_or(0)) seen = 0;
  for (const RunEvent& event : view.events) {
    if (event.number <= seen) continue;
    text += message("event", event_json(event, view), event.number);
    seen = event.number;
  }
  if (std::string now = digest_of(view); now != digest) {
    digest = std::move(now);
    text += message("run", run_json(view));
  }
  return text;
}

// Counts a stream while it lives. Each run that it watches counts as one more: it costs a view.
class StreamCount {
 public:
  StreamCount(Shared& shared, std::size_t count) : shared_(shared), count_(count) {
    shared_.streams += count_;
  }
  StreamCount(const StreamCount&) = delete;
  StreamCount& operator=(const StreamCount&) = delete;
  ~StreamCount() { shared_.streams -= count_; }

 private:
  Shared& shared_;
  std::size_t count_;
};

/// The message about a watched run, if anything in it has changed. A run that is not known, or not
/// for this client any more, is reported once, and again after it has come.
asio::awaitable<std::string> Session::news_of(std::string run, std::string& digest) {
  ViewRequest wanted{.what = ViewRequest::What::Run, .run = run};
  const SharedView view = co_await fetch_view(std::move(wanted));
  if (view == nullptr || std::holds_alternative<StandingBy>(*view)) co_return std::string();
  const auto* known = std::get_if<RunView>(view.get());
  const bool shown = known != nullptr && gate_.scope().admits(run);
  std::string now = shown ? digest_of(*known) : "unknown";
  if (now == digest) co_return std::string();
  digest = std::move(now);
  co_return shown ? message("run", run_json(*known)) : message("forgotten", id_json(run));
}

asio::awaitable<void> Session::stream_events(EventStream asked, std::uint64_t seen) {
  const std::string id = asked.id;
  ViewRequest wanted{
      .what = ViewRequest::What::Runs, .run = id, .limit = kMaxViewedRuns, .scope = gate_.scope()};
  if (!id.empty()) wanted = {.what = ViewRequest::What::Run, .run = id};
  const Request none{beast::http::verb::get, "/", 11};
  SharedView view = co_await fetch_view(wanted);
  const std::size_t cost = 1 + asked.watched.size();
  const bool full = shared_->streams + cost > kMaxStreams;
  auto refusal = refusal_of_view(view, id);
  if (full)
    refusal =
        error_reply({503, "too_many_streams",
                     "there are " + std::to_string(kMaxStreams) + " streams of events already"});
  if (refusal) {
    Reply refused = *std::move(refusal);
    co_await send(std::move(refused), none, false);
    co_return;
  }
  const StreamCount count(*shared_, cost);
  Response response{beast::http::status::ok, 11};
  set_security(response);
  response.set(beast::http::field::content_type, "text/event-stream");
  response.keep_alive(false);
  beast::http::response_serializer<beast::http::string_body> serializer{response};
  stream_.expires_after(kRequestWithin);
  ++shared_->figures.requests[200];
  const auto [ec, bytes] = co_await beast::http::async_write_header(stream_, serializer, kNoThrow);
  if (ec) co_return;
  asio::steady_timer pause(stream_.get_executor());
  std::string digest;
  std::vector<std::string> digests(asked.watched.size());
  for (int quiet = 0;; ++quiet) {
    std::string text;
    if (view != nullptr && std::holds_alternative<UnknownRun>(*view)) {
      co_await write(message("forgotten", "{}"));
      co_return;
    }
    if (view != nullptr && std::holds_alternative<RunView>(*view)) {
      text = messages_of(std::get<RunView>(*view), digest, seen);
    } else if (view != nullptr && std::holds_alternative<RunsView>(*view)) {
      const auto& runs = std::get<RunsView>(*view);
      if (std::string now = digest_of(runs); now != digest) {
        digest = std::move(now);
        text = message("runs", runs_json(runs));
      }
    }
    for (std::size_t i = 0; i < digests.size(); ++i)
      text += co_await news_of(asked.watched[i], digests[i]);
    if (text.empty() && quiet >= kIntervalsPerComment) text = ": still here\n\n";
    if (!text.empty()) {
      quiet = 0;
      const bool sent = co_await write(std::move(text));
      if (!sent) co_return;
    }
    pause.expires_after(kStreamInterval);
    co_await pause.async_wait(kNoThrow);
    if (!gate_.may_read_on()) co_return;
    // A reload may have changed which runs this client may see.
    if (id.empty()) wanted.scope = gate_.scope();
    if (!id.empty() && !gate_.scope().admits(id)) co_return;
    view = co_await fetch_view(wanted);
  }
}

}  // namespace

asio::awaitable<void> serve_http(asio::ip::tcp::socket socket, std::shared_ptr<Shared> shared,
                                 HttpPeer peer) {
  Session session(std::move(socket), std::move(shared), std::move(peer));
  co_await session.run();
}

}  // namespace muster::http
