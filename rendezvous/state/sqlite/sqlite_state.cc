#include "rendezvous/state/sqlite/sqlite_state.h"

#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/system/thread_without_signals.h"
#include "rendezvous/state/sqlite/state_file.h"

namespace muster {
namespace {

namespace asio = boost::asio;

constexpr auto kRetryAfter = std::chrono::seconds(1);

/// Owns the storage thread. Only that thread uses the file.
class SqliteState final : public RunState {
 public:
  SqliteState(StateFile file, std::size_t history)
      : loaded_(file.take_loaded()),
        history_(history),
        file_(std::move(file)),
        retry_(loop_),
        work_(asio::make_work_guard(loop_)),
        thread_(thread_without_signals([this] { loop_.run(); })) {}
  /// Tries once to write what has been recorded before.
  ~SqliteState() override {
    try {
      asio::post(loop_, [this] {
        closing_ = true;
        retry_.cancel();
      });
      work_.reset();
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
    const std::lock_guard lock(mutex_);
    incoming_.merge(std::move(changes), history_);
    if (!std::exchange(is_announced_, true)) asio::post(loop_, [this] { write_soon(); });
  }

 private:
  /// Posts the write behind what is already queued, so that one commit has more changes.
  void write_soon() {
    if (std::exchange(write_is_due_, true)) return;
    asio::post(loop_, [this] { write(); });
  }
  void take_incoming() {
    StateChanges incoming;
    {
      const std::lock_guard lock(mutex_);
      incoming = std::exchange(incoming_, {});
      is_announced_ = false;
    }
    if (!incoming.empty()) pending_.merge(std::move(incoming), history_);
  }
  void write() {
    take_incoming();
    if (pending_.empty()) {  // An earlier write has had them.
      write_is_due_ = false;
      return;
    }
    const auto done = file_.write(pending_, history_);
    StateReport report{.durable = durable_, .problem = {}};
    if (done) {
      write_is_due_ = false;
      durable_ = report.durable = pending_.number;
      pending_ = {};
    } else {
      report.problem =
          done.error().text + " (SQLite error " + std::to_string(done.error().code) + ")";
      retry();
    }
    if (on_report_) on_report_(report);
  }
  void retry() {
    if (closing_) return;
    retry_.expires_after(kRetryAfter);
    retry_.async_wait([this](const boost::system::error_code& ec) {
      if (!ec || closing_) write();
    });
  }

  StoredState loaded_;  // Used by the caller's thread, in load().
  const std::size_t history_;
  // Changes wait here, merged, while the storage thread writes: a write that hangs for hours must
  // not cost more memory than the state has.
  std::mutex mutex_;
  StateChanges incoming_;      // Guarded by mutex_.
  bool is_announced_ = false;  // Guarded by mutex_: write_soon() is posted.
  // Used by the storage thread only.
  StateFile file_;
  StateChanges pending_;
  std::uint64_t durable_ = 0;
  bool write_is_due_ = false;
  bool closing_ = false;
  std::function<void(const StateReport&)> on_report_;

  asio::io_context loop_{1};
  asio::steady_timer retry_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;  // Declared last: it uses all other members.
};

}  // namespace

boost::system::result<std::unique_ptr<RunState>, StateFileError> open_sqlite_state(
    const SqliteStateOptions& options) {
  auto file = StateFile::open(options.folder);
  if (!file) return file.error();
  return std::unique_ptr<RunState>(
      std::make_unique<SqliteState>(std::move(*file), options.history));
}

}  // namespace muster
