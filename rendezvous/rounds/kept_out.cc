#include "rendezvous/rounds/kept_out.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

// Removes "_" and a number, which may be negative, from the end. Returns whether they were there.
bool drop_number(std::string_view& text) {
  const std::size_t at = text.rfind('_');
  if (at == std::string_view::npos) return false;
  std::string_view digits = text.substr(at + 1);
  if (digits.starts_with('-')) digits.remove_prefix(1);
  const bool number = !digits.empty() && std::all_of(digits.begin(), digits.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
  if (number) text = text.substr(0, at);
  return number;
}

// Whether `text` is the name of a node of this host: "host_123_0".
bool names_node_of(std::string_view text, std::string_view host) {
  return drop_number(text) && drop_number(text) && text == host;
}

}  // namespace

bool matches_node(std::string_view text, const NodeName& name) {
  return text == name.addr || text == to_string(name);
}

KeptOut::KeptOut(const std::vector<KeptOutEntry>& entries) {
  for (const KeptOutEntry& entry : entries)
    add(entry.node, entry.how);
}

void KeptOut::add(const std::string& node, KeptOutHow how) {
  if (!has_room_for(node)) return;
  KeptOutHow& kept = entries_.try_emplace(node, how).first->second;
  kept = std::max(kept, how);
}

bool KeptOut::remove(const std::string& node) {
  return std::erase_if(entries_, [&](const auto& entry) {
           return entry.first == node || names_node_of(entry.first, node);
         }) > 0;
}

bool KeptOut::has_room_for(const std::string& node) const {
  return entries_.size() < kMaxKeptOut || entries_.contains(node);
}

std::optional<KeptOutEntry> KeptOut::find(const NodeName& name) const {
  if (entries_.empty()) return std::nullopt;
  std::optional<KeptOutEntry> found;
  for (const std::string& text : {name.addr, to_string(name)}) {
    const auto entry = entries_.find(text);
    if (entry != entries_.end() && (!found || found->how < entry->second))
      found = KeptOutEntry{entry->first, entry->second};
  }
  return found;
}

std::vector<KeptOutEntry> KeptOut::entries() const {
  std::vector<KeptOutEntry> entries;
  entries.reserve(entries_.size());
  for (const auto& [node, how] : entries_)
    entries.push_back({node, how});
  return entries;
}

StrikeList::StrikeList(const std::vector<HostStrikes>& hosts) {
  for (const HostStrikes& host : hosts)
    entry_of(host.host) = host.strikes;
}

Strikes& StrikeList::entry_of(const std::string& host) {
  if (hosts_.size() >= kMaxStruckHosts && !hosts_.contains(host))
    hosts_.erase(std::min_element(hosts_.begin(), hosts_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  Counted& counted = hosts_[host];
  counted.last = ++strikes_;
  return counted.strikes;
}

Strikes StrikeList::find(std::string_view host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? Strikes{} : found->second.strikes;
}

std::vector<HostStrikes> StrikeList::hosts() const {
  std::vector<std::pair<std::uint64_t, HostStrikes>> by_time;
  by_time.reserve(hosts_.size());
  for (const auto& [host, counted] : hosts_)
    by_time.push_back({counted.last, {host, counted.strikes}});
  std::sort(by_time.begin(), by_time.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<HostStrikes> hosts;
  hosts.reserve(by_time.size());
  for (auto& [last, host] : by_time)
    hosts.push_back(std::move(host));
  return hosts;
}

}  // namespace muster
