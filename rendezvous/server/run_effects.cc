#include "rendezvous/server/run_effects.h"

#include <algorithm>
#include <tuple>

#include <spdlog/spdlog.h>

#include "base/address_scope.h"
#include "base/net/name_lookup.h"
#include "base/net/unmapped.h"
#include "base/printable_text.h"
#include "rendezvous/torchrun/state_codec.h"

namespace muster {

namespace {

// "localhost" counts, too: a host whose endpoint is localhost knows no other name of itself.
bool is_loopback(const std::string& host) {
  return host == "localhost" || is_loopback_address(host);
}

// Replaces a loopback address of the workers' store by one that the reader can reach. Rank 0 has
// reached this server by a loopback address, so its store is on this machine. A reader on another
// machine reaches the store by the address by which it has reached this server. In a round with
// torchrun nodes, rank 0 publishes the address, so those nodes count as readers.
NativeMessage as_reached(const SendNative& send, const Connections& connection) {
  NativeMessage message = send.message;
  auto* round = std::get_if<RoundComplete>(&message);
  if (round == nullptr || !round->store || !is_loopback(round->store->addr)) return message;
  std::vector<ConnectionId> readers{send.to};
  readers.insert(readers.end(), send.readers.begin(), send.readers.end());
  for (const ConnectionId id : readers) {
    const Connection* reader = connection(id);
    if (reader == nullptr || reader->socket().peer_address().is_loopback()) continue;
    const auto local = unmapped(reader->socket().local().address());
    if (local.is_unspecified()) continue;
    round->store->addr = without_scope(local.to_string());
    break;
  }
  return message;
}

// The fields that a message sends. The bindings name all fields: with a new field, this does not
// compile until the field is added.
auto sent_fields(const RestartRound& message) {
  const auto& [to, round, cause, who, what, life, restart_count] = message;
  return std::tie(round, cause, who, what, life, restart_count);
}
auto sent_fields(const RunEnded& message) {
  const auto& [to, succeeded, who, why, preempted, without_progress, hopeless] = message;
  return std::tie(succeeded, who, why, preempted, without_progress, hopeless);
}
auto sent_fields(const PreemptionNotice& message) {
  const auto& [to, round, left, reason, nodes, doomed, ranks, this_node, stops] = message;
  return std::tie(round, left, reason, nodes, doomed, ranks, this_node, stops);
}
auto sent_fields(const NativeWaiting& message) {
  const auto& [text] = message;
  return std::tie(text);
}

template <typename Message>
bool are_both(const NativeMessage& a, const NativeMessage& b) {
  const auto* one = std::get_if<Message>(&a);
  const auto* other = std::get_if<Message>(&b);
  return one != nullptr && other != nullptr && sent_fields(*one) == sent_fields(*other);
}

// Whether other nodes may get the same message next.
bool is_for_many(const NativeMessage& message) {
  return std::holds_alternative<RestartRound>(message) ||
         std::holds_alternative<RunEnded>(message) ||
         std::holds_alternative<PreemptionNotice>(message) ||
         std::holds_alternative<NativeWaiting>(message);
}

// The encoded message, valid until the next call. A message to all nodes of a run is encoded once:
// 8,000 encodings of a reason of 1 KiB took 0.4 s.
const std::string& frame_for_many(const NativeMessage& message, ConnectionShared& shared) {
  auto& [last, frame] = shared.last_frame;
  const bool is_last =
      !frame.empty() &&
      (are_both<RestartRound>(message, last) || are_both<RunEnded>(message, last) ||
       are_both<PreemptionNotice>(message, last) || are_both<NativeWaiting>(message, last));
  if (is_last) return frame;
  frame.clear();
  last = message;
  return frame = encode(message);
}

// Whether the key is a key of a round of torchrun: STATE_KEY.ROUND/...
bool is_round_key(std::string_view key, std::string_view state_key) {
  key.remove_prefix(state_key.size() + 1);
  const auto digits = static_cast<std::size_t>(
      std::find_if(key.begin(), key.end(), [](char c) { return c < '0' || c > '9'; }) -
      key.begin());
  return digits > 0 && digits < key.size() && key[digits] == '/';
}

void apply(ConnectionShared& shared, const Request& request) {
  shared.apply({}, request);
  const auto released = shared.table.released();
  for (const ConnectionId id : std::vector<ConnectionId>(released.begin(), released.end()))
    shared.wake(id);
}

void forget_keys(const ForgetRun& forget, ConnectionShared& shared) {
  shared.delete_below(forget.state_key + ".", forget.state_key, [&](std::string_view key) {
    return is_round_key(key, forget.state_key) && !shared.runs->has_state(key);
  });
  if (forget.with_state) apply(shared, {.query = Query::DeleteKey, .key = forget.state_key});
}

std::string value_of(ConnectionShared& shared, const std::string& key) {
  const Reply reply = shared.table.apply({}, {.query = Query::Get, .key = key});
  const auto* value = std::get_if<Value>(&reply);
  return value == nullptr ? std::string() : std::string(value->bytes.view());
}

void repeat_master(const RepeatMaster& repeat, ConnectionShared& shared) {
  const auto keys_of = [&](std::int64_t round) {
    const std::string prefix = repeat.state_key + "." + std::to_string(round) + "/MASTER_";
    return std::pair(prefix + "ADDR", prefix + "PORT");
  };
  const auto [addr_key, port_key] = keys_of(repeat.round);
  if (shared.table.has(addr_key)) return;
  for (std::int64_t round = repeat.round - 1; round >= 0; --round) {
    const auto [old_addr, old_port] = keys_of(round);
    if (!shared.table.has(old_port) || value_of(shared, old_addr) != repeat.addr) continue;
    const std::string port = value_of(shared, old_port);
    apply(shared, {.query = Query::Set, .key = addr_key, .value = repeat.addr});
    apply(shared, {.query = Query::Set, .key = port_key, .value = port});
    if (shared.log.admit(shared.now))
      spdlog::info("master_repeated key={} addr={} port={} from_round={}",
                   printable_text(repeat.state_key), printable_text(repeat.addr),
                   printable_text(port), round);
    return;
  }
}

spdlog::level::level_enum to_level(LogLine::Level level) {
  switch (level) {
    case LogLine::Level::Debug:
      return spdlog::level::debug;
    case LogLine::Level::Info:
      return spdlog::level::info;
    case LogLine::Level::Warning:
      return spdlog::level::warn;
    case LogLine::Level::Error:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

std::optional<ConnectionId> apply(const RunEffect& effect, ConnectionShared& shared,
                                  const Connections& connection) {
  if (const auto* send = std::get_if<SendNative>(&effect)) {
    Connection* to = connection(send->to);
    if (to == nullptr) return std::nullopt;
    if (is_for_many(send->message))
      to->push(frame_for_many(send->message, shared));
    else
      to->push(encode(as_reached(*send, connection)));
    return send->to;
  }
  if (const auto* answer = std::get_if<AnswerHeld>(&effect)) {
    Connection* to = connection(answer->to);
    if (to == nullptr) return std::nullopt;
    to->answer(answer->text);
    return answer->to;
  }
  if (const auto* show = std::get_if<ShowState>(&effect)) {
    if (!shared.table.has(show->state_key))
      apply(shared, {.query = Query::Set, .key = show->state_key, .value = kNoStateText});
  } else if (const auto* barrier = std::get_if<OpenBarrier>(&effect)) {
    apply(shared, {.query = Query::Set, .key = barrier->key, .value = "<val_ignored>"});
  } else if (const auto* forget = std::get_if<ForgetRun>(&effect)) {
    forget_keys(*forget, shared);
  } else if (const auto* repeat = std::get_if<RepeatMaster>(&effect)) {
    repeat_master(*repeat, shared);
  } else if (const auto* log = std::get_if<LogLine>(&effect)) {
    spdlog::log(to_level(log->level), "{}", log->line);
  } else if (const auto* answered = std::get_if<QuestionAnswered>(&effect)) {
    const auto asker = shared.callers.questions.extract(answered->answer.number);
    if (!asker.empty()) asker.mapped()(answered->answer);
  } else if (const auto* operated = std::get_if<OperatorAnswered>(&effect)) {
    const auto asker = shared.callers.operations.extract(operated->number);
    if (!asker.empty()) asker.mapped()(operated->text);
  }
  return std::nullopt;
}

}  // namespace muster
