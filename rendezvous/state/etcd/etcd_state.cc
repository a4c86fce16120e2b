#include "rendezvous/state/etcd/etcd_state.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "base/system/system_random.h"
#include "base/system/thread_without_signals.h"
#include "rendezvous/state/etcd/etcd_client.h"
#include "rendezvous/state/etcd/etcd_election.h"
#include "rendezvous/state/etcd/etcd_records.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr Duration kMaxWrite = std::chrono::seconds(2);
constexpr Duration kWriteAgainAfter = std::chrono::milliseconds(200);
// Changes that wait for a write take memory: a leader whose writes fail for longer gives up the
// lead.
constexpr Duration kMaxWriteFails = std::chrono::seconds(10);
constexpr Duration kMaxClose = std::chrono::seconds(2);
constexpr std::int64_t kKeysOfPage = 500;
constexpr std::size_t kBytesOfTurn = 1 << 20;  // Takes some 0.1 s, even with a sanitizer.
constexpr Duration kKeepRecordsAgainAfter = std::chrono::seconds(5);

/// Owns the storage thread. Only that thread talks to etcd.
class EtcdState final : public EtcdRunState {
 public:
  EtcdState(const EtcdStateOptions& options, EtcdStateHandlers handlers)
      : handlers_(std::move(handlers)),
        history_(options.history),
        records_seconds_(options.records_seconds),
        ended_records_seconds_(options.ended_records_seconds),
        peers_(std::make_shared<EtcdPeers>(
            EtcdPeers{options.etcd.members, options.etcd.login, options.tls, options.tls_files})),
        records_(options.etcd.prefix, options.history),
        channel_(loop_.get_executor(), peers_),
        timer_(loop_),
        written_(loop_),
        election_(loop_, election_options(options, peers_, records_), election_handlers()),
        work_(asio::make_work_guard(loop_)),
        thread_(thread_without_signals([this] {
          election_.start();
          loop_.run();
        })) {}
  ~EtcdState() override {
    try {
      if (!closing_) close({});
      thread_.join();
    } catch (...) {
      std::terminate();  // The thread uses this object and must not outlive it.
    }
  }

  StoredState load() override { return std::move(loaded_); }
  void listen(std::function<void(const StateReport&)> on_report) override {
    asio::post(loop_, [this, on_report = std::move(on_report)]() mutable {
      on_report_ = std::move(on_report);
    });
  }
  void record(StateChanges changes) override {
    asio::post(loop_, [this, changes = std::move(changes)]() mutable {
      pending_.merge(std::move(changes), history_);
      if (std::exchange(writing_, true)) return;
      spawn_task(loop_.get_executor(), "etcd_write", write());
    });
  }
  bool is_shared() const override { return true; }
  bool is_held() const override { return election_.is_held(); }
  void announce(std::string value) override {
    asio::post(loop_, [this, value = std::move(value)]() mutable {
      spawn_task(loop_.get_executor(), "etcd_announce", write_announcement(std::move(value)));
    });
  }
  EtcdOwnAddress own_address() const override { return own_address_; }
  void close(std::function<void()> closed) override {
    closing_ = true;
    asio::post(loop_, [this, closed = std::move(closed)]() mutable {
      spawn_task(loop_.get_executor(), "etcd_close", close_all(std::move(closed)));
    });
  }

 private:
  static EtcdElection::Options election_options(const EtcdStateOptions& options,
                                                const EtcdPeersPtr& peers,
                                                const EtcdRecords& records) {
    return {.peers = peers,
            .key = records.leader_key(),
            .name = options.name,
            .lease_seconds = options.lease_seconds};
  }
  EtcdElection::Handlers election_handlers() {
    return {.on_standing_by = handlers_.on_standing_by,
            .on_leader = handlers_.on_leader,
            .on_refused = handlers_.on_refused,
            .on_won = [this] { spawn_task(loop_.get_executor(), "etcd_load", begin_to_lead()); },
            .on_lost = handlers_.on_lost};
  }

