#include "tests/simulation/c10d_door.h"

#include <array>
#include <cstring>

namespace muster::testing {
namespace {

std::string bytes_of(const Reply& reply) {
  ReplyQueue queue;
  encode_reply(reply, queue);
  std::string bytes;
  while (!queue.empty()) {
    std::array<std::string_view, 4> pieces;
    const std::size_t count = queue.gather(pieces);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < count; ++i) {
      bytes += pieces[i];
      taken += pieces[i].size();
    }
    queue.consume(taken);
  }
  return bytes;
}

/// The value in a reply to GET or COMPARE_SET, which is the length in 8 bytes and then the value.
std::string value_in(const std::string& reply) {
  std::uint64_t length = 0;
  REQUIRE(reply.size() >= sizeof length);
  std::memcpy(&length, reply.data(), sizeof length);
  REQUIRE(reply.size() == sizeof length + length);
  return reply.substr(sizeof length);
}

}  // namespace

const CodecLimits C10dDoor::kLimits{};

C10dDoor::C10dDoor(Cluster& cluster) : cluster_(cluster) {
  cluster_.has_torchrun_nodes = true;
  cluster_.on_effect = [this](const RunEffect& effect) {
    if (const auto* held = std::get_if<AnswerHeld>(&effect))
      reply(held->to.value, Value{held->text});
    if (const auto* barrier = std::get_if<OpenBarrier>(&effect))
      cluster_.at(cluster_.now, [this, key = barrier->key] { open(key); });
  };
  cluster_.on_kill = [this] {
    for (auto& [id, link] : links_) {
      if (!std::exchange(link.open_at_host, false)) continue;
      cluster_.at(cluster_.now + cluster_.delay(), [this, id] { broken_at_client(id); });
    }
  };
}

std::uint32_t C10dDoor::connect() {
  const std::uint32_t id = cluster_.new_connection();
  Link& link = links_[id];
  link.last_to_host = link.last_to_client = cluster_.now;
  if (!cluster_.is_up()) {
    link.open_at_host = false;
    cluster_.at(cluster_.now + cluster_.delay(), [this, id] { broken_at_client(id); });
    return id;
  }
  std::string bytes;
  encode_request({.query = Query::Validate, .number = c10d::kValidationMagic}, bytes);
  send(id, std::move(bytes));
  return id;
}

void C10dDoor::ask(std::uint32_t id, const Request& request, OnReply on_reply) {
  Link& link = links_.at(id);
  if (!link.open_at_client) return on_reply(std::nullopt);
  REQUIRE_FALSE(link.on_reply);
  link.on_reply = std::move(on_reply);
  std::string bytes;
  encode_request(request, bytes);
  send(id, std::move(bytes));
}

void C10dDoor::send(std::uint32_t id, std::string bytes) {
  Link& link = links_.at(id);
  link.last_to_host = std::max(cluster_.now + cluster_.delay(), link.last_to_host);
  cluster_.at(link.last_to_host, [this, id, bytes = std::move(bytes)] { arrive(id, bytes); });
}

void C10dDoor::arrive(std::uint32_t id, const std::string& bytes) {
  if (cluster_.now < cluster_.stopped_until)
    return cluster_.at(cluster_.stopped_until, [this, id, bytes] { arrive(id, bytes); });
  Link& link = links_.at(id);
  link.input += bytes;
  cluster_.trace(id, bytes);
  while (link.open_at_host && !link.input.empty()) {
    const auto whole = link.decoder.scan(link.input);
    if (!whole) return refuse(id, std::string(to_string(whole.error().fault)));
    if (!*whole) return;
    const std::string message = link.input.substr(0, link.decoder.size());
    link.input.erase(0, message.size());
    RequestScratch scratch;
    const Request request = link.decoder.request(message, scratch);
    link.decoder.next();
    serve(id, link, request);
    cluster_.apply_effects();
  }
}

