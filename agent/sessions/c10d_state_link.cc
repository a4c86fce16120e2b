#include "agent/sessions/c10d_state_link.h"

#include <utility>

#include "rendezvous/torchrun/state_codec.h"

namespace muster {

namespace asio = boost::asio;

C10dStateLink::C10dStateLink(const asio::any_io_executor& executor,
                             const StoreDialer::Target& target, const std::string& run_id)
    : dialer_(executor, target), key_("torch.rendezvous." + run_id) {}

void C10dStateLink::close() {
  dialer_.close();
  if (client_) client_->close();
}

C10dStateLink::Outcome C10dStateLink::lost(const std::string& why) {
  error_ = why;
  if (client_) client_->close();
  return Outcome::Lost;
}

C10dStateLink::Outcome C10dStateLink::update_state(const std::string& text) {
  if (text == token_) return Outcome::Done;
  auto decoded = decode_state(text);
  if (!decoded) {
    error_ = "what is under " + key_ + " is no rendezvous state: " + describe(decoded.error());
    return Outcome::Unreadable;
  }
  token_ = text;
  state_ = (*std::move(decoded)).value_or(RendezvousState{});
  return Outcome::Done;
}

asio::awaitable<C10dStateLink::Outcome> C10dStateLink::connect(Instant deadline) {
  client_ = co_await dialer_.dial(deadline);
  if (!client_) co_return lost(dialer_.last_error());
  co_return co_await read_or_create();
}

/// Every torchrun node begins with this: it writes "no state" if the key is not there, and reads
/// the state otherwise.
asio::awaitable<C10dStateLink::Outcome> C10dStateLink::read_or_create() {
  const auto reply = co_await client_->compare_set(key_, "", kNoStateText);
  if (!reply) co_return lost(reply.error().message());
  co_return update_state(*reply);
}

asio::awaitable<C10dStateLink::Outcome> C10dStateLink::read() {
  if (!connected()) co_return lost("there is no connection");
  const auto text = co_await client_->get(key_);
  if (!text && text.error() != StoreErrc::WaitTimedOut) co_return lost(text.error().message());
  // The value is empty if the key was deleted between the wait and the get.
  if (!text || text->empty()) co_return co_await read_or_create();
  co_return update_state(*text);
}

asio::awaitable<C10dStateLink::Outcome> C10dStateLink::write(RendezvousState state) {
  if (!connected()) co_return lost("there is no connection");
  const std::string desired = encode_state(state);
  const auto reply = co_await client_->compare_set(key_, token_, desired);
  if (!reply) co_return lost(reply.error().message());
  if (*reply == desired) {
    token_ = desired;
    state_ = std::move(state);
    co_return Outcome::Done;
  }
  // A server that has no such key answers with the expected value: the key has vanished.
  const bool vanished = *reply == token_;
  const Outcome taken = vanished ? co_await read_or_create() : update_state(*reply);
  co_return taken == Outcome::Done ? Outcome::Stale : taken;
}

}  // namespace muster