  asio::awaitable<void> begin_to_lead();
  asio::awaitable<EtcdResult<void>> load_all();
  asio::awaitable<boost::system::result<void, EtcdRecordError>> decode(
      const std::vector<EtcdKeyValue>& all);
  asio::awaitable<EtcdResult<std::vector<EtcdKeyValue>>> read_all();
  asio::awaitable<EtcdResult<EtcdRange>> read_page(const std::string& from, const std::string& end,
                                                   std::int64_t& most_keys);
  asio::awaitable<EtcdResult<void>> finish_journal(const std::vector<EtcdKeyValue>& all,
                                                   bool& was_there);
  asio::awaitable<void> write();
  asio::awaitable<EtcdResult<void>> commit(const std::vector<EtcdChange>& changes);
  asio::awaitable<EtcdResult<void>> write_journal(
      const std::vector<std::vector<EtcdChange>>& pieces);
  asio::awaitable<EtcdResult<void>> apply_pieces(
      const std::vector<std::vector<EtcdChange>>& pieces);
  asio::awaitable<EtcdResult<void>> apply(const std::vector<std::vector<EtcdChange>>& pieces);
  asio::awaitable<EtcdResult<void>> txn(std::vector<EtcdChange> changes);
  asio::awaitable<EtcdResult<void>> txn(EtcdChannel& channel, std::vector<EtcdChange> changes);
  asio::awaitable<EtcdResult<std::int64_t>> grant(std::int64_t seconds);
  asio::awaitable<EtcdResult<void>> write_again(const std::vector<EtcdKeyValue>& all);
  asio::awaitable<void> keep_records();
  asio::awaitable<void> let_records_end();
  asio::awaitable<void> write_announcement(std::string value);
  asio::awaitable<void> close_all(std::function<void()> closed);
  void record_end(const StateChanges& changes);
  void report(std::string problem) {
    if (on_report_) on_report_({.durable = durable_, .problem = std::move(problem)});
  }

  // Used by the caller's thread after on_leading.
  StoredState loaded_;
  EtcdOwnAddress own_address_;
  bool closing_ = false;
  // Used by the storage thread only.
  EtcdStateHandlers handlers_;
  std::size_t history_;
  std::int64_t records_seconds_;
  std::int64_t ended_records_seconds_;
  EtcdPeersPtr peers_;
  EtcdRecords records_;
  std::int64_t records_lease_ = 0;  // The lease of every key but the leader's. 0: they have none.
  bool ended_ = false;              // The run that this host serves has ended.
  StateChanges pending_;
  std::uint64_t durable_ = 0;
  bool writing_ = false;
  std::string unusable_;  // Why the records cannot be read. Empty: no problem.
  std::function<void(const StateReport&)> on_report_;

  asio::io_context loop_{1};
  EtcdChannel channel_;
  asio::steady_timer timer_;
  asio::steady_timer written_;  // Cancelled when all changes are written.
  EtcdElection election_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;  // Declared last: it uses all other members.
};

/// Runs one transaction that only the leader can make. If etcd refuses it, this host does not lead
/// any more.
asio::awaitable<EtcdResult<void>> EtcdState::txn(EtcdChannel& channel,
                                                 std::vector<EtcdChange> changes) {
  for (EtcdChange& change : changes)
    if (change.kind == EtcdChange::Kind::Put && change.lease == 0) change.lease = records_lease_;
  std::string request = encode_txn(election_.guard(), changes);
  const auto answer = co_await channel.ask("/v3/kv/txn", std::move(request), kMaxWrite);
  if (!answer) co_return answer.error();
  const auto done = decode_txn(*answer);
  if (!done) co_return EtcdError(done.error().reason, false);
  if (!done->succeeded) {
    const std::string why = "etcd has refused its write: its key is gone, another one may lead";
    election_.lose(why);
    co_return EtcdError(why, true);
  }
  co_return EtcdResult<void>();
}

asio::awaitable<EtcdResult<void>> EtcdState::txn(std::vector<EtcdChange> changes) {
  co_return co_await txn(channel_, std::move(changes));
}

// --- loading -------------------------------------------------------------------------------------

