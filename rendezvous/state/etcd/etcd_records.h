// The state of a run service as keys of etcd: the layout of the keys, and the key changes that each
// state change needs.
//
//   PREFIX/leader                   the leader; bound to its lease
//   PREFIX/format                   the version of this layout
//   PREFIX/id                       the id of this state; not for the runs that agents host
//   PREFIX/run/RUN                  the run's record
//   PREFIX/member/RUN/ADDR_PID_ID   the record of one of its nodes
//   PREFIX/ended/NUMBER             one ended run of the history
//   PREFIX/journal/...              changes that are too many for one transaction
//
// In RUN and ADDR, '%', '/' and unprintable characters are written as %HH. There are no sockets
// here: etcd_state.h has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/state/etcd/etcd_json.h"
#include "rendezvous/state/run_state.h"

namespace muster {

inline constexpr std::uint64_t kEtcdFormat = 1;
/// By default etcd accepts 128 changes and 1.5 MiB in one request.
inline constexpr std::size_t kMaxChangesOfTxn = 100;
inline constexpr std::size_t kMaxBytesOfTxn = 1'000'000;

struct EtcdRecordError {
  std::string reason;  // A sentence for the user.
};

class EtcdRecords {
 public:
  /// The prefix for the records of one run that is hosted by its agents.
  static std::string prefix_of_run(const std::string& prefix, std::string_view run_id);

  EtcdRecords(std::string prefix, std::size_t history)
      : prefix_(std::move(prefix)), history_(history) {}

  std::string leader_key() const { return prefix_ + "/leader"; }
  std::string format_key() const { return prefix_ + "/format"; }
  std::string id_key() const { return prefix_ + "/id"; }
  std::string journal_folder() const { return prefix_ + "/journal/"; }
  std::string journal_commit_key() const { return prefix_ + "/journal/commit"; }
  std::string journal_key(std::size_t number) const;
  std::string folder() const { return prefix_ + "/"; }
  /// The first key after all keys that begin with `folder`. Its last character must be a slash.
  static std::string end_of(std::string folder);

  /// Reading: begin_reading(), then read() for each key of folder(), then finish_reading(), which
  /// returns the state. All of it may take seconds, so the caller can do other things between two
  /// keys. The keys that exist are remembered.
  void begin_reading();
  boost::system::result<void, EtcdRecordError> read(const EtcdKeyValue& entry);
  StoredState finish_reading();
  /// After finish_reading(): the changes that delete the nodes of runs without a record. An end of
  /// a run's records that was interrupted leaves such nodes, and a later run of that name must not
  /// get them.
  const std::vector<EtcdChange>& removal_of_orphans() const { return removal_of_orphans_; }
  /// The key changes for `changes`. Assumes that the caller applies them. No key occurs twice, as a
  /// transaction requires.
  std::vector<EtcdChange> changes_of(const StateChanges& changes);

 private:
  std::string run_key(std::string_view run_id) const;
  std::string member_folder(std::string_view run_id) const;
  std::string ended_key(std::uint64_t number) const;
  void change_run(const std::string& run_id, const StateChanges::Run& run,
                  std::vector<EtcdChange>& changes);

  std::string prefix_;
  std::size_t history_;
  std::map<std::string, std::set<std::string>> members_;  // The existing member keys, by run.
  std::deque<std::uint64_t> ended_;
  std::vector<EtcdChange> removal_of_orphans_;
  // Between begin_reading() and finish_reading().
  StoredState read_;
  std::map<std::string, std::vector<MemberRecord>> read_members_;  // By run.
};

/// Splits the changes into pieces, each small enough for one transaction. The order stays.
std::vector<std::vector<EtcdChange>> split_changes(const std::vector<EtcdChange>& changes);

}  // namespace muster
