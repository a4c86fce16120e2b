#include "rendezvous/server/client_runs.h"

#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

namespace muster {

ClientRuns::~ClientRuns() {
  leave();
  end_wait();
  if (account_ != nullptr) shared_.accounts.leave(*account_);
}

bool ClientRuns::enter(std::string_view run) {
  if (account_ == nullptr) account_ = shared_.accounts.enter(run);
  return account_ != nullptr;
}

void ClientRuns::become_member(const NativeHello& hello) {
  if (is_member()) return;
  member_of_ = std::string(kStateKeyPrefix) + hello.run_id;
  shared_.c10d.joined(socket_.peer_address(), member_of_);
}

void ClientRuns::wait_for(std::string_view run) {
  if (waits_for_run_ == run) return;
  end_wait();
  waits_for_run_ = run;
}

void ClientRuns::end_wait() {
  shared_.disconnect(id_, std::exchange(waits_for_run_, {}));
}

void ClientRuns::report_wait(const Request& request) {
  const bool waits = shared_.table.is_waiting(id_);
  if (waits == std::exchange(waits_, waits)) return;
  std::optional<std::string_view> key;
  if (waits) key = request.keys.size() == 1 ? request.keys.front() : std::string_view();
  shared_.work.spend(kStateWork * static_cast<std::int64_t>(shared_.runs->runs_of(id_)));
  shared_.runs->waits(id_, key, shared_.time());
}

void ClientRuns::leave() {
  if (is_member()) shared_.c10d.left(socket_.peer_address(), std::exchange(member_of_, {}));
  if (!std::exchange(known_, false) || !shared_.runs) return;
  try {
    shared_.runs->disconnect(id_, shared_.time());
  } catch (const std::exception& error) {  // Also called by the destructor.
    spdlog::error("store_event_failed peer={} error=\"{}\"", to_text(socket_.peer()), error.what());
  }
}

}  // namespace muster