void C10dDoor::serve(std::uint32_t id, Link& link, const Request& request) {
  RunService& service = *cluster_.service;
  if (!link.waits_for.empty()) {
    link.waits_for.clear();
    service.waits({id}, std::nullopt, cluster_.time());
  }
  switch (request.query) {
    case Query::Validate:
      return;
    case Query::CompareSet:
      return compare_set(id, request);
    case Query::Get:
      if (!service.has_state(request.key)) return refuse(id, "no such state");
      return reply(id, Value{service.read_state({id}, request.key, cluster_.time())});
    case Query::Wait:
      if (request.keys.size() != 1) return refuse(id, "a wait for several keys");
      link.waits_for = request.keys.front();
      return service.waits({id}, request.keys.front(), cluster_.time());
    default:
      return refuse(id, "no request of a rendezvous");
  }
}

void C10dDoor::refuse(std::uint32_t id, std::string why) {
  refusals.push_back(std::move(why));
  cut(id);
}

void C10dDoor::compare_set(std::uint32_t id, const Request& request) {
  const CompareSetOutcome outcome =
      cluster_.service->compare_set({id},
                                    {.key = request.key,
                                     .expected = request.expected,
                                     .desired = request.value,
                                     .peer_address = "10.0.0." + std::to_string(id % 250)},
                                    cluster_.time());
  if (const auto* now = std::get_if<StateNow>(&outcome)) return reply(id, Value{now->text});
  if (const auto* refused = std::get_if<StateRefused>(&outcome)) return refuse(id, refused->reason);
  if (std::holds_alternative<NotOfARun>(outcome)) refuse(id, "no state");
}

void C10dDoor::reply(std::uint32_t id, const Reply& answer) {
  const auto found = links_.find(id);
  if (found == links_.end() || !found->second.open_at_host) return;
  Link& link = found->second;
  link.last_to_client = std::max(cluster_.now + cluster_.delay(), link.last_to_client);
  cluster_.at(link.last_to_client, [this, id, bytes = bytes_of(answer)] {
    Link& open = links_.at(id);
    cluster_.trace(id, bytes);
    if (open.open_at_client && open.on_reply) std::exchange(open.on_reply, {})(bytes);
  });
}

void C10dDoor::open(const std::string& key) {
  for (auto& [id, link] : links_) {
    if (!link.open_at_host || link.waits_for != key) continue;
    link.waits_for.clear();
    cluster_.service->waits({id}, std::nullopt, cluster_.time());
    reply(id, kStopWaiting);
  }
  cluster_.apply_effects();
}

void C10dDoor::cut(std::uint32_t id) {
  cluster_.at(cluster_.now + cluster_.delay(), [this, id] { broken_at_client(id); });
  cluster_.at(cluster_.now + cluster_.delay(), [this, id] { gone_at_host(id); });
}

void C10dDoor::gone_at_host(std::uint32_t id) {
  if (cluster_.now < cluster_.stopped_until)
    return cluster_.at(cluster_.stopped_until, [this, id] { gone_at_host(id); });
  if (!std::exchange(links_.at(id).open_at_host, false)) return;
  cluster_.service->disconnect({id}, cluster_.time());
  cluster_.apply_effects();
}

void C10dDoor::broken_at_client(std::uint32_t id) {
  Link& link = links_.at(id);
  if (!std::exchange(link.open_at_client, false) || !link.on_reply) return;
  std::exchange(link.on_reply, {})(std::nullopt);
}

// --- members -------------------------------------------------------------------------------------

void C10dMember::start() {
  go_on();
}

void C10dMember::leave() {
  ended_ = true;
  const auto seen = decode_state(seen_text_);
  REQUIRE((seen && *seen));
  RendezvousState closed = **seen;
  closed.closed = true;
  std::string bytes;
  const std::string desired = encode_state(closed);
  encode_request(
      {.query = Query::CompareSet, .key = key_, .value = desired, .expected = seen_text_}, bytes);
  if (!connection_ || !door_.is_open(*connection_)) return;
  door_.send(*connection_, std::move(bytes));
  cluster_.at(cluster_.now + 100ms, [this] { door_.cut(*connection_); });
}

