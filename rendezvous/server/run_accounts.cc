#include "rendezvous/server/run_accounts.h"

#include <algorithm>

namespace muster {
namespace {

/// A request for keys of two runs is counted for the first run only. So a change can be larger than
/// the sum, and the sum stops at zero.
std::size_t changed_by(std::size_t sum, std::ptrdiff_t change) {
  if (change >= 0) return sum + static_cast<std::size_t>(change);
  return sum - std::min(sum, static_cast<std::size_t>(-change));
}

}  // namespace

RunAccount& RunAccounts::account_of(std::string_view run) {
  const auto found = accounts_.find(run);
  if (found != accounts_.end()) return found->second;
  RunAccount account;
  account.run = run;
  return accounts_.emplace(std::string(run), std::move(account)).first->second;
}

const RunAccount* RunAccounts::find(std::string_view run) const {
  const auto found = accounts_.find(run);
  return found == accounts_.end() ? nullptr : &found->second;
}

void RunAccounts::erase_if_empty(const RunAccount& account) {
  if (account.connections == 0 && account.names == 0 && account.bytes == 0)
    accounts_.erase(std::string(account.run));
}

RunAccount* RunAccounts::enter(std::string_view run) {
  if (const RunAccount* known = find(run);
      known != nullptr && known->connections >= limits_.connections)
    return nullptr;
  RunAccount& account = account_of(run);
  ++account.connections;
  return &account;
}

void RunAccounts::leave(RunAccount& account) {
  account.connections -= std::min<std::size_t>(account.connections, 1);
  erase_if_empty(account);
}

void RunAccounts::count_queued(RunAccount& account, std::size_t before, std::size_t now) {
  account.queued += now;
  account.queued -= std::min(account.queued, before);
}

void RunAccounts::count_stored(std::string_view run, std::ptrdiff_t names, std::ptrdiff_t bytes) {
  if (names == 0 && bytes == 0) return;
  RunAccount& account = account_of(run);
  account.names = changed_by(account.names, names);
  account.bytes = changed_by(account.bytes, bytes);
  erase_if_empty(account);
}

std::string RunAccounts::refusal(std::string_view run, std::size_t names, std::size_t bytes) const {
  const RunAccount* account = find(run);
  const std::size_t names_now = account == nullptr ? 0 : account->names;
  const std::size_t bytes_now = account == nullptr ? 0 : account->bytes;
  if (names > 0 && names_now + names > limits_.keys)
    return "the run has as many keys as one run may: limit run_keys=" +
           std::to_string(limits_.keys);
  if (bytes > 0 && bytes_now + bytes > limits_.bytes)
    return "the run stores as much as one run may: limit run_bytes=" +
           std::to_string(limits_.bytes);
  return {};
}

std::string RunAccounts::too_many_connections() const {
  return "the run has as many connections as one run may: limit run_connections=" +
         std::to_string(limits_.connections);
}

}  // namespace muster
