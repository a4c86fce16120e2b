#include "rendezvous/state/etcd/etcd_records.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/percent.h"
#include "base/printable_text.h"
#include "base/whole_number.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/state/run_record_codec.h"

namespace muster {
namespace {

std::string escaped(std::string_view text) {
  return percent_encode(text, [](char c) { return c > ' ' && c < 0x7f && c != '%' && c != '/'; });
}

/// Accepts only texts that escaped() writes, so that two keys never have the same meaning.
std::optional<std::string> unescaped(std::string_view text) {
  auto result = percent_decode(text);
  if (result && escaped(*result) != text) return std::nullopt;
  return result;
}

/// The number with a fixed count of digits, so that keys sort in the order of their numbers.
std::string padded(std::uint64_t number) {
  constexpr std::size_t kDigits = 20;
  const std::string digits = std::to_string(number);
  return std::string(kDigits - digits.size(), '0') + digits;
}

EtcdRecordError unreadable_key(const std::string& key, const std::string& why) {
  return {"etcd's key " + printable_text(key) + " cannot be read (" + why +
          "): it is left as it is. Give another prefix (--state, or --rdzv-conf etcd_prefix), or "
          "delete the keys of this one and lose what they say"};
}

}  // namespace

std::string EtcdRecords::prefix_of_run(const std::string& prefix, std::string_view run_id) {
  return prefix + "/run_" + escaped(run_id);
}

std::string EtcdRecords::journal_key(std::size_t number) const {
  return journal_folder() + padded(number);
}
std::string EtcdRecords::run_key(std::string_view run_id) const {
  return prefix_ + "/run/" + escaped(run_id);
}
std::string EtcdRecords::member_folder(std::string_view run_id) const {
  return prefix_ + "/member/" + escaped(run_id) + "/";
}
std::string EtcdRecords::ended_key(std::uint64_t number) const {
  return prefix_ + "/ended/" + padded(number);
}

std::string EtcdRecords::end_of(std::string folder) {
  folder.back() = '/' + 1;
  return folder;
}

// --- reading -------------------------------------------------------------------------------------

void EtcdRecords::begin_reading() {
  members_.clear();
  ended_.clear();
  removal_of_orphans_.clear();
  read_ = {};
  read_members_.clear();
}

boost::system::result<void, EtcdRecordError> EtcdRecords::read(const EtcdKeyValue& entry) {
  const std::string runs = prefix_ + "/run/";
  const std::string members = prefix_ + "/member/";
  const std::string ended = prefix_ + "/ended/";
  const std::string_view key = entry.key;
  if (key == format_key()) {
    const auto version = whole_number<std::uint64_t>(entry.value);
    if (!version || *version > kEtcdFormat)
      return unreadable_key(entry.key, "it says format " + printable_text(entry.value) +
                                           ", and this muster knows up to " +
                                           std::to_string(kEtcdFormat) +
                                           "; a newer muster has written it");
  } else if (key == id_key()) {
    if (entry.value.size() <= kMaxStateIdBytes) read_.id = entry.value;
  } else if (key.starts_with(runs)) {
    auto run_id = unescaped(key.substr(runs.size()));
    if (!run_id) return unreadable_key(entry.key, "it names no run");
    auto record = decode_run_record(entry.value);
    if (!record) return unreadable_key(entry.key, record.error().reason);
    members_.try_emplace(*run_id);
    read_.runs.push_back({*std::move(run_id), *std::move(record), {}});
  } else if (key.starts_with(members)) {
    const std::string_view rest = key.substr(members.size());
    const auto run_id = unescaped(rest.substr(0, rest.find('/')));
    if (!run_id) return unreadable_key(entry.key, "it names no run");
    auto record = decode_member_record(entry.value);
    if (!record) return unreadable_key(entry.key, record.error().reason);
    members_[*run_id].insert(entry.key);
    read_members_[*run_id].push_back(*std::move(record));
  } else if (key.starts_with(ended)) {
    const auto number = whole_number<std::uint64_t>(key.substr(ended.size()));
    if (!number) return unreadable_key(entry.key, "it has no number");
    auto record = decode_ended_run(entry.value);
    if (!record) return unreadable_key(entry.key, record.error().reason);
    ended_.push_back(*number);
    read_.ended.push_back(*std::move(record));
  }
  return {};
}

StoredState EtcdRecords::finish_reading() {
  for (StoredRun& run : read_.runs)
    if (auto found = read_members_.extract(run.run_id); !found.empty())
      run.members = std::move(found.mapped());
  for (const auto& [run_id, orphans] : std::exchange(read_members_, {})) {
    const std::string folder = member_folder(run_id);
    removal_of_orphans_.push_back(
        {.kind = EtcdChange::Kind::DeleteRange, .key = folder, .value = end_of(folder)});
    members_.erase(run_id);
  }
  return std::exchange(read_, {});
}

// --- writing -------------------------------------------------------------------------------------

std::vector<EtcdChange> EtcdRecords::changes_of(const StateChanges& changes) {
  std::vector<EtcdChange> list;
  for (const auto& [run_id, run] : changes.runs)
    change_run(run_id, run, list);
  for (const EndedRun& run : changes.ended) {
    const std::uint64_t number = ended_.empty() ? 1 : ended_.back() + 1;
    ended_.push_back(number);
    list.push_back({.key = ended_key(number), .value = encode(run)});
  }
  std::set<std::string> too_old;
  for (; ended_.size() > history_; ended_.pop_front())
    too_old.insert(ended_key(ended_.front()));
  // An entry that would be deleted at once is not written.
  std::erase_if(list, [&](const EtcdChange& change) { return too_old.erase(change.key) > 0; });
  for (const std::string& key : too_old)
    list.push_back({.kind = EtcdChange::Kind::Delete, .key = key});
  return list;
}

void EtcdRecords::change_run(const std::string& run_id, const StateChanges::Run& run,
                             std::vector<EtcdChange>& changes) {
  const std::string folder = member_folder(run_id);
  if (run.removed && !run.record) {
    changes.push_back({.kind = EtcdChange::Kind::Delete, .key = run_key(run_id)});
    changes.push_back(
        {.kind = EtcdChange::Kind::DeleteRange, .key = folder, .value = end_of(folder)});
    members_.erase(run_id);
    return;
  }
  if (!run.record) return;
  std::set<std::string>& known = members_[run_id];
  std::map<std::string, std::optional<std::string>> members;  // Empty: delete the key.
  if (run.removed)
    for (const std::string& key : std::exchange(known, {}))
      members.emplace(key, std::nullopt);
  for (const auto& [name, member] : run.members) {
    const std::string key = folder + escaped(name.addr) + "_" + std::to_string(name.pid) + "_" +
                            std::to_string(name.local_id);
    if (member)
      known.insert(key);
    else
      known.erase(key);
    members[key] = member ? std::optional(encode(*member)) : std::nullopt;
  }
  changes.push_back({.key = run_key(run_id), .value = encode(*run.record)});
  for (auto& [key, record] : members)
    changes.push_back({.kind = record ? EtcdChange::Kind::Put : EtcdChange::Kind::Delete,
                       .key = key,
                       .value = std::move(record).value_or(std::string())});
}

std::vector<std::vector<EtcdChange>> split_changes(const std::vector<EtcdChange>& changes) {
  std::vector<std::vector<EtcdChange>> pieces;
  std::size_t bytes = 0;
  for (const EtcdChange& change : changes) {
    const std::size_t size = change.key.size() + change.value.size();
    const bool full =
        pieces.empty() || pieces.back().size() == kMaxChangesOfTxn || bytes + size > kMaxBytesOfTxn;
    if (full) {
      pieces.emplace_back();
      bytes = 0;
    }
    bytes += size;
    pieces.back().push_back(change);
  }
  return pieces;
}

}  // namespace muster