asio::awaitable<void> EtcdState::begin_to_lead() {
  own_address_ = election_.own_address();
  for (;;) {
    const auto loaded = co_await load_all();
    if (election_.is_lost()) co_return;
    if (!unusable_.empty()) {
      handlers_.on_unusable(unusable_);
      co_return;
    }
    if (loaded) {
      if (records_lease_ != 0)
        spawn_task(loop_.get_executor(), "etcd_records_lease", keep_records());
      co_return handlers_.on_leading();
    }
    election_.report_trouble("what etcd has recorded cannot be loaded: " + loaded.error().text);
    timer_.expires_after(kWriteAgainAfter);
    co_await timer_.async_wait(kNoThrow);
  }
}

asio::awaitable<EtcdResult<void>> EtcdState::load_all() {
  if (records_seconds_ > 0 && records_lease_ == 0) {
    const auto lease = co_await grant(records_seconds_);
    if (!lease) co_return lease.error();
    records_lease_ = *lease;
  }
  auto all = co_await read_all();
  if (!all) co_return all.error();
  bool had_journal = false;
  const auto finished = co_await finish_journal(*all, had_journal);
  if (!finished) co_return finished.error();
  if (had_journal) all = co_await read_all();
  if (!all) co_return all.error();
  const auto decoded = co_await decode(*all);
  if (!decoded) {
    unusable_ = decoded.error().reason;
    co_return EtcdError(unusable_, true);
  }
  std::vector<EtcdChange> format = {
      {.key = records_.format_key(), .value = std::to_string(kEtcdFormat)}};
  // The records of an agent have an end, and the nodes find its host through etcd.
  if (loaded_.id.empty() && records_lease_ == 0) {
    loaded_.id = random_id();
    format.push_back({.key = records_.id_key(), .value = loaded_.id});
  }
  const auto marked = co_await txn(std::move(format));
  if (!marked) co_return marked.error();
  // The records of an earlier host are bound to that host's lease: they are written again.
  if (records_lease_ != 0) {
    const auto kept = co_await write_again(*all);
    if (!kept) co_return kept.error();
  }
  const auto removed = co_await apply_pieces(split_changes(records_.removal_of_orphans()));
  if (!removed) co_return removed.error();
  for (const StoredRun& run : loaded_.runs)
    ended_ = run.record.outcome.has_value();
  co_return EtcdResult<void>();
}

/// Decodes the records into loaded_. Lets the loop run in between: the lease must be kept, however
/// many records there are.
asio::awaitable<boost::system::result<void, EtcdRecordError>> EtcdState::decode(
    const std::vector<EtcdKeyValue>& all) {
  records_.begin_reading();
  std::size_t bytes = 0;
  for (const EtcdKeyValue& entry : all) {
    if (const auto read = records_.read(entry); !read) co_return read.error();
    bytes += entry.value.size();
    if (bytes < kBytesOfTurn) continue;
    bytes = 0;
    co_await asio::post(loop_.get_executor(), kNoThrow);
  }
  loaded_ = records_.finish_reading();
  co_return boost::system::result<void, EtcdRecordError>();
}

asio::awaitable<EtcdResult<std::vector<EtcdKeyValue>>> EtcdState::read_all() {
  std::vector<EtcdKeyValue> all;
  std::string from = records_.folder();
  const std::string end = EtcdRecords::end_of(from);
  std::int64_t most_keys = kKeysOfPage;
  for (;;) {
    auto page = co_await read_page(from, end, most_keys);
    if (!page) co_return page.error();
    for (EtcdKeyValue& entry : page->found)
      all.push_back(std::move(entry));
    if (!page->more || page->found.empty()) co_return all;
    from = all.back().key + '\0';
  }
}

