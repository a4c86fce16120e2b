#include "rendezvous/node/native_client.h"

#include <utility>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/net/spawn_task.h"
#include "base/printable_text.h"
#include "rendezvous/client/store_exchange.h"
#include "rendezvous/node/token_ask.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Unsent bytes beyond which nothing more is read: a host that asks and reads no answer must not use
// up the node's memory. 64 pieces of logs, which a host may ask for at once, are about 4 MiB.
constexpr std::size_t kMaxUnsentBytes = std::size_t{8} << 20;

constexpr const char* kThisMuster = "muster " MUSTER_VERSION;

std::string protocol_text(int version) {
  return "protocol " + std::to_string(version);
}

constexpr const char* kNotProven =
    "it does not prove that it has this node's token: it was started without --rdzv-token-file, or "
    "by a muster that is older than that option, or it is not the host that is meant";

constexpr const char* kRefusesUnproven =
    "it refuses this node, for a reason that is not authenticated: ";

/// Why a welcome of another protocol version is refused. Empty: same version. A host with another
/// version may send NativeRefused instead, but an older one may not check the version.
std::string difference(const NativeWelcome& welcome) {
  if (welcome.protocol_version == kNativeProtocolVersion) return {};
  return "it is muster " + welcome.muster_version + " with " +
         protocol_text(welcome.protocol_version) + ", this node is " + kThisMuster + " with " +
         protocol_text(kNativeProtocolVersion);
}

/// Why the answer to hello is refused. Empty: it is a welcome of the same protocol.
std::string refusal_of(const NativeResult<NativeMessage>& answer) {
  const std::string ours =
      std::string(kThisMuster) + " (" + protocol_text(kNativeProtocolVersion) + ")";
  if (!answer) return "its answer is none that " + ours + " reads: " + describe(answer.error());
  if (const auto* refused = std::get_if<NativeRefused>(&*answer))
    return refused->text.empty() ? "it does not say why" : refused->text;
  const auto* welcome = std::get_if<NativeWelcome>(&*answer);
  if (welcome == nullptr) return "it does not answer hello as " + ours + " expects it";
  return difference(*welcome);
}

/// The texts of the host are printed, and may come from any node of the run.
void make_printable(NativeMessage& message) {
  const auto line = [](std::string& text) { text = terminal_line(text); };
  if (auto* refused = std::get_if<NativeRefused>(&message)) line(refused->text);
  if (auto* waiting = std::get_if<NativeWaiting>(&message)) line(waiting->text);
  if (auto* refused = std::get_if<JoinRefused>(&message)) line(refused->text);
  if (auto* rejoin = std::get_if<Rejoin>(&message)) line(rejoin->why);
  if (auto* restart = std::get_if<RestartRound>(&message)) {
    line(restart->what);
    line(restart->who.addr);
  }
  if (auto* ended = std::get_if<RunEnded>(&message)) {
    line(ended->why);
    if (ended->who) line(ended->who->addr);
  }
}

}  // namespace

// Shared with the tasks for reading and writing, which end some time after close().
struct NativeClient::State {
  State(const asio::any_io_executor& on, const NativeClientOptions& given)
      : options(given),
        executor(on),
        room(on, asio::steady_timer::time_point::max()),
        exchange(on, {.host = given.host,
                      .addresses = given.addresses,
                      .port = given.port,
                      .timeout = given.connect_timeout,
                      .resolve_timeout = given.lookup_timeout,
                      .answer_timeout = given.answer_timeout,
                      .give_up_at = given.give_up_at,
                      .reply_timeout = given.answer_timeout.value_or(given.connect_timeout),
                      .retry = false,
                      .reply_bytes = kMaxNativeBytes,
                      .tls = given.tls,
                      .tls_name = given.tls_name}) {}

  NativeClientOptions options;
  asio::any_io_executor executor;
  asio::steady_timer room;  // Never expires. Cancelled when the reader may go on.
  StoreExchange exchange;
  Handlers handlers;
  NativeWelcome welcome;
  std::string refusal;
  std::deque<std::string> outgoing;
  std::size_t unsent_bytes = 0;
  bool writing = false;
  std::function<void()> when_idle;
  bool closed = false;
  bool silent = false;
};

NativeClient::NativeClient(const asio::any_io_executor& executor,
                           const NativeClientOptions& options)
    : state_(std::make_shared<State>(executor, options)) {}

NativeClient::~NativeClient() {
  close();
}

