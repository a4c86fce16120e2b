#include "agent/io/worker_group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include <boost/system/system_error.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/worker_command.h"
#include "agent/io/error_file_io.h"
#include "agent/logs/log_space.h"
#include "agent/posix/find_program.h"

namespace muster {
namespace {

boost::system::error_code from_errno(int number) {
  return {number, boost::system::system_category()};
}

Result<int> open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) return from_errno(errno);
  return fd;
}

// As Python's os.get_exec_path() has it.
std::string_view path_variable(const std::vector<std::string>& environment) {
  constexpr std::string_view kName = "PATH=";
  for (const std::string& variable : environment)
    if (variable.compare(0, kName.size(), kName) == 0)
      return std::string_view(variable).substr(kName.size());
  return "/bin:/usr/bin";
}

// Makes `path` and what is missing above it.
boost::system::error_code make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT) return from_errno(errno);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return from_errno(ENOENT);
  if (const auto error = make_directory(path.substr(0, slash))) return error;
  return ::mkdir(path.c_str(), 0777) == 0 ? boost::system::error_code{} : from_errno(errno);
}

// Of those that died of a SIGKILL that was not muster's.
void find_oom_victims(const OomWatch& watch, std::vector<WorkerEnd>& ends) {
  const auto is_unexplained = [](const WorkerEnd& end) {
    return end.killed && end.code == SIGKILL && !end.was_sent(SIGKILL) && end.ended_because.empty();
  };
  const auto count = std::count_if(ends.begin(), ends.end(), is_unexplained);
  if (count == 0) return;
  const OomFacts facts = watch.facts();
  for (WorkerEnd& end : ends)
    if (is_unexplained(end)) {
      end.oom_evidence = oom_evidence(facts, end.pid, static_cast<int>(count));
      if (facts.kills == 0) end.quiet_oom_counter = facts.cgroup_dir;
    }
}

bool is_terminal(int fd) {
  return ::isatty(fd) == 1;
}

}  // namespace

std::int64_t wall_clock_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

WorkerGroup::WorkerGroup(const AgentOptions& options, Surroundings surroundings, LogPump& pump)
    : options_(options), surroundings_(std::move(surroundings)), pump_(pump) {}

boost::system::result<std::vector<WorkerGroup::Start>, WorkerGroup::NotStarted>
WorkerGroup::prepare(const RoundFacts& round, const RunDir& run_dir) {
  members_.clear();
  deaths_ = 0;
  started_ms_ = wall_clock_ms();
  oom_watch_.begin();
  LogSurroundings facts{.base_global_rank = round.ranks.base_global_rank,
                        .host = surroundings_.host,
                        .stderr_is_terminal = is_terminal(2),
                        .console_is_one_file = is_one_console(1, 2)};
  if (!run_dir.path().empty()) {
    const std::vector<std::string> names = run_dir.entries();
    facts.attempt_dir =
        run_dir.path() + "/" + attempt_dir_name(round.restart_count, {names.begin(), names.end()});
  }
  const AttemptLogPlan plan = plan_logs(options_, facts);
  for (const std::string& dir : plan.directories)
    if (const auto error = make_directory(dir))
      return NotStarted{LocalRank{0}, "cannot make the log directory " + dir + ": " +
                                          error.message() + " (--log-dir chooses another place)"};

  std::vector<Start> starts;
  for (const WorkerLogPlan& log : plan.workers) {
    Member& member = members_.emplace_back();
    member.log = log;
    member.end.local_rank = log.local_rank;
    member.end.rank = round.ranks.global_rank(log.local_rank);
    auto start = prepare_worker(round, member, plan);
    if (!start) {
      for (const Start& made : starts)
        for (const int fd : made.fds)
          ::close(fd);
      return start.error();
    }
    starts.push_back(std::move(*start));
  }
  return starts;
}

