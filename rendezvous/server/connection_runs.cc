// Connection: requests that concern the rendezvous of a run, through either door.

#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "base/printable_text.h"
#include "base/system/clock.h"
#include "rendezvous/host/run_keys.h"
#include "rendezvous/server/connection.h"
#include "rendezvous/torchrun/state_codec.h"

namespace muster {

namespace {

// In the units of kSliceWork.
constexpr std::int64_t kStateWork = 20'000;
constexpr std::int64_t kStateByteWork = 64;  // Decoding and comparing a byte of a state.

/// The run of the request's first key. Empty if that key belongs to no run.
std::string_view run_of_request(const Request& request) {
  if (!request.key.empty()) return run_of_key(request.key);
  return request.keys.empty() ? std::string_view() : run_of_key(request.keys.front());
}

bool may_store(Query query) {
  switch (query) {
    case Query::Set:
    case Query::CompareSet:
    case Query::Add:
    case Query::Wait:
    case Query::Append:
    case Query::MultiSet:
    case Query::QueuePush:
    case Query::Barrier:
      return true;
    default:
      return false;
  }
}

/// The bytes of the names and values in the table, without values that only replies or inputs hold.
std::size_t stored_bytes(StoreTable& table) {
  return table.bytes() - table.account().blocks + table.account().kept;
}

std::string too_many_connections(const RunLimits& limits) {
  return fmt::format("the run has as many connections as one run may: limit run_connections={}",
                     limits.connections);
}

}  // namespace

RunService::Time Connection::time() const {
  return {shared_.now, wall_now()};
}

/// Whether the request concerns the state of a run. Called for every request, so it must be cheap
/// for all other requests.
bool Connection::about_runs(const Request& request) const {
  const auto may_be = [&](std::string_view key) {
    return key.starts_with(kStateKeyPrefix) && shared_.runs->has_state(key);
  };
  if (request.query == Query::CompareSet) return request.key.starts_with(kStateKeyPrefix);
  return may_be(request.key) || std::any_of(request.keys.begin(), request.keys.end(), may_be);
}

void Connection::serve_state(const Request& request) {
  RunService& runs = *shared_.runs;
  const std::size_t states = 1 + static_cast<std::size_t>(std::count_if(
                                     request.keys.begin(), request.keys.end(),
                                     [&](std::string_view key) { return runs.has_state(key); }));
  if (runs.runs_of(id_) + states > kMaxRunsPerConnection && !runs.is_client(id_, request.key))
    return refuse(at_offset("too many runs: limit runs_per_connection=" +
                            std::to_string(kMaxRunsPerConnection)),
                  "limit runs_per_connection");
  in_runs_ = true;
  // Without the work of rendering, which work_so_far() counts.
  shared_.slice_work -= kStateWork * static_cast<std::int64_t>(1 + request.keys.size());
  if (waits_) report_wait(request);
  switch (request.query) {
    case Query::CompareSet:
      return compare_set_state(request);
    case Query::Get:
      return send_reply(Value{runs.read_state(id_, request.key, time())});
    case Query::MultiGet: {
      Reply reply = apply(request);
      if (auto* values = std::get_if<Values>(&reply))
        for (std::size_t i = 0; i < request.keys.size(); ++i)
          if (runs.has_state(request.keys[i]))
            values->each[i] = runs.read_state(id_, request.keys[i], time());
      return send_reply(reply);
    }
    case Query::Wait:
    case Query::Check:
      for (const std::string_view key : request.keys)
        if (runs.has_state(key)) runs.check_state(id_, key, time());
      return send_reply(apply(request));
    case Query::DeleteKey:
      return send_reply(Number{0});  // The state is removed when its run is forgotten.
    case Query::QueueLen:
      return send_reply(apply(request));
    default:
      if (refuse_plant(request)) return;
      if (!return_key_to_store(request))
        return refuse(at_offset("a rendezvous' state is written by COMPARE_SET only"),
                      "state written otherwise");
      warn_of_other_use("a rendezvous' key is written without COMPARE_SET");
      send_reply(apply(request));
  }
}

void Connection::compare_set_state(const Request& request) {
  shared_.slice_work -=
      kStateByteWork * static_cast<std::int64_t>(request.expected.size() + request.value.size());
  // "No state yet" may also be left from a client that has used the key for other values.
  const bool stored =
      shared_.table.has(request.key) && shared_.table.value_of(request.key) != kNoStateText;
  const CompareSetOutcome outcome =
      shared_.runs->compare_set(id_,
                                {.key = request.key,
                                 .expected = request.expected,
                                 .desired = request.value,
                                 .stored = stored,
                                 .peer_address = peer_address().to_string()},
                                time());
  if (const auto* now = std::get_if<StateNow>(&outcome)) {
    // The next request of this client may list the keys, before ShowState is applied.
    if (!shared_.table.has(request.key))
      apply({.query = Query::Set, .key = request.key, .value = kNoStateText});
    return send_reply(Value{now->text});
  }
  if (const auto* refused = std::get_if<StateRefused>(&outcome))
    return refuse(at_offset(refused->reason), "state refused");
  if (std::holds_alternative<HeldBack>(outcome)) {
    held_ = true;
    return;
  }
  if (refuse_plant(request)) return;
  const std::string& surprise = std::get<NotOfARun>(outcome).surprise;
  if (!surprise.empty()) warn_of_other_use(surprise);
  send_reply(apply(request));
}

void Connection::warn_of_other_use(const std::string& what) const {
  if (const auto left_out = shared_.log.admit(shared_.now, "store_key_is_no_state", peer_address()))
    spdlog::warn("store_key_is_no_state peer={} reason=\"{}: kept as any other key\" left_out={}",
                 peer(), printable_text(at_offset(what)), *left_out);
}

/// Closes the connection if the request would store, as an ordinary key, a text that torchrun nodes
/// would unpickle.
bool Connection::refuse_plant(const Request& request) {
  const auto stored = [this](std::string_view key) { return shared_.table.value_of(key); };
  auto refusal = refuse_planted_pickle(request, stored);
  if (refusal) refuse(at_offset(*refusal), "pickle under a state's key");
  return refusal.has_value();
}

/// Returns the keys that the request would write to the store. Returns whether the store now
/// handles all of them.
bool Connection::return_key_to_store(const Request& request) {
  RunService& runs = *shared_.runs;
  const auto is_the_stores = [&](const std::string& key) {
    return !runs.has_state(key) || runs.return_key_to_store(key);
  };
  return is_the_stores(std::string(request.key)) &&
         std::all_of(request.keys.begin(), request.keys.end(),
                     [&](std::string_view key) { return is_the_stores(std::string(key)); });
}

/// Answers the question of a node at a workers' store, which has no rendezvous.
void Connection::serve_reach(std::string_view json) {
  const auto request = decode_native_request(json, id_);
  if (!request)
    return refuse(at_offset("native message: " + describe(request.error())),
                  "native message refused");
  const auto* reach = std::get_if<NativeReach>(&*request);
  if (reach == nullptr)
    return refuse(at_offset("native message: no rendezvous is here"), "native message refused");
  if (gate_ && reach->run_id != shared_.token_run)
    return refuse(at_offset("native message: a node of another run asks for this one's"),
                  "native message refused");
  if (gate_) shared_.c10d.introduced(peer_address());
  NativeReached reached;
  if (const auto whole_at = shared_.reach(*reach)) {
    reached.whole = true;
    reached.age = std::max(Duration::zero(), now() - *whole_at);
  }
  if (gate_) reached.proof = gate_->host_proof();
  out().add(encode(NativeMessage(reached)));
}

void Connection::serve_native(std::string_view json) {
  ++shared_.traffic.native_messages;
  if (shared_.tls && transport_ != Transport::Secure) return refuse_plain();
  if (owes_token_proof()) return serve_gate(json);
  serve_run_message(json);
}

/// Refuses a node that does not use TLS.
void Connection::refuse_plain() {
  const std::string text =
      "it speaks TLS with nodes: give this node --rdzv-tls-ca FILE, the CA that has signed the "
      "host's certificate";
  out().add(encode(NativeMessage(NativeRefused{text})));
  refuse(at_offset("native message: not through TLS"), "not through TLS");
}

/// Handles a message of a client that has not proven the token yet.
void Connection::serve_gate(std::string_view json) {
  if (!gate_) gate_ = std::make_unique<TokenGate>(shared_.tokens);
  const TokenGate::Step step = gate_->receive(json);
  if (step.reply) out().add(encode(*step.reply));
  if (!step.close.empty()) return refuse(at_offset(step.close), step.cause);
  if (!step.serve) return;
  serve_run_message(*step.serve);
  if (!gate_->open()) refuse(at_offset("native message: not a first one"), "token not proven");
}

/// Whether the client may use the store. If not, refuses it.
bool Connection::enter_c10d() {
  c10d_open_ = shared_.c10d.admits(peer_address());
  if (!c10d_open_)
    refuse(
        fmt::format("this address may not use the c10d door: --c10d-allow={}", shared_.c10d.rule()),
        "c10d door");
  return c10d_open_;
}

/// Why --tls-allow keeps this client out of the run that its hello names. Empty: it does not.
std::string Connection::refusal_of_certificate(std::string_view json) const {
  if (!shared_.tls_rules || !member_of_.empty()) return {};
  const auto request = decode_native_request(json, id_);
  const auto* hello = request ? std::get_if<NativeHello>(&*request) : nullptr;
  if (hello == nullptr) return {};  // The run service refuses it: it is not a first message.
  const auto names = tls_ ? tls_->peer_names() : std::vector<std::string>();
  if (shared_.tls_rules->scope_of(names).admits(hello->run_id)) return {};
  return not_in_scope_text(hello->run_id, names);
}

void Connection::become_member(std::string_view hello) {
  const auto request = decode_native_request(hello, id_);
  const auto* said = request ? std::get_if<NativeHello>(&*request) : nullptr;
  if (said == nullptr || !member_of_.empty()) return;
  member_of_ = std::string(kStateKeyPrefix) + said->run_id;
  shared_.c10d.joined(peer_address(), member_of_);
}

/// Counts this connection to the run, unless it already belongs to one. Returns false if the run
/// has no room for the connection.
bool Connection::enter_run(std::string_view run) {
  if (account_ == nullptr) account_ = shared_.accounts.enter(run);
  return account_ != nullptr;
}

/// Whether the run of the request's first key has room for this connection and for the data that
/// the request may store. If not, refuses the client.
bool Connection::fits_in_run(const Request& request) {
  if (request.query == Query::CancelWait) disconnect_store();
  const std::string_view run = run_of_request(request);
  if (run.empty()) return true;
  if (!enter_run(run)) {
    refuse(at_offset(too_many_connections(shared_.accounts.limits())), "limit run_connections");
    return false;
  }
  const bool waits = request.query == Query::Wait || request.query == Query::Barrier;
  if (waits && waits_for_run_ != run) {
    disconnect_store();  // A client has at most one wait. The earlier one was for another run.
    waits_for_run_ = run;
  }
  if (!may_store(request.query)) return true;
  const auto is_new = [&](std::string_view key) { return !shared_.table.has(key); };
  std::size_t names =
      static_cast<std::size_t>(std::count_if(request.keys.begin(), request.keys.end(), is_new));
  if (request.keys.empty() && is_new(request.key)) ++names;
  std::size_t bytes = request.value.size();
  for (const std::string_view value : request.values)
    bytes += value.size();
  const std::string refusal = shared_.accounts.refusal(run, names, waits ? 0 : bytes);
  if (refusal.empty()) return true;
  refuse(at_offset(refusal), names > 0 ? "limit run_keys" : "limit run_bytes");
  return false;
}

template <typename Change>
void ConnectionShared::count(std::string_view run, const Change& change) {
  if (run.empty()) return change();
  const auto names = static_cast<std::ptrdiff_t>(table.num_names());
  const auto bytes = static_cast<std::ptrdiff_t>(stored_bytes(table));
  change();
  accounts.count_stored(run, static_cast<std::ptrdiff_t>(table.num_names()) - names,
                        static_cast<std::ptrdiff_t>(stored_bytes(table)) - bytes);
}

Reply ConnectionShared::apply(ConnectionId from, const Request& request) {
  const std::string_view run = run_of_request(request);
  if (run.empty()) return table.apply(from, request);
  Reply reply;
  count(run, [&] { reply = table.apply(from, request); });
  return reply;
}

void ConnectionShared::abandon(ConnectionId client, std::string_view waits_for_run) {
  count(waits_for_run, [&] { table.abandon(client); });
}

void ConnectionShared::disconnect(ConnectionId client, std::string_view waits_for_run) {
  count(waits_for_run, [&] { table.disconnect(client); });
}

void ConnectionShared::delete_below(std::string_view prefix, std::string_view run,
                                    const std::function<bool(std::string_view)>& wanted) {
  count(run, [&] { table.delete_below(prefix, wanted); });
}

/// Whether all keys of the request belong to no run, or to the one run that this client began with.
/// If not, refuses the client: a client must not see what the nodes of another run exchange.
bool Connection::stays_in_run(const Request& request) {
  const auto is_ours = [&](std::string_view key) {
    const std::string_view run = run_of_key(key);
    if (run.empty()) return true;
    if (run_scope_.empty() && shared_.c10d.admits_to_run(peer_address(), run)) run_scope_ = run;
    return run == run_scope_;
  };
  if (request.query == Query::ListKeys) {
    // torch's debug server names no key before it lists them.
    if (run_scope_.empty()) run_scope_ = shared_.c10d.only_run_at(peer_address());
    if (!run_scope_.empty()) return true;
    refuse(at_offset("LIST_KEYS of a client that has used no key of a run, from an address with "
                     "nodes of no run or of several"),
           "keys of another run");
    return false;
  }
  if (is_ours(request.key) && std::all_of(request.keys.begin(), request.keys.end(), is_ours))
    return true;
  refuse(at_offset("a key of another run than this client's"), "keys of another run");
  return false;
}

/// Answers LIST_KEYS with the keys of the client's run: its state, as GET answers it, and the keys
/// of its rounds. Keys of no run are left out: they may be another job's.
void Connection::list_keys_of_run() {
  const Keys keys = shared_.table.keys_below(
      run_scope_, [&](std::string_view key) { return run_of_key(key) == run_scope_; });
  std::size_t bytes = sizeof(std::uint64_t);
  for (const std::string_view key : keys.each)
    bytes += sizeof(std::uint64_t) + key.size();
  if (!may_build(bytes)) return;
  out().reserve_text(bytes);
  send_reply(keys);
}

void Connection::serve_run_message(std::string_view json) {
  if (!shared_.runs) return serve_reach(json);
  const std::string proof = gate_ ? gate_->host_proof() : std::string();
  if (const std::string text = refusal_of_certificate(json); !text.empty()) {
    out().add(encode(NativeMessage(NativeRefused{text, proof})));
    return refuse(at_offset("native hello refused: " + text), "certificate of another run");
  }
  in_runs_ = true;
  NativeAnswer answer = shared_.runs->receive(id_, json, peer_address().to_string(), time());
  if (answer.reply) {
    if (auto* welcome = std::get_if<NativeWelcome>(&*answer.reply)) {
      welcome->proof = proof;
      welcome->peer_end = end_text(peer_);
      welcome->own_end = end_text(local_endpoint());
      become_member(json);
      if (!enter_run(member_of_)) {
        answer.close = too_many_connections(shared_.accounts.limits());
        answer.cause = "limit run_connections";
        answer.reply = NativeRefused{answer.close};
      }
    }
    if (auto* refused = std::get_if<NativeRefused>(&*answer.reply)) refused->proof = proof;
    out().add(encode(*answer.reply));
  }
  if (!answer.close.empty()) refuse(at_offset(answer.close), answer.cause);
}

/// Tells the run service when the client begins or ends to wait for a key. A torchrun node has only
/// one connection, so it cannot send heartbeats while it waits.
void Connection::report_wait(const Request& request) {
  const bool waits = shared_.table.is_waiting(id_);
  if (waits == std::exchange(waits_, waits)) return;
  std::optional<std::string_view> key;
  if (waits) key = request.keys.size() == 1 ? request.keys.front() : std::string_view();
  shared_.slice_work -= kStateWork * static_cast<std::int64_t>(shared_.runs->runs_of(id_));
  shared_.runs->waits(id_, key, time());
}

std::string Connection::at_offset(const std::string& reason) const {
  return fmt::format("{}; in the request at byte {}", reason, decoder_.offset());
}

void Connection::leave_runs() {
  if (!member_of_.empty()) shared_.c10d.left(peer_address(), std::exchange(member_of_, {}));
  if (!std::exchange(in_runs_, false) || !shared_.runs) return;
  try {
    shared_.runs->gone(id_, time());
  } catch (const std::exception& error) {  // Also called by the destructor.
    spdlog::error("store_event_failed peer={} error=\"{}\"", peer(), error.what());
  }
}

void Connection::answer(const SharedBytes& text) {
  if (!std::exchange(held_, false) || ended_) return;
  encode_reply(Value{text}, replies_);
  send(replies_);
  paused_ = true;
  if (has_drained()) serve_buffered();
}

void Connection::push(std::string_view frame) {
  if (broken_ || ended_) return;
  if (replies_.size() > shared_.connections.queued_bytes) {
    done_ = true;
    return refuse("it does not read what it is sent: limit queued_bytes", "limit queued_bytes");
  }
  replies_.add(frame);
  send_waiting();
}

OwnedFd Connection::release_socket() {
  local_ = local_endpoint();
  return std::exchange(fd_, OwnedFd());
}

void Connection::become_secure(TlsConnection secure) {
  fd_ = std::move(secure.plain);
  tls_ = std::move(secure.status);
  transport_ = Transport::Secure;
}

boost::asio::ip::tcp::endpoint Connection::local_endpoint() const {
  if (local_.port() != 0) return local_;
  boost::asio::ip::tcp::endpoint local;
  socklen_t size = static_cast<socklen_t>(local.capacity());
  if (::getsockname(fd_.get(), local.data(), &size) < 0) return {};
  local.resize(size);
  return local;
}

}  // namespace muster