void C10dMember::go_on() {
  if (ended_) return;
  if (!connection_ || !door_.is_open(*connection_)) {
    connection_ = door_.connect();
    begun_ = false;
  }
  const auto on_reply = [this](const std::optional<std::string>& reply) { took(reply); };
  if (!begun_) {  // Like torchrun, writes the text for "no state" if the key does not exist.
    begun_ = true;
    write_.reset();
    return door_.ask(
        *connection_,
        {.query = Query::CompareSet, .key = key_, .value = kNoStateText, .expected = ""}, on_reply);
  }
  if (finished_) {
    at_exit_barrier_ = true;
    const std::string barrier = key_ + ".0" + std::string(kExitBarrierKey);
    const std::string_view keys[]{barrier};
    return door_.ask(*connection_, {.query = Query::Wait, .keys = keys},
                     [this](const std::optional<std::string>& reply) {
                       if (!reply) cluster_.at(cluster_.now + 500ms, [this] { go_on(); });
                     });
  }
  if (!write_) return door_.ask(*connection_, {.query = Query::Get, .key = key_}, on_reply);
  const std::string desired = encode_state(*std::exchange(write_, std::nullopt));
  door_.ask(*connection_,
            {.query = Query::CompareSet, .key = key_, .value = desired, .expected = seen_text_},
            on_reply);
}

void C10dMember::took(const std::optional<std::string>& reply) {
  Next next{.write = std::nullopt, .after = 500ms};
  if (reply) {
    seen_text_ = value_in(*reply);
    auto seen = decode_state(seen_text_);
    REQUIRE(seen.has_value());
    next = take(*seen ? **seen : RendezvousState{}, cluster_.now, cluster_.time().wall);
  }
  write_ = std::move(next.write);
  cluster_.at(cluster_.now + next.after, [this] { go_on(); });
}

C10dMember::Next TorchMember::take(const RendezvousState& seen, Instant now, WallTime wall) {
  using Action = TorchModel::Action;
  model_.state = seen;
  model_.sanitize(wall);
  const Action action = model_.decide(operation_, now, deadline_, wall);
  switch (action) {
    case Action::Sync:
      return {.write = std::nullopt, .after = 1s};
    case Action::Finish:
      break;
    case Action::Closed:
    case Action::Graceful:
    case Action::TimedOut:
      restart(now);
      return {.write = std::nullopt, .after = 1s};
    default:
      model_.apply(action, wall);
      return {.write = model_.state, .after = 0s};
  }
  if (operation_ == TorchModel::Operation::Exit) {
    operation_ = TorchModel::Operation::Join;
    return {.write = std::nullopt, .after = 0s};
  }
  if (operation_ == TorchModel::Operation::Join) {
    round_ = model_.state.round;
    operation_ = TorchModel::Operation::KeepAlive;
  }
  deadline_ = now + 5s;
  const bool out =
      model_.state.round != round_ || !model_.state.participants.contains(model_.name());
  if (out || !model_.state.wait_list.empty()) restart(now);
  return {.write = std::nullopt, .after = 1s};
}

void TorchMember::restart(Instant now) {
  round_.reset();
  operation_ = TorchModel::Operation::Exit;
  deadline_ = now + model_.settings().join_timeout;
}

std::string TorchMember::describe() const {
  return to_string(model_.name()) + " torchrun" +
         (round_ ? " in round " + std::to_string(*round_) : std::string(" joins")) +
         (finished() ? " finished" : "") + "\n";
}

C10dMember::Next MusterMember::take(const RendezvousState& seen, Instant now, WallTime wall) {
  C10dStep step = participant_.step(seen, now, wall);
  Next next{.write = std::nullopt, .after = 1s};
  if (auto* write = std::get_if<WriteState>(&step)) {
    next = {.write = std::move(write->state), .after = 0s};
  } else if (const auto* ready = std::get_if<RoundReady>(&step)) {
    round_ = ready->round;
    settles_ = now + 1500ms;
  } else if (!std::holds_alternative<CheckLater>(step)) {
    round_.reset();
    participant_.join(now);
  }
  if (round_ && now >= settles_) participant_.mark_round_seen_by_all();
  return next;
}

std::string MusterMember::describe() const {
  return to_string(participant_.name()) + " muster by c10d" +
         (round_ ? " in round " + std::to_string(*round_) : std::string(" joins")) +
         (finished() ? " finished" : "") + " " + participant_.progress() + "\n";
}

}  // namespace muster::testing