boost::system::result<WorkerGroup::Start, WorkerGroup::NotStarted> WorkerGroup::prepare_worker(
    const RoundFacts& round, Member& member, const AttemptLogPlan& plan) {
  const LocalRank rank = member.end.local_rank;
  auto environment =
      worker_env(surroundings_.environment, options_, round,
                 {rank, member.log.error_file, surroundings_.job_token, surroundings_.channel});
  if (!environment) return NotStarted{rank, environment.error().text};

  WorkerCommand command{"", worker_command(options_, rank), std::move(*environment), {}};
  if (!options_.cpus.empty()) command.cpus = options_.cpus[static_cast<std::size_t>(rank.value)];
  const Result<std::string> program = find_program(command.argv[0], path_variable(command.env));
  if (!program)
    return NotStarted{rank, "cannot start '" + command.argv[0] + "': " + program.error().message()};
  program_ = command.path = *program;

  Start start{{.kind = ShimRequest::Kind::Start, .worker = rank.value}, {}};
  const Result<int> packed = pack_command(command);
  if (!packed) return NotStarted{rank, "cannot pass on the command: " + packed.error().message()};
  start.fds.push_back(*packed);
  const Result<std::vector<int>> streams = open_streams(member, plan, start.request.streams);
  if (!streams) {
    ::close(*packed);
    return NotStarted{
        rank, "cannot open the log files in " + member.log.dir + ": " + streams.error().message()};
  }
  start.fds.insert(start.fds.end(), streams->begin(), streams->end());
  return start;
}

Result<std::vector<int>> WorkerGroup::open_streams(Member& member, const AttemptLogPlan& plan,
                                                   std::uint32_t& streams) {
  std::vector<int> fds;
  if (member.log.one_tap) {
    const Result<int> pipe =
        pump_.tap({member.end.local_rank, LogStream::Err, member.log.err.to_console});
    if (!pipe) return pipe.error();
    const Result<int> again = [&]() -> Result<int> {
      const int fd = ::fcntl(*pipe, F_DUPFD_CLOEXEC, 3);
      return fd < 0 ? Result<int>(from_errno(errno)) : fd;
    }();
    fds.push_back(*pipe);
    if (!again) {
      ::close(*pipe);
      return again.error();
    }
    fds.push_back(*again);
    streams = 0b110;
    return fds;
  }
  for (const bool is_stderr : {false, true}) {
    const StreamPlan& stream = is_stderr ? member.log.err : member.log.out;
    if (stream.target == StreamTarget::Inherit) continue;
    const Result<int> fd = open_stream(member, plan, is_stderr);
    if (!fd) {
      for (const int opened : fds)
        ::close(opened);
      return fd.error();
    }
    fds.push_back(*fd);
    streams |= is_stderr ? 0b100U : 0b010U;
  }
  return fds;
}

Result<int> WorkerGroup::open_stream(Member& member, const AttemptLogPlan& plan, bool is_stderr) {
  const StreamPlan& stream = is_stderr ? member.log.err : member.log.out;
  const LogStream console = is_stderr ? LogStream::Err : LogStream::Out;
  switch (stream.target) {
    case StreamTarget::Discard:
      return open_file("/dev/null", O_WRONLY);
    case StreamTarget::Tap:
      return pump_.tap({member.end.local_rank, console, stream.to_console});
    case StreamTarget::File:
      return open_log_file(member, plan, is_stderr);
    case StreamTarget::Inherit:
      break;  // The caller's case.
  }
  return from_errno(EINVAL);
}

Result<int> WorkerGroup::open_log_file(Member& member, const AttemptLogPlan& plan, bool is_stderr) {
  const StreamPlan stream = is_stderr ? member.log.err : member.log.out;
  const LocalRank rank = member.end.local_rank;
  const Result<int> fd = open_file(stream.file, O_WRONLY | O_CREAT | O_APPEND);
  const int error = fd ? reserve_log_space(*fd) : fd.error().value();
  if (fd && error != 0) ::close(*fd);
  if (error == ENOSPC || error == EDQUOT) {
    if (options_.log.on_full == LogOnFull::Fail) return from_errno(error);
    return without_log_file(member, is_stderr);
  }
  if (!fd) return fd;
  pump_.keep(stream.file);
  if (is_stderr) pump_.keep_tail_of(rank, stream.file);
  const Result<int> result = worker_end(*fd, stream.file);
  if (!result || !stream.to_console) return result;
  const auto& filters =
      is_stderr ? options_.log.duplicate_stderr_filters : options_.log.duplicate_stdout_filters;
  pump_.follow({rank, is_stderr ? LogStream::Err : LogStream::Out, stream.file, member.log.prefix,
                filters, is_stderr ? plan.filtered_stderr : plan.filtered_stdout});
  return result;
}