asio::awaitable<Result<HostKind>> NativeClient::connect() {
  const std::shared_ptr<State> state = state_;
  if (const error_code ec = co_await state->exchange.connect(); ec) {
    state->silent = ec == StoreErrc::ConnectTimedOut && state->exchange.accepted();
    if (state->options.tls) co_return classify_failure(*state, ec);
    co_return ec;
  }
  state->exchange.set_lost_after(state->options.lost_after);
  NativeRequest hello = NativeHello{.muster_version = MUSTER_VERSION,
                                    .run_id = state->options.run_id,
                                    .resumes = true,
                                    .answers = true,
                                    .notices = true};
  const TokenAnswer reply =
      co_await ask_with_token(state->exchange, state->options.token.get(), std::move(hello));
  state->silent = reply.error == StoreErrc::ReplyTimedOut;
  if (reply.error) co_return classify_failure(*state, reply.error);
  const auto answer = decode_native_message(reply.json);
  state->refusal = terminal_line(refusal_of(answer));
  if (!state->refusal.empty()) {
    const auto* refused = answer ? std::get_if<NativeRefused>(&*answer) : nullptr;
    const bool proven = refused != nullptr && reply.claim && reply.claim->is_host(refused->proof);
    // Without this check, a program that has taken over the host's port could refuse the nodes, and
    // so end their job. With TLS, the certificate identifies the program that refuses.
    if (proven || !reply.claim || state->options.tls) co_return HostKind::Refused;
    state->refusal = kRefusesUnproven + state->refusal;
    co_return HostKind::Unproven;
  }
  state->welcome = std::get<NativeWelcome>(*answer);
  if (reply.claim && !reply.claim->is_host(state->welcome.proof)) {
    state->refusal = kNotProven;
    co_return HostKind::Unproven;
  }
  if (const auto lease = state->welcome.lease) state->exchange.set_lost_after(*lease);
  co_return HostKind::Muster;
}

/// Finds out which kind of host has closed the connection. Returns an error if that is unknown.
Result<HostKind> NativeClient::classify_failure(State& state, error_code why) {
  // A torch server closes the connection on a query that it does not know.
  if (!state.options.tls) return why == StoreErrc::Closed ? HostKind::Other : Result<HostKind>(why);
  const TlsFailure failure = state.exchange.tls_failure();
  if (failure.kind == TlsFailure::Kind::Refused) {
    state.refusal = "TLS: " + failure.reason;
    return HostKind::TlsRefused;
  }
  if (failure.kind == TlsFailure::Kind::None && why != StoreErrc::Closed) return why;
  const bool says = failure.kind != TlsFailure::Kind::None;
  state.refusal = "TLS: " + (says ? failure.reason : "it has closed the connection") +
                  ". Does it speak TLS (musterd --tls-cert)?";
  return HostKind::TlsLost;
}

void NativeClient::start(Handlers handlers) {
  state_->handlers = std::move(handlers);
  spawn_task(state_->executor, "native_read", read(state_));
}

asio::awaitable<void> NativeClient::read(std::shared_ptr<State> state) {
  for (;;) {
    while (state->unsent_bytes > kMaxUnsentBytes && !state->closed) {
      error_code cancelled;
      co_await state->room.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
    if (state->closed) co_return;
    std::string text;
    const error_code ec = co_await state->exchange.read_text(text);
    if (state->closed) co_return;
    if (ec) co_return lost(*state, ec.message());
    auto message = decode_native_message(text);
    if (!message)
      co_return lost(*state,
                     "it sent what this muster does not understand: " + describe(message.error()));
    make_printable(*message);
    // A copy is called, because the handler may close this client, which destroys the handlers.
    const auto on_message = state->handlers.on_message;
    on_message(*message);
    if (state->closed) co_return;
  }
}

void NativeClient::send(const NativeRequest& request) {
  if (state_->closed) return;
  state_->outgoing.push_back(encode(request));
  state_->unsent_bytes += state_->outgoing.back().size();
  if (std::exchange(state_->writing, true)) return;
  spawn_task(state_->executor, "native_write", write(state_));
}

asio::awaitable<void> NativeClient::write(std::shared_ptr<State> state) {
  error_code ec;
  while (!ec && !state->outgoing.empty()) {
    const std::string frame = std::move(state->outgoing.front());
    state->outgoing.pop_front();
    ec = co_await state->exchange.send(frame);
    state->unsent_bytes -= frame.size();
    if (state->unsent_bytes <= kMaxUnsentBytes / 2) state->room.cancel();
  }
  state->outgoing.clear();
  state->unsent_bytes = 0;
  state->writing = false;
  if (state->closed)
    state->exchange.close();
  else if (ec)
    lost(*state, ec.message());
  if (const auto done = std::exchange(state->when_idle, {})) done();
}

void NativeClient::lost(State& state, const std::string& reason) {
  state.closed = true;
  state.room.cancel();
  state.exchange.close();
  const auto on_lost = std::exchange(state.handlers, {}).on_lost;
  if (on_lost) on_lost(reason);
}

void NativeClient::when_idle(const std::function<void()>& done) {
  if (!state_->writing) return done();
  state_->when_idle = done;
}

void NativeClient::close() {
  if (std::exchange(state_->closed, true)) return;
  state_->room.cancel();
  state_->handlers = {};
  if (!state_->writing) state_->exchange.close();
}

const std::string& NativeClient::refusal() const {
  return state_->refusal;
}
bool NativeClient::was_silent() const {
  return state_->silent;
}
const NativeWelcome& NativeClient::welcome() const {
  return state_->welcome;
}
bool NativeClient::is_proxied() const {
  const NativeWelcome& welcome = state_->welcome;
  if (welcome.peer_end.empty() || welcome.own_end.empty()) return false;  // An older host.
  return welcome.peer_end != state_->exchange.local_end() ||
         welcome.own_end != state_->exchange.remote_end();
}
asio::ip::address NativeClient::local_address() const {
  return state_->exchange.local_address();
}
asio::ip::address NativeClient::remote_address() const {
  return state_->exchange.remote_address();
}
std::string NativeClient::remote_end() const {
  return state_->exchange.remote_end();
}

}  // namespace muster
