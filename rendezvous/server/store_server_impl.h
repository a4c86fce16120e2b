// The implementation of StoreServer: one slot for each connection, and the events of the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "base/system/clock.h"
#include "rendezvous/server/connection.h"
#include "rendezvous/server/deadline_list.h"
#include "rendezvous/server/event_set.h"
#include "rendezvous/server/store_server.h"

namespace muster {

class StoreServer::Impl : public std::enable_shared_from_this<StoreServer::Impl> {
 public:
  Impl(boost::asio::io_context& loop, StoreServerOptions options)
      : options_(std::move(options)),
        shared_(options_.codec, options_.table, options_.limits, options_.run_limits,
                C10dDoor(options_.c10d_allow)),
        set_(loop),
        serve_([this](auto events, Instant now) { on_events(events, now); }),
        timer_(loop),
        unvalidated_(options_.validate_within),
        stalled_(options_.stalled_after) {
    shared_.wake = [this](ConnectionId id) { wake(id); };
    shared_.reach = options_.reach;
    shared_.codec.native_door = static_cast<bool>(shared_.reach);
    // Without a native door, the store is the only service: other clients are refused at once.
    if (options_.c10d_allow && !options_.runs && !options_.reach && !options_.admit)
      options_.admit = [allow = *options_.c10d_allow](const auto& peer) {
        return allow.lists(peer);
      };
    set_run_tokens(std::move(options_.run_tokens));
    shared_.token_run = options_.token_run;
    shared_.tls = static_cast<bool>(options_.tls);
    shared_.tls_rules = options_.tls_rules;
    if (shared_.tokens) shared_.codec.short_native_messages = 2;  // A hello and its proof.
  }

  boost::system::result<void, ListenError> start();
  void reset();
  void drain(Instant deadline, std::function<void()> done);
  void stop();
  void set_limits(const StoreServerLimits& limits);
  void set_run_tokens(HostTokens::OfRuns tokens) {
    if (options_.token)
      shared_.tokens = std::make_shared<const HostTokens>(options_.token, std::move(tokens));
  }
  StoreServerStats stats() const;
  const RunService* runs() const { return shared_.runs.get(); }
  std::optional<std::string> operate(const std::string& run_id, const OperatorAsked& asked,
                                     std::function<void(std::string)> done);
  std::optional<std::string> ask(const std::string& run_id, int rank, NodeAsked question,
                                 std::function<void(NodeAnswered)> done);
  void forget_question(std::uint64_t number);
  const std::vector<Listener>& listeners() const { return listeners_; }

 private:
  // The place of one connection. `generation` differs for each connection in the same slot, so that
  // an event for an earlier connection is recognised.
  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    bool resumes = false;           // The connection is in resume_.
    std::size_t unread_bytes = 0;   // The number under which it is in unread_.
    std::size_t unread_memory = 0;  // Its part of shared_.queued_bytes.
    RunAccount* account = nullptr;  // The account of the run that counts unread_bytes.
    DeadlineList* waits_in = nullptr;
    DeadlineList::Place deadline;
  };

  void wait_for_events();
  void on_events(std::span<const epoll_event> events, Instant now);
  void on_event(const epoll_event& event);
  /// Calls `work` for `connection`. An exception closes this connection only. Null: no connection.
  template <typename Work>
  void guard(Connection* connection, const Work& work);
  Connection* connection_at(std::uint64_t tag);
  void begin_turn();
  void begin_slice();
  void end_slice();
  void continue_work();
  bool has_work_left() const { return !resume_.empty() || !leaving_.empty(); }
  void resume_yielded();
  void resume_later();
  void finish_leaving(std::int64_t reserved);
  void accept_from(std::size_t listener);
  void admit(OwnedFd fd, const boost::asio::ip::tcp::endpoint& peer);
  bool begin_tls(Slot& slot);
  void pause_accepting(int error);
  void resume_accepting();
  bool watch_listeners(std::uint32_t events);
  void wake(ConnectionId id);
  void update_slot(Slot& slot);
  void record_unread(Slot& slot);
  void count_unread(Slot& slot, std::size_t before);
  void enforce_run_unread_limits();
  void enforce_unread_limit();
  void set_deadline(Slot& slot, DeadlineList* list);
  struct Ending {
    std::string reason = {};      // For the log. Empty: no log line.
    std::string_view cause = {};  // The kind of reason. Has static lifetime.
    bool warn = true;
  };
  void close(Slot& slot, const Ending& ending);
  void dismiss(Slot& slot, const Ending& ending);
  void close_for(Slot& slot, std::string_view reason) {
    close(slot, {std::string(reason), reason});
  }
  void close_all();
  void arm_timer(Instant earliest = {});
  void on_timer();
  void handle_deadlines(Duration late);
  void read_clock() { set_now(muster::now()); }
  void set_now(Instant now) { now_ = shared_.now = now; }
  void begin_runs();
  void apply_run_effects();
  void apply_pending_effects();
  void finish_event();
  // store_server_state.cc: the state that outlives this process.
  void begin_state();
  bool may_serve();
  void record_runs();
  void on_recorded(const StateReport& report);
  void check_drained();
  Connection* connection_of(ConnectionId id) { return slot_of(id).connection.get(); }
  Slot& slot_of(ConnectionId id) { return slots_[id.value]; }
  static constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 63;
  static std::uint64_t tag_of(const Slot& slot, ConnectionId id) {
    return std::uint64_t{slot.generation} << 32 | id.value;
  }

  StoreServerOptions options_;
  ConnectionShared shared_;
  EventSet set_;
  EventSet::Serve serve_;
  boost::asio::steady_timer timer_;
  std::optional<Instant> timer_at_;
  std::vector<Listener> listeners_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  DeadlineList unvalidated_;
  DeadlineList stalled_;
  std::optional<Instant> accept_again_;  // No descriptors are left: accepting pauses until then.
  std::optional<Instant> drained_by_;
  std::function<void()> drained_;
  std::map<boost::asio::ip::address, std::size_t> open_of_;  // The connections of each address.
  std::deque<ConnectionId> resume_;  // The connections that have yielded, in order.
  // Closed connections whose waits are still in the store. Their numbers are in use until then.
  std::deque<std::unique_ptr<Connection>> leaving_;
  std::set<std::pair<std::size_t, std::uint32_t>> unread_;  // Unread bytes, and the connection.
  bool resume_posted_ = false;
  bool run_has_too_much_ = false;  // A run has too many unread replies: they must be checked.
  std::int64_t slice_begun_ = 0;
  Instant now_{};
  std::uint64_t accepted_ = 0;
  std::uint64_t refused_ = 0;
  std::map<std::string_view, std::uint64_t> closed_;  // By reason.
  std::size_t open_ = 0;
};

}  // namespace muster
