// What a client asks of a run's rendezvous, through either door.

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "rendezvous/net/clock.h"
#include "rendezvous/net/connection.h"

namespace muster {

RunService::Time Connection::time() const {
  return {shared_.now, wall_now()};
}

// Of every request: as good as nothing where it is not about a state.
bool Connection::about_runs(const Request& request) const {
  const auto may_be = [&](std::string_view key) {
    return key.starts_with(kStateKeyPrefix) && shared_.runs->has_state(key);
  };
  if (request.query == Query::CompareSet) return request.key.starts_with(kStateKeyPrefix);
  return may_be(request.key) || std::any_of(request.keys.begin(), request.keys.end(), may_be);
}

void Connection::serve_state(const Request& request) {
  RunService& runs = *shared_.runs;
  in_runs_ = true;
  if (waits_) note_wait(request);
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
        if (runs.has_state(key)) runs.read_state(id_, key, time());
      return send_reply(apply(request));
    case Query::DeleteKey:
      return send_reply(Number{0});  // It goes when its run is over.
    case Query::QueueLen:
      return send_reply(apply(request));
    default:
      if (!hand_back(request))
        return refuse(at_offset("a rendezvous' state is written by COMPARE_SET only"));
      warn_of_other_use("a rendezvous' key is written without COMPARE_SET");
      send_reply(apply(request));
  }
}

void Connection::compare_set_state(const Request& request) {
  const CompareSetOutcome outcome =
      shared_.runs->compare_set(id_,
                                {.key = request.key,
                                 .expected = request.expected,
                                 .desired = request.value,
                                 .stored = shared_.table.has(request.key)},
                                time());
  if (const auto* now = std::get_if<StateNow>(&outcome)) return send_reply(Value{now->text});
  if (const auto* refused = std::get_if<StateRefused>(&outcome))
    return refuse(at_offset(refused->reason));
  if (std::holds_alternative<HeldBack>(outcome)) {
    held_ = true;
    return;
  }
  const std::string& surprise = std::get<NotOfARun>(outcome).surprise;
  if (!surprise.empty()) warn_of_other_use(surprise);
  send_reply(apply(request));
}

void Connection::warn_of_other_use(const std::string& what) const {
  spdlog::warn("store_key_is_no_state peer={} reason=\"{}: kept as any other key\"", peer(),
               at_offset(what));
}

/// Whether all of the states that it would write are the store's from now on.
bool Connection::hand_back(const Request& request) {
  RunService& runs = *shared_.runs;
  const auto is_the_stores = [&](const std::string& key) {
    return !runs.has_state(key) || runs.hand_back(key);
  };
  return is_the_stores(std::string(request.key)) &&
         std::all_of(request.keys.begin(), request.keys.end(),
                     [&](std::string_view key) { return is_the_stores(std::string(key)); });
}

void Connection::serve_native(std::string_view json) {
  ++shared_.requests;
  in_runs_ = true;
  const NativeAnswer answer = shared_.runs->receive(id_, json, peer_address().to_string(), time());
  if (answer.reply) out().add(encode(*answer.reply));
  if (!answer.close.empty()) refuse(at_offset(answer.close));
}

// A torchrun node has one connection: while it waits, it cannot say that it lives.
void Connection::note_wait(const Request& request) {
  const bool waits = shared_.table.is_waiting(id_);
  if (waits == std::exchange(waits_, waits)) return;
  std::optional<std::string_view> key;
  if (waits) key = request.keys.size() == 1 ? request.keys.front() : std::string_view();
  shared_.runs->waits(id_, key, time());
}

std::string Connection::at_offset(const std::string& reason) const {
  return fmt::format("{}; in the request at byte {}", reason, decoder_.offset());
}

void Connection::leave_runs() {
  if (std::exchange(in_runs_, false) && shared_.runs) shared_.runs->gone(id_, time());
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
  if (replies_.size() > shared_.queued_bytes) {
    done_ = true;
    return refuse("it does not read what it is sent: limit queued_bytes");
  }
  replies_.add(frame);
  send_waiting();
}

boost::asio::ip::address Connection::local_address() const {
  boost::asio::ip::tcp::endpoint local;
  socklen_t size = static_cast<socklen_t>(local.capacity());
  if (::getsockname(fd_.get(), local.data(), &size) < 0) return {};
  local.resize(size);
  return unmapped(local.address());
}

}  // namespace muster
