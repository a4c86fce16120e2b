#include "agent/io/attempt_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/io/owned_folder.h"
#include "agent/posix/find_program.h"
#include "base/from_errno.h"
#include "base/limit_advice.h"
#include "base/result.h"
#include "base/system/log_console.h"
#include "base/system/same_file.h"

namespace muster {
namespace {

bool can_be_followed(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? S_ISREG(info.st_mode) : errno == ENOENT;
}

// A full disk prevents the start only with --log-on-full=fail: else the log thread tries to open
// the file again later.
bool prevents_start(int error, const LogFileOptions& options) {
  return error != 0 && (options.ends_when_full || !is_disk_full(error));
}

std::optional<std::string> open_files(const AttemptFilesRequest& request, AttemptFiles& made) {
  const auto begin = made.plan.chosen_by_plugin ? LogFile::Begin::Truncate : LogFile::Begin::Append;
  for (const WorkerLogPlan& worker : made.plan.workers)
    for (const StreamPlan* stream : {&worker.out, &worker.err}) {
      if (stream->target != StreamTarget::File) continue;
      auto& file = made.files[stream->file];
      if (file) continue;  // A plug-in may name a file twice.
      file = std::make_shared<LogFile>(stream->file, begin, request.file_options);
      if (prevents_start(file->error(), request.file_options))
        return "cannot open the log files in " + worker.dir + ": " +
               from_errno(file->error()).message() + limit_advice(file->error());
      if (file->is_regular()) made.handles[stream->file] = file->open_handle();
    }
  return std::nullopt;
}

// Files in muster's own attempt directory are new. Files that a plug-in has chosen are emptied.
std::optional<std::string> empty_filtered_files(const AttemptLogPlan& plan) {
  if (!plan.chosen_by_plugin) return std::nullopt;
  for (const std::string& path : {plan.filtered_stdout, plan.filtered_stderr}) {
    if (path.empty()) continue;
    const LogFile file(path, LogFile::Begin::Truncate, {});
    if (file.error() != 0)
      return "cannot open the file for filtered lines: " + from_errno(file.error()).message();
  }
  return std::nullopt;
}

std::vector<Result<std::string>> find_programs(const AttemptFilesRequest& request,
                                               const AttemptLogPlan& plan) {
  std::vector<Result<std::string>> found;
  std::string_view last_path;
  for (std::size_t rank = 0; rank < request.programs.size(); ++rank) {
    std::string_view path = request.path;
    if (rank < plan.workers.size())  // A plug-in may have changed PATH.
      for (const auto& [name, value] : plan.workers[rank].environment.set)
        if (name == "PATH") path = value;
    // Usually all workers have the same program: it is looked up once.
    const bool is_known =
        rank > 0 && path == last_path && request.programs[rank] == request.programs[rank - 1];
    found.push_back(is_known ? found.back() : find_program(request.programs[rank], path));
    last_path = path;
  }
  return found;
}

bool is_foreign_folder_at(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return true;
  return !is_own_folder(info) && (!S_ISDIR(info.st_mode) || is_local_disk(path));
}

}  // namespace

AttemptFiles create_attempt_files(const AttemptFilesRequest& request) {
  AttemptFiles made{.file_options = request.file_options};
  if (std::string problem = request.run_files.restore(); !problem.empty()) {
    made.problem = std::move(problem);
    return made;
  }
  const RunDir& run_dir = request.run_files.run_dir();
  run_dir.remove_empty(request.last_directories);
  LogContext log_context = request.log_context;
  log_context.stderr_is_terminal = ::isatty(2) == 1;
  log_context.console_is_one_file = is_one_console(1, 2);
  if (!run_dir.path().empty()) {
    const std::vector<std::string> names = run_dir.entries();
    log_context.attempt_dir = run_dir.path() + "/" +
                              attempt_dir_name(request.restart_count, {names.begin(), names.end()});
  }
  made.plan = request.dest ? plan_logs(request.options, log_context, *request.dest)
                           : plan_logs(request.options, log_context);
  for (const std::string& dir : made.plan.directories) {
    if (::mkdir(dir.c_str(), 0777) == 0) continue;  // The parent directory usually exists.
    if (errno == EEXIST && dir.starts_with(run_dir.path() + "/") && is_foreign_folder_at(dir)) {
      made.problem = "cannot make the log directory " + dir + ": another user has made it";
      return made;
    }
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) {
      made.problem = "cannot make the log directory " + dir + ": " + error.message() +
                     " (--log-dir chooses another place)";
      return made;
    }
  }
  made.problem = open_files(request, made);
  if (!made.problem) made.problem = empty_filtered_files(made.plan);
  std::erase_if(made.plan.more_shown,
                [](const ShownFile& shown) { return !can_be_followed(shown.file); });
  made.programs = find_programs(request, made.plan);
  return made;
}

}  // namespace muster