// What the worker gets of its log file: the file itself, or a pipe to the log thread.
Result<int> WorkerGroup::worker_end(int file, const std::string& path) {
  if (options_.log.on_full != LogOnFull::Drop) return file;
  ::close(file);
  return pump_.record(path);
}

// The disk is full before the worker has begun: it does without the file, not without running.
Result<int> WorkerGroup::without_log_file(Member& member, bool is_stderr) {
  StreamPlan& stream = is_stderr ? member.log.err : member.log.out;
  const char* place = stream.to_console ? "only to the console" : "nowhere";
  spdlog::warn("the disk of the logs is full: {} goes {} (--log-on-full=fail ends the job instead)",
               stream.file, is_stderr && !stream.to_console ? "only to a failure report" : place);
  const bool shown = stream.to_console;
  stream = {is_stderr ? StreamTarget::Tap : StreamTarget::Discard, "", shown};
  if (is_stderr) return pump_.tap({member.end.local_rank, LogStream::Err, shown});
  if (!shown) return open_file("/dev/null", O_WRONLY);
  const int fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  return fd < 0 ? Result<int>(from_errno(errno)) : fd;
}

void WorkerGroup::started(const ShimReport& report) {
  Member& member = at(LocalRank{report.worker});
  member.end.pid = report.pid;
  if (!spdlog::should_log(spdlog::level::debug)) return;
  std::string command;
  for (const std::string& word : worker_command(options_, member.end.local_rank))
    command.append(command.empty() ? "" : " ").append(word);
  spdlog::debug(
      "worker_started local_rank={} rank={} pid={} command=\"{}\" stdout={} stderr={} "
      "error_file={}",
      report.worker, member.end.rank.value, report.pid, command,
      member.log.out.file.empty() ? "-" : member.log.out.file,
      member.log.err.file.empty() ? "-" : member.log.err.file,
      member.log.error_file.empty() ? "-" : member.log.error_file);
}

void WorkerGroup::ended(const ShimReport& report) {
  Member& member = at(LocalRank{report.worker});
  member.end.killed = report.code != CLD_EXITED;
  member.end.code = report.status;
  member.end.core_dumped = report.code == CLD_DUMPED;
  member.end.order = deaths_++;
  member.end.died_ms = report.wall_ns / 1'000'000;
  spdlog::debug("worker_ended local_rank={} rank={} pid={} exitcode={}", report.worker,
                member.end.rank.value, member.end.pid, member.end.exit_code());
}

void WorkerGroup::told(const ShimReport& report) {
  WorkerEnd& end = at(LocalRank{report.worker}).end;
  if (!end.signalled_ms) end.signalled_ms = report.wall_ns / 1'000'000;
  end.sent.push_back(report.status);
  if (report.code != 0) end.can_outlive_signal = true;
}

std::vector<WorkerEnd> WorkerGroup::ends(std::int64_t* started_ms) const {
  *started_ms = started_ms_;
  std::vector<WorkerEnd> ends;
  for (const Member& member : members_) {
    if (member.end.pid == 0) continue;  // It was never started.
    WorkerEnd& end = ends.emplace_back(member.end);
    end.tail_is_output = member.log.one_tap;
    if (member.log.err.target == StreamTarget::File) end.stderr_file = member.log.err.file;
    if (const auto text = read_error_file_at(member.log.error_file)) {
      end.error_file = member.log.error_file;
      end.error = read_error_file(*text);
    }
  }
  find_oom_victims(oom_watch_, ends);
  return ends;
}

}  // namespace muster
