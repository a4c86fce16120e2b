#include "agent/sessions/c10d_session.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/host_match.h"
#include "agent/sessions/c10d_round.h"
#include "agent/sessions/c10d_state_link.h"
#include "agent/sessions/own_notice.h"
#include "agent/sessions/retry_pause.h"
#include "base/net/name_lookup.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/seconds_text.h"
#include "base/system/clock.h"
#include "base/system/system_random.h"
#include "rendezvous/torchrun/c10d_participant.h"
#include "rendezvous/torchrun/exit_barrier.h"

namespace muster {

namespace asio = boost::asio;
using Outcome = C10dStateLink::Outcome;

namespace {

constexpr Duration kPoll = std::chrono::seconds(1);  // As torchrun.
constexpr Duration kBackgroundDial = std::chrono::seconds(20);
constexpr Duration kFarewellLimit = std::chrono::seconds(5);
// A closed run must be seen in two checks in a row. If this node's workers end for the same reason,
// their own failure comes first and says more.
constexpr int kClosedChecks = 2;

class C10dSession final : public RendezvousSession,
                          public std::enable_shared_from_this<C10dSession> {
 public:
  C10dSession(asio::any_io_executor executor, const AgentOptions& options, Handlers handlers,
              Duration exit_barrier)
      : executor_(std::move(executor)),
        options_(options),
        exit_barrier_(exit_barrier),
        handlers_(std::move(handlers)),
        link_(executor_, {rendezvous_.host, rendezvous_.port, reach_limit(settings_).time},
              settings_.run_id),
        wake_(executor_),
        notice_(executor_, {.tell = handlers_.on_notice,
                            .end = [this](SessionEnd end) { leave_for_notice(std::move(end)); }}) {}

  void join() override;
  void workers_failed(const WorkersFailure& failure) override;
  void finished(bool succeeded, const std::string& what) override;
  void leave() override;
  /// The other nodes are not told: torchrun's protocol has no notice.
  void notify(const NodeNotice& notice) override { notice_.give(notice); }
  void close() override;
  void drain(const std::function<void()>& done) override;
  void stop();

 private:
  std::string store_text() const { return endpoint_text(rendezvous_.host, rendezvous_.port); }
  // Idle: this node is in no round and has asked for none. Over: nothing more will happen.
  enum class Phase { Idle, Joining, Exchanging, Running, Barrier, Closing, Leaving, Over };
  enum class Wanted { Nothing, Join, JoinAgain, Close, Leave };

  asio::awaitable<void> run();
  asio::awaitable<void> reconnect();
  asio::awaitable<void> check_state();
  asio::awaitable<void> write(RendezvousState state);
  asio::awaitable<void> check_closed_run();
  asio::awaitable<void> exchange(std::shared_ptr<C10dRound> round);
  asio::awaitable<void> barrier(std::shared_ptr<C10dRound> round);
  asio::awaitable<void> pause(Duration time);

  void start();
  void create_participant();
  void apply_wanted();
  void apply(C10dStep step);
  void on(const RoundReady& ready);
  void on(const RoundBroken& broken);
  void on_connection_lost();
  void on_connect_timeout();
  void log_progress();
  void cancel_exchange();
  void end(bool succeeded, const std::string& why);
  void fail(const std::string& reason);
  void begin_farewell(Phase phase, Wanted wanted);
  void leave_for_notice(SessionEnd end);

  asio::any_io_executor executor_;
  const AgentOptions& options_;
  const RendezvousOptions& rendezvous_ = options_.rendezvous;
  const RendezvousSettings& settings_ = rendezvous_.settings;
  Duration exit_barrier_;
  Handlers handlers_;
  C10dStateLink link_;
  std::shared_ptr<C10dRound> round_;  // The round that this node is in, or the last one.
  asio::steady_timer wake_;
  std::minstd_rand random_{random_seed()};
  std::unique_ptr<C10dParticipant> participant_;  // Null until the first connection.
  Phase phase_ = Phase::Idle;
  Wanted wanted_ = Wanted::Nothing;
  bool started_ = false;
  bool lost_logged_ = false;
  bool read_before_check_ = false;
  Instant joined_at_{};
  Instant connect_deadline_{};
  Instant farewell_deadline_{};  // In the phases Closing and Leaving.
  int exchange_tries_ = 0;
  int failures_ = 0;
  int lost_writes_ = 0;
  int closed_checks_ = 0;
  SessionEnd end_;
  std::function<void()> on_stopped_;  // From drain().
  std::string progress_;
  OwnNotice notice_;
};

void C10dSession::start() {
  wake_.cancel();
  if (std::exchange(started_, true)) return;
  spawn_task(executor_, "c10d_session", keeping_alive(shared_from_this(), run()));
}

void C10dSession::join() {
  if (phase_ == Phase::Over) return;
  cancel_exchange();
  notice_.round_ends();
  phase_ = Phase::Joining;
  wanted_ = Wanted::Join;
  joined_at_ = now();
  connect_deadline_ = later(joined_at_, reach_limit(settings_).time);
  exchange_tries_ = 0;
  start();
}

/// In phase Idle a broken round is ignored: this node decides alone whether it joins again or ends.
void C10dSession::workers_failed(const WorkersFailure& /*failure*/) {
  ++failures_;
  notice_.round_ends();
  if (phase_ == Phase::Running) phase_ = Phase::Idle;
}

void C10dSession::finished(bool succeeded, const std::string& what) {
  if (phase_ == Phase::Over) return;
  cancel_exchange();
  notice_.cancel();
  end_ = {.succeeded = succeeded, .why = what};
  if (phase_ == Phase::Running && succeeded) {
    phase_ = Phase::Barrier;
    // A new C10dRound with a new connection: that of the exchange is closed.
    round_ = std::make_shared<C10dRound>(executor_, options_, round_->ready());
    return spawn_task(executor_, "c10d_barrier",
                      keeping_alive(shared_from_this(), barrier(round_)));
  }
  if (!link_.connected() || !participant_) {
    if (succeeded) spdlog::warn("exit_barrier_skipped reason=\"no connection with the store\"");
    return asio::post(executor_, [alive = shared_from_this()] {
      alive->end(alive->end_.succeeded, alive->end_.why);
    });
  }
  // After a success outside of a running round, other nodes may be in another round: the run is not
  // closed.
  begin_farewell(Phase::Closing, succeeded ? Wanted::Leave : Wanted::Close);
  start();
}

void C10dSession::begin_farewell(Phase phase, Wanted wanted) {
  phase_ = phase;
  wanted_ = wanted;
  farewell_deadline_ = now() + kFarewellLimit;
}

void C10dSession::leave() {
  if (phase_ == Phase::Over) return;
  cancel_exchange();
  notice_.cancel();
  handlers_ = {};
  if (!link_.connected() || !participant_) return stop();
  begin_farewell(Phase::Leaving, Wanted::Leave);
  start();
}

/// As after a signal: this node writes into the state that it leaves, and its workers stop.
void C10dSession::leave_for_notice(SessionEnd end) {
  const auto handler = handlers_.on_end;
  leave();
  if (handler) handler(std::move(end));
}

void C10dSession::close() {
  handlers_ = {};
  if (phase_ != Phase::Leaving) stop();
}

/// A node that leaves writes that into the state first: otherwise the others wait for it.
void C10dSession::drain(const std::function<void()>& done) {
  if (phase_ == Phase::Over) return done();
  on_stopped_ = done;
}

void C10dSession::stop() {
  phase_ = Phase::Over;
  notice_.cancel();
  cancel_exchange();
  link_.close();
  wake_.cancel();
  if (const auto stopped = std::exchange(on_stopped_, {})) stopped();
}

void C10dSession::end(bool succeeded, const std::string& why) {
  if (phase_ == Phase::Over) return;
  const auto handler = handlers_.on_end;
  stop();
  SessionEnd end{.succeeded = succeeded, .why = why};
  if (handler) handler(std::move(end));
}

void C10dSession::fail(const std::string& reason) {
  if (phase_ == Phase::Over) return;
  const auto handler = handlers_.on_failed;
  stop();
  if (handler) handler(reason);
}

/// Cancels the exchange or the exit barrier of the round, if one is running.
void C10dSession::cancel_exchange() {
  if (round_) round_->close();
}

asio::awaitable<void> C10dSession::pause(Duration time) {
  if (phase_ == Phase::Over) co_return;
  wake_.expires_after(time);
  co_await wake_.async_wait(kNoThrow);
}

asio::awaitable<void> C10dSession::run() {
  while (phase_ != Phase::Over) {
    const bool connected = link_.connected();
    if (connected)
      co_await check_state();
    else
      co_await reconnect();
    // The pause limits the rate of connects to a store that accepts connections and drops them.
    if (connected && !link_.connected()) co_await pause(jittered(kPoll, random_));
  }
}

asio::awaitable<void> C10dSession::reconnect() {
  Instant deadline = now() + kBackgroundDial;
  if (phase_ == Phase::Joining || phase_ == Phase::Exchanging) deadline = connect_deadline_;
  if (phase_ == Phase::Closing || phase_ == Phase::Leaving) deadline = farewell_deadline_;
  const Outcome outcome = co_await link_.connect(deadline);
  if (phase_ == Phase::Over) co_return;
  if (outcome == Outcome::Unreadable) co_return fail(link_.error());
  if (outcome == Outcome::Lost) {
    co_await pause(std::clamp(deadline - now(), Duration::zero(), kPoll));
    if (now() >= deadline) on_connect_timeout();
    co_return;
  }
  if (std::exchange(lost_logged_, false))
    spdlog::info("rendezvous_store_back store={}", store_text());
  read_before_check_ = false;
  if (!participant_) create_participant();
}

/// No connection was made in time. What follows depends on the phase.
void C10dSession::on_connect_timeout() {
  const std::string store = store_text();
  switch (phase_) {
    case Phase::Joining:
    case Phase::Exchanging:
      if (now() < connect_deadline_) return;  // join() came during a dial with another deadline.
      return fail("no rendezvous store answers at " + store + " (--rdzv-endpoint) within " +
                  seconds_text(reach_limit(settings_).time) + " (--rdzv-conf " +
                  std::string(reach_limit(settings_).key) + "); the last try: " + link_.error());
    case Phase::Closing:
      return end(end_.succeeded, end_.why);
    case Phase::Leaving:
      return stop();
    case Phase::Idle:
    case Phase::Running:
    case Phase::Barrier:
    case Phase::Over:
      return;
  }
}

void C10dSession::on_connection_lost() {
  const bool joining = phase_ == Phase::Joining;
  const Duration limit = joining ? reach_limit(settings_).time : settings_.read_timeout;
  connect_deadline_ = later(now(), limit);
  if (std::exchange(lost_logged_, true)) return;
  const bool running = phase_ == Phase::Running;
  spdlog::warn("rendezvous_store_lost store={} reason=\"{}\"{}", store_text(), link_.error(),
               running ? " workers=\"go on\"" : "");
}

void C10dSession::create_participant() {
  const std::string local = link_.client().local_address();
  NodeName name{
      node_address(rendezvous_.local_addr, rendezvous_.host, local, is_loopback_address(local)),
      ::getpid(), 0};
  spdlog::info("rendezvous_connected store={} run={} node={}", store_text(), settings_.run_id,
               to_string(name));
  participant_ = std::make_unique<C10dParticipant>(std::move(name), settings_);
}

void C10dSession::apply_wanted() {
  switch (std::exchange(wanted_, Wanted::Nothing)) {
    case Wanted::Nothing:
      return;
    case Wanted::Join:
      return participant_->join(joined_at_);
    case Wanted::JoinAgain:
      return participant_->join_again();
    case Wanted::Close:
      return participant_->close(now());
    case Wanted::Leave:
      return participant_->leave(now());
  }
}

asio::awaitable<void> C10dSession::check_state() {
  if (std::exchange(read_before_check_, true)) {
    const Outcome outcome = co_await link_.read();
    if (phase_ == Phase::Over) co_return;
    if (outcome == Outcome::Unreadable) co_return fail(link_.error());
    if (outcome == Outcome::Lost) co_return on_connection_lost();
  }
  apply_wanted();
  C10dStep step = participant_->step(link_.state(), now(), wall_now());
  for (const auto& [node, ahead_us] : participant_->take_skewed())
    spdlog::warn("clock_skew node={} ahead_s={:.1f}", to_string(node),
                 static_cast<double>(ahead_us) / 1e6);
  log_progress();
  if (auto* changed = std::get_if<WriteState>(&step))
    co_return co_await write(std::move(changed->state));
  const bool closed = participant_->closed_while_member();
  apply(std::move(step));
  closed_checks_ = closed ? closed_checks_ + 1 : 0;
  if (closed_checks_ >= kClosedChecks && phase_ != Phase::Over) co_await check_closed_run();
  if (wanted_ == Wanted::Nothing) co_await pause(jittered(kPoll, random_) + kPoll / 4);
}

asio::awaitable<void> C10dSession::write(RendezvousState state) {
  const Outcome outcome = co_await link_.write(std::move(state));
  read_before_check_ = false;
  if (phase_ == Phase::Over) co_return;
  if (outcome == Outcome::Unreadable) co_return fail(link_.error());
  if (outcome == Outcome::Lost) co_return on_connection_lost();
  if (outcome == Outcome::Done) {
    lost_writes_ = 0;
    co_return;
  }
  // Another node's write won.
  const double chance = std::uniform_real_distribution<double>()(random_);
  Duration time = lost_write_pause(settings_, lost_writes_++, chance);
  if (phase_ == Phase::Closing || phase_ == Phase::Leaving)
    time = left_until(farewell_deadline_, time);
  co_await pause(time);
}

/// The run is closed, and this node's workers run or it waits at the exit barrier. A node that has
/// succeeded was at the exit barrier before it closed the run, or its wait there has timed out. A
/// node that has failed never came to the barrier.
asio::awaitable<void> C10dSession::check_closed_run() {
  if (phase_ == Phase::Barrier) {
    cancel_exchange();
    co_return end(end_.succeeded, end_.why);
  }
  if (phase_ != Phase::Running) co_return;
  std::vector<std::string> keys{"torch.rendezvous." + settings_.run_id + "." +
                                std::to_string(round_->ready().round) +
                                std::string(kExitBarrierCountKey)};
  const auto somebody_done = co_await link_.client().check(std::move(keys));
  if (phase_ != Phase::Running || !somebody_done || *somebody_done) co_return;
  end(false, "another node has given up and closed the run");
}

void C10dSession::log_progress() {
  if (phase_ != Phase::Joining || progress_ == participant_->progress()) return;
  progress_ = participant_->progress();
  spdlog::warn("waiting for the other nodes: {}", progress_);
}

void C10dSession::apply(C10dStep step) {
  if (const auto* ready = std::get_if<RoundReady>(&step)) return on(*ready);
  if (const auto* broken = std::get_if<RoundBroken>(&step)) return on(*broken);
  if (const auto* closed = std::get_if<RunIsClosed>(&step))
    return end(closed->as_spare, closed->as_spare ? "the run is over; this node was a spare"
                                                  : "the run is closed: another node has ended it");
  if (const auto* late = std::get_if<JoinTimedOut>(&step)) return fail(late->reason);
  if (std::holds_alternative<ParticipantDone>(step)) {
    if (phase_ == Phase::Closing) return end(end_.succeeded, end_.why);
    if (phase_ == Phase::Leaving) return stop();
  }
}

void C10dSession::on(const RoundReady& ready) {
  const auto before = round_ ? round_->ready().nodes : std::vector<NodeName>();
  const bool moved = !before.empty() && before[0] != ready.nodes[0];
  const bool others_stay = std::any_of(ready.nodes.begin(), ready.nodes.end(), [&](const auto& n) {
    return n != participant_->name() && n != ready.nodes[0] &&
           std::find(before.begin(), before.end(), n) != before.end();
  });
  if (moved && others_stay)
    spdlog::warn(
        "rank0_moved from={} to={} reason=\"torchrun nodes keep their first MASTER_ADDR: "
        "with one of them that was in the last round, the workers cannot meet\"",
        to_string(before[0]), to_string(ready.nodes[0]));
  round_ = std::make_shared<C10dRound>(executor_, options_, ready);
  phase_ = Phase::Exchanging;
  spawn_task(executor_, "c10d_exchange", keeping_alive(shared_from_this(), exchange(round_)));
}

void C10dSession::on(const RoundBroken& broken) {
  if (phase_ == Phase::Exchanging) {  // No worker has started yet: join again.
    spdlog::info("round_broken round={} reason=\"{}\"", round_->ready().round, broken.why);
    cancel_exchange();
    phase_ = Phase::Joining;
    wanted_ = Wanted::JoinAgain;
  } else if (phase_ == Phase::Barrier) {
    spdlog::warn("exit_barrier_left reason=\"{}\"", broken.why);
    cancel_exchange();
    // The other nodes go on: this node leaves without closing the run.
    begin_farewell(Phase::Closing, Wanted::Leave);
  } else if (phase_ == Phase::Running) {
    phase_ = Phase::Idle;
    if (const auto handler = handlers_.on_restart) handler({.why = broken.why});
  }
}

asio::awaitable<void> C10dSession::exchange(std::shared_ptr<C10dRound> round) {
  auto host = handlers_.host_store;
  auto begun = co_await round->begin(std::move(host));
  if (round != round_ || phase_ != Phase::Exchanging) co_return;
  if (begun) {
    participant_->mark_round_seen_by_all();
    phase_ = Phase::Running;
    begun->facts.restart_count = failures_;
    const AssignedRanks ranks = begun->facts.ranks;
    if (const auto handler = handlers_.on_round) handler(std::move(*begun));
    if (phase_ == Phase::Running) notice_.round_begins(ranks, options_.local_world_size);
    co_return;
  }
  const std::string& reason = begun.error().reason;
  const std::string number = std::to_string(round->ready().round);
  const auto limit = participant_->join_deadline();
  if (++exchange_tries_ >= kMaxFailedRounds || (limit && now() >= *limit))
    co_return fail("round " + number + " was complete, but came to nothing: " + reason);
  spdlog::warn("round_failed round={} reason=\"{}\" next=\"another round\"", number, reason);
  round_->close();
  phase_ = Phase::Joining;
  wanted_ = Wanted::JoinAgain;
  wake_.cancel();
}

asio::awaitable<void> C10dSession::barrier(std::shared_ptr<C10dRound> round) {
  const auto done = co_await round->end(exit_barrier_);
  if (round != round_ || phase_ != Phase::Barrier) co_return;
  // As under torchrun, a failed exit barrier does not change the success.
  if (!done) spdlog::warn("exit_barrier_failed reason=\"{}\"", done.error().reason);
  if (!link_.connected()) co_return end(end_.succeeded, end_.why);
  begin_farewell(Phase::Closing, Wanted::Close);
  wake_.cancel();
}

}  // namespace

std::shared_ptr<RendezvousSession> make_c10d_session(asio::any_io_executor executor,
                                                     const AgentOptions& options,
                                                     RendezvousSession::Handlers handlers,
                                                     Duration exit_barrier) {
  const auto session = std::make_shared<C10dSession>(std::move(executor), options,
                                                     std::move(handlers), exit_barrier);
  // Tasks may keep the session alive after its owner has released it: the deleter closes it.
  return {session.get(), [session](RendezvousSession*) { session->stop(); }};
}

}  // namespace muster
