#include "rendezvous/server/store_door.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "base/printable_text.h"
#include "rendezvous/host/run_keys.h"
#include "rendezvous/server/connection.h"
#include "rendezvous/server/refusal_text.h"
#include "rendezvous/torchrun/state_codec.h"

namespace muster {

namespace {

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

}  // namespace

StoreDoor::StoreDoor(Connection& client)
    : client_(client), shared_(client.shared()), open_(shared_.c10d.open_to_all()) {}

bool StoreDoor::open() {
  const C10dDoor& c10d = shared_.c10d;
  open_ = c10d.admits(client_.socket().peer_address());
  if (!open_)
    client_.refuse(
        fmt::format("this address may not use the c10d door: --c10d-allow={}", c10d.rule()),
        "c10d door");
  return open_;
}

void StoreDoor::serve(const Request& request) {
  shared_.traffic.count(request.query);
  if (shared_.runs_apart && !stays_in_run(request)) return;
  if (shared_.runs && !fits_in_run(request)) return;
  if (shared_.runs && about_runs(request)) return serve_state(request);
  if (shared_.runs && refuse_plant(request)) return;
  if (request.query == Query::ListKeys && shared_.runs_apart) return list_keys_of_run();
  if (request.query == Query::ListKeys) {
    if (!may_build(shared_.table.list_bytes())) return;
    client_.out().reserve_text(sizeof(std::uint64_t) + shared_.table.list_bytes());
  }
  send_reply(apply(request));
  if (client_.runs().is_known()) client_.runs().report_wait(request);
}

/// Whether a reply that takes so much memory may be queued. If not, closes the connection.
bool StoreDoor::may_build(std::size_t reply_bytes) {
  const std::size_t limit = shared_.connections.queued_total_bytes;
  if (reply_bytes <= limit && shared_.unread_bytes() <= limit - reply_bytes) return true;
  client_.refuse(
      fmt::format("a reply of {} bytes does not fit beside the unread replies of all clients: "
                  "limit queued_total_bytes={}",
                  reply_bytes, limit),
      "limit queued_total_bytes");
  return false;
}

Reply StoreDoor::apply(const Request& request) {
  Reply reply = shared_.apply(client_.id(), request);
  for (const ConnectionId released : shared_.table.released()) {
    if (released == client_.id())
      client_.out().add_byte(kStopWaiting.value);
    else
      shared_.wake(released);
  }
  return reply;
}

void StoreDoor::send_reply(const Reply& reply) {
  if (const auto* refusal = std::get_if<Refusal>(&reply))
    return client_.refuse(describe(*refusal, shared_.limits), to_cause(*refusal));
  if (const auto* values = std::get_if<Values>(&reply)) {
    const std::size_t memory = reply_memory(*values);
    if (!may_build(memory)) return;
    shared_.work.spend(static_cast<std::int64_t>(memory - ReplyQueue::kManyBytes));
  }
  encode_reply(reply, client_.out());
}

/// Whether all keys of the request belong to no run, or to the one run that this client began with.
/// If not, refuses the client: a client must not see what the nodes of another run exchange.
bool StoreDoor::stays_in_run(const Request& request) {
  const auto is_ours = [&](std::string_view key) {
    const std::string_view run = run_of_key(key);
    if (run.empty()) return true;
    if (run_scope_.empty() && shared_.c10d.admits_to_run(client_.socket().peer_address(), run))
      run_scope_ = run;
    return run == run_scope_;
  };
  if (request.query == Query::ListKeys) {
    // torch's debug server names no key before it lists them.
    if (run_scope_.empty()) run_scope_ = shared_.c10d.only_run_at(client_.socket().peer_address());
    if (!run_scope_.empty()) return true;
    client_.refuse_request(
        "LIST_KEYS of a client that has used no key of a run, from an address with "
        "nodes of no run or of several",
        "keys of another run");
    return false;
  }
  if (is_ours(request.key) && std::all_of(request.keys.begin(), request.keys.end(), is_ours))
    return true;
  client_.refuse_request("a key of another run than this client's", "keys of another run");
  return false;
}

/// Answers LIST_KEYS with the keys of the client's run: its state, as GET answers it, and the keys
/// of its rounds. Keys of no run are left out: they may be another job's.
void StoreDoor::list_keys_of_run() {
  const Keys keys = shared_.table.keys_below(
      run_scope_, [&](std::string_view key) { return run_of_key(key) == run_scope_; });
  std::size_t bytes = sizeof(std::uint64_t);
  for (const std::string_view key : keys.each)
    bytes += sizeof(std::uint64_t) + key.size();
  if (!may_build(bytes)) return;
  client_.out().reserve_text(bytes);
  send_reply(keys);
}

/// Whether the run of the request's first key has room for this connection and for the data that
/// the request may store. If not, refuses the client.
bool StoreDoor::fits_in_run(const Request& request) {
  if (request.query == Query::CancelWait) client_.runs().end_wait();
  const std::string_view run = run_of_request(request);
  if (run.empty()) return true;
  if (!client_.runs().enter(run)) {
    client_.refuse_request(shared_.accounts.too_many_connections(), "limit run_connections");
    return false;
  }
  const bool waits = request.query == Query::Wait || request.query == Query::Barrier;
  if (waits) client_.runs().wait_for(run);
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
  client_.refuse_request(refusal, names > 0 ? "limit run_keys" : "limit run_bytes");
  return false;
}

/// Whether the request concerns the state of a run. Called for every request, so it must be cheap
/// for all other requests.
bool StoreDoor::about_runs(const Request& request) const {
  const auto may_be = [&](std::string_view key) {
    return key.starts_with(kStateKeyPrefix) && shared_.runs->has_state(key);
  };
  if (request.query == Query::CompareSet) return request.key.starts_with(kStateKeyPrefix);
  return may_be(request.key) || std::any_of(request.keys.begin(), request.keys.end(), may_be);
}

void StoreDoor::serve_state(const Request& request) {
  RunService& runs = *shared_.runs;
  const std::size_t states = 1 + static_cast<std::size_t>(std::count_if(
                                     request.keys.begin(), request.keys.end(),
                                     [&](std::string_view key) { return runs.has_state(key); }));
  if (runs.runs_of(client_.id()) + states > kMaxRunsPerConnection &&
      !runs.is_client(client_.id(), request.key))
    return client_.refuse_request(
        "too many runs: limit runs_per_connection=" + std::to_string(kMaxRunsPerConnection),
        "limit runs_per_connection");
  client_.runs().become_known();
  // Without the work of rendering, which work_so_far() counts.
  shared_.work.spend(kStateWork * static_cast<std::int64_t>(1 + request.keys.size()));
  if (client_.runs().is_waiting()) client_.runs().report_wait(request);
  switch (request.query) {
    case Query::CompareSet:
      return compare_set_state(request);
    case Query::Get:
      return send_reply(Value{runs.read_state(client_.id(), request.key, shared_.time())});
    case Query::MultiGet: {
      Reply reply = apply(request);
      if (auto* values = std::get_if<Values>(&reply))
        for (std::size_t i = 0; i < request.keys.size(); ++i)
          if (runs.has_state(request.keys[i]))
            values->each[i] = runs.read_state(client_.id(), request.keys[i], shared_.time());
      return send_reply(reply);
    }
    case Query::Wait:
    case Query::Check:
      for (const std::string_view key : request.keys)
        if (runs.has_state(key)) runs.check_state(client_.id(), key, shared_.time());
      return send_reply(apply(request));
    case Query::DeleteKey:
      return send_reply(Number{0});  // The state is removed when its run is forgotten.
    case Query::QueueLen:
      return send_reply(apply(request));
    default:
      if (refuse_plant(request)) return;
      if (!return_key_to_store(request))
        return client_.refuse_request("a rendezvous' state is written by COMPARE_SET only",
                                      "state written otherwise");
      warn_of_other_use("a rendezvous' key is written without COMPARE_SET");
      send_reply(apply(request));
  }
}

void StoreDoor::compare_set_state(const Request& request) {
  shared_.work.spend(kStateByteWork *
                     static_cast<std::int64_t>(request.expected.size() + request.value.size()));
  // "No state yet" may also be left from a client that has used the key for other values.
  const bool stored =
      shared_.table.has(request.key) && shared_.table.value_of(request.key) != kNoStateText;
  const CompareSetOutcome outcome =
      shared_.runs->compare_set(client_.id(),
                                {.key = request.key,
                                 .expected = request.expected,
                                 .desired = request.value,
                                 .stored = stored,
                                 .peer_address = client_.socket().peer_address().to_string()},
                                shared_.time());
  if (const auto* now = std::get_if<StateNow>(&outcome)) {
    // The next request of this client may list the keys, before ShowState is applied.
    if (!shared_.table.has(request.key))
      apply({.query = Query::Set, .key = request.key, .value = kNoStateText});
    return send_reply(Value{now->text});
  }
  if (const auto* refused = std::get_if<StateRefused>(&outcome))
    return client_.refuse_request(refused->reason, "state refused");
  if (std::holds_alternative<HeldBack>(outcome)) {
    client_.hold();
    return;
  }
  if (refuse_plant(request)) return;
  const std::string& surprise = std::get<NotOfARun>(outcome).surprise;
  if (!surprise.empty()) warn_of_other_use(surprise);
  send_reply(apply(request));
}

void StoreDoor::warn_of_other_use(const std::string& what) const {
  if (const auto left_out =
          shared_.log.admit(shared_.now, "store_key_is_no_state", client_.socket().peer_address()))
    spdlog::warn("store_key_is_no_state peer={} reason=\"{}: kept as any other key\" left_out={}",
                 client_.peer(), printable_text(client_.at_offset(what)), *left_out);
}

/// Closes the connection if the request would store, as an ordinary key, a text that torchrun nodes
/// would unpickle.
bool StoreDoor::refuse_plant(const Request& request) {
  const auto stored = [this](std::string_view key) { return shared_.table.value_of(key); };
  auto refusal = refuse_planted_pickle(request, stored);
  if (refusal) client_.refuse_request(*refusal, "pickle under a state's key");
  return refusal.has_value();
}

/// Returns the keys that the request would write to the store. Returns whether the store now
/// handles all of them.
bool StoreDoor::return_key_to_store(const Request& request) {
  RunService& runs = *shared_.runs;
  const auto is_the_stores = [&](const std::string& key) {
    return !runs.has_state(key) || runs.return_key_to_store(key);
  };
  return is_the_stores(std::string(request.key)) &&
         std::all_of(request.keys.begin(), request.keys.end(),
                     [&](std::string_view key) { return is_the_stores(std::string(key)); });
}

}  // namespace muster
