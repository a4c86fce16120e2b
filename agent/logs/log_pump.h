// The log thread owns the console: all output of the workers and of muster itself goes through it,
// in order. The thread also writes the workers' log files.
//
// The thread has its own epoll and inotify. So supervision is not delayed by a worker that prints
// 100 MB/s, by a console that nobody reads, or by a disk that does not answer. The thread shares
// nothing with its caller: calls become messages. It calls the callbacks ON THE LOG THREAD, so they
// must post their work to the caller's thread. No call waits for the log thread.
//
// A slow console puts backpressure on its writers: while the console has no room, a worker's pipe
// is not read, and the rest of a teed file stays on its disk. A console whose reader is gone puts
// backpressure on no writer. docs/supervision.md has the promises.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/core/line_assembler.h"
#include "agent/core/log_plan.h"
#include "agent/core/pipe_size.h"
#include "agent/logs/log_file.h"
#include "agent/logs/log_mailbox.h"
#include "agent/logs/pipe_growth.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/system/log_console.h"
#include "base/time.h"

namespace muster {

class LogLoop;

/// If a wait for a reader or for storage takes longer than this, muster tells the user the reason.
inline constexpr Duration kExplainAfter = std::chrono::seconds(1);

struct FollowOptions {
  LogStream stream = LogStream::Out;
  std::string file;  // Created if it is missing; read from its beginning.
  LinePrefix prefix = {};
  /// Lines that contain any of these strings go to filtered_file, too.
  std::vector<std::string> filters = {};
  std::string filtered_file = {};
  LogFileOptions filtered_options = {};
  std::shared_ptr<LogFile> written_here = nullptr;  // The same file, if the log thread writes it.
  LineLimits limits = {};
};

/// The destinations of the bytes that a worker writes into a pipe.
struct PipeOptions {
  std::optional<LocalRank> tail_of = {};  // This is this worker's stderr: the last bytes are kept.
  std::optional<LogStream> console = {};  // The bytes go to this console unchanged.
  std::shared_ptr<LogFile> file = nullptr;  // The bytes are appended to this file.
  std::size_t bytes = kPipeBytesMax;        // The pipe's size, if the pages are there.
};

struct FinishReport {
  /// All files were read to their ends, and all pipes until no process held them.
  bool all_read = false;
  std::map<LocalRank, std::string> stderr_tails;  // The last lines; no entry: they are not known.
};

struct ShownReport {
  std::size_t lost_bytes = 0;  // Bytes that could not be shown. After a reader's end none count.
};

/// The worker's end of a terminal, and a second reader for the shim: without one, a process that
/// writes after the agent's death gets an error.
struct LogTerminal {
  OwnedFd worker;
  OwnedFd spare_reader;
};

class LogPump {
 public:
  /// The most streams of earlier attempts that may wait for a slow console. If there are more, the
  /// next attempt waits.
  static constexpr std::size_t kEndedStreamsMax = 64;

  struct Options {
    int stdout_fd = 1;  // For LogStream::Out. The caller still owns both descriptors.
    int stderr_fd = 2;
  };

  /// Starts the thread. Fails with the errno of epoll, eventfd or pthread_create. Without inotify,
  /// whose limits per user may be used up, the thread polls files ten times a second.
  static Result<std::unique_ptr<LogPump>> start(const Options& options);
  /// Calls stop() with a limit of one second.
  ~LogPump();

  /// Prints muster's own text, in whole lines. Any thread may call this. At most 1 MiB waits for
  /// the console: more text is dropped and counted, unless it is to be kept always.
  void print(LogStream stream, std::string lines, Keep keep = Keep::IfThereIsRoom) {
    mailbox_->print(stream, std::move(lines), keep);
  }
  /// For other threads that print. The mailbox lives as long as any thread holds it.
  const std::shared_ptr<LogMailbox>& mailbox() const { return mailbox_; }
  /// Later print() calls appear below all that the workers wrote before this call, if the console
  /// shows that within `limit`.
  void catch_up(Duration limit);

  /// Shows a log file on the console, in whole lines with a prefix.
  void follow(FollowOptions options);
  /// Makes a pipe for a worker's stream. The result is the writing end, above 2 and close-on-exec.
  /// Close it as soon as the worker has been started.
  Result<OwnedFd> pipe(PipeOptions options);

  /// Makes a terminal in place of a pipe, like the one that stderr is. Close the worker's end as
  /// soon as the worker has been started.
  Result<LogTerminal> terminal(PipeOptions options);

  /// Calls `job`, which storage may block, on the log thread, then `done`.
  void run(std::function<void()> job, std::function<void()> done = {});

  /// Call this when the attempt's workers are dead and another attempt follows. The thread reads
  /// and shows their remaining output as the console has room, then closes their files and pipes.
  /// Later calls of follow() and pipe() are for the next attempt. `done` gets the last lines of the
  /// workers' stderr as far as they are read. It is called when at most kEndedStreamsMax streams of
  /// earlier attempts wait for the console.
  using Tails = std::map<LocalRank, std::string>;
  void end_attempt(std::function<void(const Tails&)> done);
  /// Call this when the last attempt's workers are dead. `done` is called when all output, also of
  /// earlier attempts, is read and passed to the console. If a process that does not descend from
  /// the workers still holds a pipe, the thread waits for it until `pipe_limit`. Then it reads only
  /// the bytes that are already in the pipe.
  void finish(Duration pipe_limit, std::function<void(FinishReport)> done);
  /// `done` is called when all output is shown, or its reader is gone, or after hurry(). If that
  /// takes more than a second, a log line says what the thread waits for.
  void flush(std::function<void(ShownReport)> done);
  /// Ends all waits for consoles. Bytes that a console does not accept at once are dropped and
  /// counted, and a line says so.
  void hurry();
  /// How long the thread has worked for one stream or one call, if it sleeps in the kernel now:
  /// seconds mean that storage does not answer. 0 if it waits for events, runs, or waits for a
  /// processor.
  Duration blocked_for() const;
  /// Does finish() and flush(), then ends the thread. After `limit` it does hurry(). True if all
  /// output was read and shown. Returns at most one second after `limit`: a thread that hangs is
  /// then left behind.
  bool stop(Duration limit);
  /// Leaves a thread behind that hangs. Returns muster's lines that the thread has not taken.
  std::vector<std::unique_ptr<LogMessage>> abandon();

 private:
  struct Shared;
  LogPump(int stderr_fd, std::shared_ptr<Shared> shared, std::shared_ptr<LogMailbox> mailbox);
  void post(std::function<void(LogLoop&)> act);

  const int stderr_fd_;
  std::shared_ptr<Shared> shared_;  // Shared with the thread, which may outlive this object.
  std::shared_ptr<LogMailbox> mailbox_;
  // Used by the thread only.
  const std::shared_ptr<PipeReserve> reserve_ = std::make_shared<PipeReserve>();
  std::future<bool> ended_;
  std::thread thread_;
};

}  // namespace muster
