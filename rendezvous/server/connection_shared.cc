#include "rendezvous/server/connection_shared.h"

#include <cstddef>

#include "base/system/clock.h"
#include "rendezvous/host/run_keys.h"

namespace muster {

namespace {

/// The bytes of the names and values in the table, without values that only replies or inputs hold.
std::size_t stored_bytes(StoreTable& table) {
  return table.bytes() - table.account().blocks + table.account().kept;
}

/// Calls `change`, and counts in the account of `run` what it changes in the store.
template <typename Change>
void count_change(ConnectionShared& shared, std::string_view run, const Change& change) {
  if (run.empty()) return change();
  StoreTable& table = shared.table;
  const auto names = static_cast<std::ptrdiff_t>(table.num_names());
  const auto bytes = static_cast<std::ptrdiff_t>(stored_bytes(table));
  change();
  shared.accounts.count_stored(run, static_cast<std::ptrdiff_t>(table.num_names()) - names,
                               static_cast<std::ptrdiff_t>(stored_bytes(table)) - bytes);
}

}  // namespace

RunService::Time ConnectionShared::time() const {
  return {now, wall_now()};
}

Reply ConnectionShared::apply(ConnectionId from, const Request& request) {
  const std::string_view run = run_of_request(request);
  if (run.empty()) return table.apply(from, request);
  Reply reply;
  count_change(*this, run, [&] { reply = table.apply(from, request); });
  return reply;
}

void ConnectionShared::abandon(ConnectionId client, std::string_view waits_for_run) {
  count_change(*this, waits_for_run, [&] { table.abandon(client); });
}

void ConnectionShared::disconnect(ConnectionId client, std::string_view waits_for_run) {
  count_change(*this, waits_for_run, [&] { table.disconnect(client); });
}

void ConnectionShared::delete_below(std::string_view prefix, std::string_view run,
                                    const std::function<bool(std::string_view)>& wanted) {
  count_change(*this, run, [&] { table.delete_below(prefix, wanted); });
}

}  // namespace muster
