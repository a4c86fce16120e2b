#include "rendezvous/net/run_effects.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "rendezvous/wire/state_codec.h"

namespace muster {

namespace {

// A store at a loopback address is on this machine, for rank 0 reached us so: who comes from
// elsewhere reaches it where it reaches us.
NativeMessage as_reached_from(const Connection& peer, NativeMessage message) {
  auto* round = std::get_if<RoundComplete>(&message);
  if (round == nullptr || !round->store) return message;
  boost::system::error_code ec;
  const auto store = boost::asio::ip::make_address(round->store->addr, ec);
  if (ec || !unmapped(store).is_loopback() || peer.peer_address().is_loopback()) return message;
  const auto local = peer.local_address();
  if (!local.is_unspecified()) round->store->addr = local.to_string();
  return message;
}

// PREFIX.ROUND/... : torchrun's keys of a round, all under the state's key.
bool is_round_key(std::string_view key, std::string_view state_key) {
  key.remove_prefix(state_key.size() + 1);
  const auto digits = static_cast<std::size_t>(
      std::find_if(key.begin(), key.end(), [](char c) { return c < '0' || c > '9'; }) -
      key.begin());
  return digits > 0 && digits < key.size() && key[digits] == '/';
}

void apply(ConnectionShared& shared, const Request& request) {
  shared.table.apply({}, request);
  const auto released = shared.table.released();
  for (const ConnectionId id : std::vector<ConnectionId>(released.begin(), released.end()))
    shared.wake(id);
}

void forget_keys(const ForgetRun& forget, ConnectionShared& shared) {
  for (const std::string& key : shared.table.keys_below(forget.state_key + "."))
    if (is_round_key(key, forget.state_key) && !shared.runs->has_state(key))
      apply(shared, {.query = Query::DeleteKey, .key = key});
  if (forget.with_state) apply(shared, {.query = Query::DeleteKey, .key = forget.state_key});
}

spdlog::level::level_enum to_level(RunNote::Level level) {
  switch (level) {
    case RunNote::Level::Debug:
      return spdlog::level::debug;
    case RunNote::Level::Info:
      return spdlog::level::info;
    case RunNote::Level::Warning:
      break;
  }
  return spdlog::level::warn;
}

}  // namespace

std::optional<ConnectionId> carry_out(const RunEffect& effect, ConnectionShared& shared,
                                      const std::function<Connection*(ConnectionId)>& connection) {
  if (const auto* send = std::get_if<SendNative>(&effect)) {
    Connection* to = connection(send->to);
    if (to == nullptr) return std::nullopt;
    to->push(encode(as_reached_from(*to, send->message)));
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
  } else if (const auto* forget = std::get_if<ForgetRun>(&effect)) {
    forget_keys(*forget, shared);
  } else if (const auto* note = std::get_if<RunNote>(&effect)) {
    spdlog::log(to_level(note->level), "{}", note->line);
  }
  return std::nullopt;
}

}  // namespace muster