/// Reads one page of keys. If etcd's answer would be too long, `most_keys` is halved: a record has
/// up to 200 KB, so a page of usual size may be longer than an answer may be.
asio::awaitable<EtcdResult<EtcdRange>> EtcdState::read_page(const std::string& from,
                                                            const std::string& end,
                                                            std::int64_t& most_keys) {
  for (;;) {
    std::string request = encode_range(from, end, most_keys);
    const auto answer = co_await channel_.ask("/v3/kv/range", std::move(request), kMaxWrite);
    if (!answer && answer.error().too_long && most_keys > 1) {
      most_keys /= 2;
      continue;
    }
    if (!answer) co_return answer.error();
    auto page = decode_range(*answer);
    if (!page) co_return EtcdError(page.error().reason, false);
    co_return *std::move(page);
  }
}

/// An earlier leader may have died while it applied its journal: a committed journal is applied,
/// and one that was not committed is removed.
asio::awaitable<EtcdResult<void>> EtcdState::finish_journal(const std::vector<EtcdKeyValue>& all,
                                                            bool& was_there) {
  std::vector<std::vector<EtcdChange>> pieces;
  bool committed = false;
  for (const EtcdKeyValue& entry : all) {
    if (!entry.key.starts_with(records_.journal_folder())) continue;
    was_there = true;
    if (entry.key == records_.journal_commit_key()) {
      committed = true;
      continue;
    }
    auto piece = decode_changes(entry.value);
    if (!piece) {
      unusable_ = "etcd's key " + entry.key + " is no journal of musterd: " + piece.error().reason;
      co_return EtcdError(unusable_, true);
    }
    pieces.push_back(*std::move(piece));
  }
  if (!was_there) co_return EtcdResult<void>();
  if (!committed) pieces.clear();
  co_return co_await apply(pieces);
}

// --- writing -------------------------------------------------------------------------------------

asio::awaitable<void> EtcdState::write() {
  while (!pending_.empty() && !election_.is_lost()) {
    const StateChanges changes = std::exchange(pending_, {});
    record_end(changes);
    const std::vector<EtcdChange> list = records_.changes_of(changes);
    const Instant begun = now();
    auto done = co_await commit(list);
    while (!done && !election_.is_lost()) {
      report(done.error().text);
      if (done.error().refused || now() - begun > kMaxWriteFails)
        co_return election_.lose("etcd does not take its writes: " + done.error().text);
      timer_.expires_after(kWriteAgainAfter);
      co_await timer_.async_wait(kNoThrow);
      done = co_await commit(list);
    }
    if (!done) break;
    durable_ = changes.number;
    report({});
  }
  writing_ = false;
  written_.cancel();
}

/// Writes the changes. Idempotent, because each change is the new value of a key.
asio::awaitable<EtcdResult<void>> EtcdState::commit(const std::vector<EtcdChange>& changes) {
  const auto pieces = split_changes(changes);
  if (pieces.empty()) co_return EtcdResult<void>();
  if (pieces.size() == 1) {
    std::vector<EtcdChange> only = pieces.front();
    co_return co_await txn(std::move(only));
  }
  const auto written = co_await write_journal(pieces);
  if (!written) co_return written.error();
  co_return co_await apply(pieces);
}

asio::awaitable<EtcdResult<void>> EtcdState::write_journal(
    const std::vector<std::vector<EtcdChange>>& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::vector<EtcdChange> piece = {
        {.key = records_.journal_key(i), .value = encode_changes(pieces[i])}};
    const auto written = co_await txn(std::move(piece));
    if (!written) co_return written.error();
  }
  std::vector<EtcdChange> mark = {
      {.key = records_.journal_commit_key(), .value = std::to_string(pieces.size())}};
  co_return co_await txn(std::move(mark));
}

asio::awaitable<EtcdResult<void>> EtcdState::apply_pieces(
    const std::vector<std::vector<EtcdChange>>& pieces) {
  for (const auto& piece : pieces) {
    std::vector<EtcdChange> changes = piece;
    const auto applied = co_await txn(std::move(changes));
    if (!applied) co_return applied.error();
  }
  co_return EtcdResult<void>();
}

asio::awaitable<EtcdResult<void>> EtcdState::apply(
    const std::vector<std::vector<EtcdChange>>& pieces) {
  const auto applied = co_await apply_pieces(pieces);
  if (!applied) co_return applied.error();
  const std::string folder = records_.journal_folder();
  std::vector<EtcdChange> remove = {
      {.kind = EtcdChange::Kind::DeleteRange, .key = folder, .value = EtcdRecords::end_of(folder)}};
  co_return co_await txn(std::move(remove));
}

