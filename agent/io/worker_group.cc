#include "agent/io/worker_group.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/worker_command.h"
#include "agent/io/error_file_io.h"
#include "agent/io/node_answers.h"
#include "agent/posix/find_program.h"
#include "agent/posix/shim_reports.h"
#include "agent/posix/spawn.h"
#include "base/from_errno.h"
#include "base/limit_advice.h"
#include "base/system/clock.h"
#include "base/system/wait_for_room.h"

namespace muster {
namespace {

// More than a report to the host has room for, because it leaves the frames of C++ stacks out.
constexpr std::int64_t kMaxFileEndBytes = 16 << 10;

// Adds evidence to the workers that died of a SIGKILL that muster did not send.
void find_oom_victims(const OomWatch& watch, std::vector<ExplainedEnd>& ends) {
  const auto is_unexplained = [](const ExplainedEnd& end) {
    return end.exit.killed && end.exit.status == SIGKILL && !end.was_sent(SIGKILL) &&
           end.ended_because.empty();
  };
  const auto count = std::count_if(ends.begin(), ends.end(), is_unexplained);
  if (count == 0) return;
  const OomFacts facts = watch.facts();
  for (ExplainedEnd& end : ends)
    if (is_unexplained(end)) {
      end.oom_evidence = oom_evidence(facts, end.pid, static_cast<int>(count));
      if (facts.kills == 0) end.unchanged_oom_counter = facts.cgroup_dir;
    }
}

/// Adds what the machine says to the workers that failed by themselves.
void add_notes(const OomWatch& watch, const SharedMemoryRoom& room,
               std::vector<ExplainedEnd>& ends) {
  const auto is_own_failure = [](const ExplainedEnd& end) {
    return end.has_ended() && end.has_failed() && !end.signalled_ms;
  };
  if (std::none_of(ends.begin(), ends.end(), is_own_failure)) return;
  const std::string oom = oom_child_note(watch.facts());
  for (ExplainedEnd& end : ends) {
    if (!is_own_failure(end)) continue;
    const bool is_known = end.exit.killed && end.exit.status == SIGKILL;
    if (!oom.empty() && !is_known) end.notes.push_back(oom);
    if (std::string note = shared_memory_note(room, end.exit); !note.empty())
      end.notes.push_back(std::move(note));
  }
}

SharedMemoryRoom shared_memory_room() {
  struct statvfs room {};
  struct statfs kind {};
  if (::statfs("/dev/shm", &kind) != 0 || kind.f_type != TMPFS_MAGIC) return {};
  if (::statvfs("/dev/shm", &room) != 0) return {};
  const auto block = static_cast<std::int64_t>(room.f_frsize);
  return {static_cast<std::int64_t>(room.f_bavail) * block,
          static_cast<std::int64_t>(room.f_blocks) * block};
}

LogSource source_of(const StreamPlan& stream, const AttemptFiles& made) {
  const auto file = made.files.find(stream.file);
  return {stream.file, file == made.files.end() ? nullptr : file->second->cut()};
}

}  // namespace

WorkerGroup::WorkerGroup(const AgentOptions& options, Context context,
                         std::function<void(std::string)> on_full)
    : options_(options),
      context_(std::move(context)),
      on_full_(std::move(on_full)),
      streams_(options) {}

void WorkerGroup::adopt(const RunFiles& files) {
  context_.channel = files.channel_path();
  if (files.fifo() == nullptr) return;
  static constexpr std::string_view kFile = "TORCHELASTIC_TIMER_FILE=";
  std::erase_if(context_.environment,
                [](const std::string& variable) { return variable.starts_with(kFile); });
  context_.environment.push_back(std::string(kFile).append(files.fifo()->path()));
}

void WorkerGroup::prepare(const RoundFacts& round, RunFiles& run_files,
                          std::optional<LogsDest> dest, LogWork& work,
                          std::function<void(std::optional<NotStarted>)> done) {
  round_ = round;
  members_.clear();
  deaths_ = 0;
  shared_memory_.reset();
  started_ms_ = wall_ms();
  oom_watch_.begin();
  AttemptFilesRequest request{
      .options = options_,
      .run_files = run_files,
      .restart_count = round.restart_count,
      .last_directories = std::exchange(directories_, {}),
      .log_context = {.base_global_rank = round.ranks.base_global_rank, .host = context_.host},
      .dest = std::move(dest),
      .file_options = {.max_bytes = options_.log.max_bytes,
                       .ends_when_full = options_.log.on_full == LogOnFull::Fail,
                       .on_full = on_full_},
      .programs = {},
      .path = std::string(path_variable(context_.environment))};
  for (LocalRank rank{0}; rank.value < options_.local_world_size; ++rank.value)
    request.programs.push_back(worker_command(options_, rank).front());
  auto made = std::make_shared<AttemptFiles>();
  work.run(
      [request = std::move(request), made] {
        *made = create_attempt_files(request);
        if (made->problem) made->files.clear();  // Closes them on this thread.
      },
      [this, &work, made, done = std::move(done)](bool answered) {
        if (!answered) return done(NotStarted{"the storage of the logs does not answer"});
        if (made->problem) return done(NotStarted{*made->problem});
        adopt(work.pump(), std::move(*made));
        done(std::nullopt);
      });
}

void WorkerGroup::adopt(LogPump& pump, AttemptFiles made) {
  directories_ = made.plan.directories;
  programs_ = std::move(made.programs);
  for (const WorkerLogPlan& log : made.plan.workers) {
    Member& member = members_.emplace_back();
    member.log = log;
    member.end.local_rank = log.local_rank;
    member.end.rank = round_.ranks.global_rank(log.local_rank);
    member.files = {member.end.rank, source_of(log.out, made), source_of(log.err, made)};
  }
  streams_.begin(pump, std::move(made));
}

std::vector<Variables> WorkerGroup::announce(const RoundFacts& round) const {
  std::vector<Variables> all;
  all.reserve(static_cast<std::size_t>(options_.local_world_size));
  for (int rank = 0; rank < options_.local_world_size; ++rank)
    all.push_back(announced_env(context_.environment, options_, round, LocalRank{rank}));
  return all;
}

boost::system::result<WorkerGroup::Start, WorkerGroup::NotStarted> WorkerGroup::make_start(
    LogPump& pump, LocalRank rank) {
  Member& member = at(rank);
  auto environment = worker_env(
      context_.environment, options_, round_,
      {rank, member.log.error_file, context_.job_token, context_.channel, member.log.environment});
  WorkerCommand command{"", worker_command(options_, rank), std::move(environment), {}, {}};
  if (!options_.cpus.empty()) command.cpus = options_.cpus[static_cast<std::size_t>(rank.value)];
  const Result<std::string>& program = programs_[static_cast<std::size_t>(rank.value)];
  if (!program)
    return NotStarted{"cannot start '" + command.argv[0] + "': " + program.error().message()};
  program_ = command.path = *program;
  command.log_files = streams_.log_files(member.log);

  Start start{{.kind = ShimRequest::Kind::Start,
               .worker = rank.value,
               .number = member.end.rank.value,
               .attempt = round_.restart_count},
              {}};
  Result<OwnedFd> packed = pack_command(command);
  if (!packed)
    return NotStarted{"cannot pass on the command: " + packed.error().message() +
                      limit_advice(packed.error().value())};
  start.fds.push_back(std::move(*packed));
  if (const auto error = streams_.open(pump, member.log, start.request.streams, start.fds))
    return NotStarted{"cannot make the pipes for its output: " + error.message() +
                      limit_advice(error.value())};
  streams_.move_handles(member.log, start.request.handles, start.fds);
  return start;
}

void WorkerGroup::started(const ShimReport& report) {
  Member& member = at(LocalRank{report.worker});
  record_start(member.end, report);
  if (!spdlog::should_log(spdlog::level::debug)) return;
  spdlog::debug(
      "worker_started local_rank={} rank={} pid={} command=\"{}\" stdout={} stderr={} "
      "error_file={}",
      report.worker, member.end.rank.value, report.pid, shown_command(options_),
      member.log.out.file.empty() ? "-" : member.log.out.file,
      member.log.err.file.empty() ? "-" : member.log.err.file,
      member.log.error_file.empty() ? "-" : member.log.error_file);
}

std::string WorkerGroup::start_failure(const ShimReport& report) const {
  std::string reason =
      "cannot start '" + program() + "': " + from_errno(static_cast<int>(report.error)).message();
  if (static_cast<SpawnStep>(report.step) != SpawnStep::Exec)
    reason += std::string(" (") + to_string(static_cast<SpawnStep>(report.step)) + ")";
  else if (report.error == ENOENT)
    reason += " (its interpreter, in the first line, is not there)";
  return reason + start_limit_advice(report.error);
}

void WorkerGroup::ended(const ShimReport& report) {
  Member& member = at(LocalRank{report.worker});
  record_exit(member.end, report, deaths_++);
  if (!shared_memory_ && !member.end.exit.ok()) shared_memory_ = shared_memory_room();
  spdlog::debug("worker_ended local_rank={} rank={} pid={} exitcode={}", report.worker,
                member.end.rank.value, member.end.pid, member.end.exit.code());
}

void WorkerGroup::record_signal(const ShimReport& report) {
  record_sent_signal(at(LocalRank{report.worker}).end, report);
}

std::vector<WorkerLogs> WorkerGroup::logs() const {
  std::vector<WorkerLogs> logs;
  logs.reserve(members_.size());
  for (const Member& member : members_)
    logs.push_back(member.files);
  return logs;
}

std::vector<StackCollector::Target> WorkerGroup::living() const {
  std::vector<StackCollector::Target> living;
  for (const Member& member : members_)
    if (member.end.pid != 0 && !member.end.has_ended())
      living.push_back({member.end.local_rank, member.end.pid, member.log.dir});
  return living;
}

bool WorkerGroup::console_is_full() const {
  const auto is_held = [](const StreamPlan& stream, int console) {
    const bool is_shown = stream.target == StreamTarget::Inherit || stream.to_console;
    return is_shown && !wait_for_room(console, 0);
  };
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return is_held(member.log.out, STDOUT_FILENO) || is_held(member.log.err, STDERR_FILENO);
  });
}

