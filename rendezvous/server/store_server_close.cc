// How StoreServer closes connections. A closed connection is destroyed when a turn of the loop has
// work left: the client may have waited for very many keys.

#include <utility>

#include <spdlog/spdlog.h>

#include "base/printable_text.h"
#include "rendezvous/server/store_server_impl.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr std::uint32_t kGenerations = std::uint32_t{1} << 31;  // Below kListenerTag in a tag.

}  // namespace

void StoreServer::Impl::close(Slot& slot, const Ending& ending) {
  dismiss(slot, ending);
  finish_leaving(0);
  if (!leaving_.empty()) resume_later();
}

/// Closes the connection, and leaves it to finish_leaving().
void StoreServer::Impl::dismiss(Slot& slot, const Ending& ending) {
  Connection& connection = *slot.connection;
  const asio::ip::address peer = connection.peer_address();
  if (!ending.reason.empty()) {
    if (ending.warn) ++closed_[ending.cause];
    if (const auto left_out = shared_.log.admit(now_, ending.cause, peer))
      spdlog::log(ending.warn ? spdlog::level::warn : spdlog::level::info,
                  "store_connection_closed peer={} reason=\"{}\" left_out={}", connection.peer(),
                  printable_text(ending.reason), *left_out);
  }
  if (slot.waits_in != nullptr) std::exchange(slot.waits_in, nullptr)->remove(slot.deadline);
  if (slot.unread_bytes > 0) unread_.erase({slot.unread_bytes, connection.id().value});
  shared_.queued_bytes -= slot.unread_memory;
  if (slot.account != nullptr)
    shared_.accounts.count_queued(*std::exchange(slot.account, nullptr), slot.unread_bytes, 0);
  slot.unread_bytes = slot.unread_memory = 0;
  if (const auto of_peer = open_of_.find(peer); --of_peer->second == 0) open_of_.erase(of_peer);
  slot.generation = (slot.generation + 1) % kGenerations;
  --open_;
  connection.leave();
  leaving_.push_back(std::move(slot.connection));
  if (accept_again_) resume_accepting();  // A descriptor is free again.
}

/// Destroys closed connections, as long as more than `reserved` of the turn's work is left. Each
/// may have waited for so many keys that the loop would stand still if all of them were destroyed
/// at once.
void StoreServer::Impl::finish_leaving(std::int64_t reserved) {
  while (!leaving_.empty() && shared_.turn_work > reserved) {
    const std::unique_ptr<Connection> left = std::move(leaving_.front());
    leaving_.pop_front();
    shared_.turn_work -= left->work_left();
    free_slots_.push_back(left->id().value);
  }
}

void StoreServer::Impl::close_all() {
  read_clock();
  shared_.table.clear();
  for (Slot& slot : slots_)
    if (slot.connection) dismiss(slot, {});
  begin_turn();
  finish_leaving(0);  // The table is empty, so nothing of their waits is left.
  shared_.accounts.clear();
}

}  // namespace muster