asio::awaitable<void> EtcdState::write_announcement(std::string value) {
  EtcdChannel channel(loop_.get_executor(), peers_);
  asio::steady_timer timer(loop_);
  while (!election_.is_lost()) {
    std::vector<EtcdChange> changes = {election_.leader_key_change(value)};
    const auto written = co_await txn(channel, std::move(changes));
    if (written) co_return;
    timer.expires_after(kWriteAgainAfter);
    co_await timer.async_wait(kNoThrow);
  }
}

// --- how long the records stay -------------------------------------------------------------------

asio::awaitable<EtcdResult<std::int64_t>> EtcdState::grant(std::int64_t seconds) {
  std::string request = encode_lease_grant(seconds);
  const auto answer = co_await channel_.ask("/v3/lease/grant", std::move(request), kMaxWrite);
  if (!answer) co_return answer.error();
  const auto lease = decode_lease_grant(*answer);
  if (!lease) co_return EtcdError(lease.error().reason, false);
  co_return lease->id;
}

/// Writes all records again with the same values, bound to the present lease.
asio::awaitable<EtcdResult<void>> EtcdState::write_again(const std::vector<EtcdKeyValue>& all) {
  std::vector<EtcdChange> changes;
  for (const EtcdKeyValue& entry : all)
    if (entry.key != records_.leader_key())
      changes.push_back({.key = entry.key, .value = entry.value});
  co_return co_await apply_pieces(split_changes(changes));
}

asio::awaitable<void> EtcdState::keep_records() {
  EtcdChannel channel(loop_.get_executor(), peers_);
  asio::steady_timer timer(loop_);
  timer.expires_after(std::chrono::seconds(records_seconds_) / 3);
  while (!election_.is_lost()) {
    co_await timer.async_wait(kNoThrow);
    std::string body = encode_lease_id(records_lease_);
    const auto answer = co_await channel.ask("/v3/lease/keepalive", std::move(body), kMaxWrite);
    const auto lease = answer ? decode_lease_kept(*answer) : EtcdJsonError{answer.error().text};
    if (lease && lease->seconds <= 0)
      co_return election_.lose("what it has recorded has been removed from etcd");
    timer.expires_after(lease ? Duration(std::chrono::seconds(records_seconds_)) / 3
                              : kKeepRecordsAgainAfter);
  }
}

/// Binds the records of an ended run to a short lease: they stay for a while for nodes that come
/// late. If etcd does not answer, the records keep the lease that they have.
asio::awaitable<void> EtcdState::let_records_end() {
  const auto lease = co_await grant(ended_records_seconds_);
  if (!lease) co_return;
  const auto all = co_await read_all();
  if (!all) co_return;
  std::string before = encode_lease_id(std::exchange(records_lease_, *lease));
  const auto written = co_await write_again(*all);
  if (!written) co_return;
  (void)co_await channel_.ask("/v3/lease/revoke", std::move(before), kMaxWrite);
}

void EtcdState::record_end(const StateChanges& changes) {
  for (const auto& [run_id, run] : changes.runs)
    ended_ = run.record && run.record->outcome;
}

// --- the end -------------------------------------------------------------------------------------

asio::awaitable<void> EtcdState::close_all(std::function<void()> closed) {
  written_.expires_after(kMaxClose);
  if (writing_) co_await written_.async_wait(kNoThrow);
  if (ended_ && records_lease_ != 0 && !writing_ && !election_.is_lost())
    co_await let_records_end();
  co_await election_.resign();
  if (closed) closed();
  loop_.stop();
}

}  // namespace

std::string process_text() {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + " (pid " + std::to_string(::getpid()) + ")";
}

std::unique_ptr<EtcdRunState> start_etcd_state(const EtcdStateOptions& options,
                                               EtcdStateHandlers handlers) {
  return std::make_unique<EtcdState>(options, std::move(handlers));
}

}  // namespace muster