std::vector<ExplainedEnd> WorkerGroup::ends() const {
  std::vector<ExplainedEnd> ends;
  for (const Member& member : members_) {
    if (member.end.pid == 0) continue;  // This worker was never started.
    ExplainedEnd& end = ends.emplace_back(member.end);
    end.tail_is_output = member.log.one_tap;
    end.error_file = member.log.error_file;
    if (member.log.err.target == StreamTarget::File) end.stderr_file = member.log.err.file;
  }
  find_oom_victims(oom_watch_, ends);
  add_notes(oom_watch_, shared_memory_.value_or(SharedMemoryRoom{}), ends);
  return ends;
}

std::string WorkerGroup::early_ends(LocalRank rank) const {
  std::vector<WorkerEnd> ends;
  for (const Member& member : members_)
    ends.push_back(member.end);
  return early_ends_note(ends, at(rank).end);
}

void read_error_files(std::vector<ExplainedEnd>& ends) {
  for (ExplainedEnd& end : ends) {
    if (end.has_failed() && !end.stderr_file.empty())
      end.stderr_file_end = read_piece(end.stderr_file, -kMaxFileEndBytes).bytes;
    auto text = read_error_file_at(end.error_file);
    if (!text) {
      end.error_file.clear();
      continue;
    }
    end.error = read_error_file(*text);
    end.error_text = std::move(*text);
  }
}

}  // namespace muster
