// The log thread owns the console: everything that the workers and muster itself show goes through
// it, in order. It also writes the workers' log files.
//
// The thread has an epoll and an inotify of its own, so that neither a worker that prints 100 MB/s,
// nor a console that nobody reads, nor a disk that does not answer delays supervision. It shares
// nothing with its caller: calls become messages, and answers come through functions that it calls
// ON ITS OWN THREAD, so post them on. No call waits for the thread.
//
// A slow console slows down its writers: a worker's pipe is not read while the console has no room,
// and a teed file waits on its disk. A console whose reader is gone slows down nobody.
// docs/supervision.md has the promises.
#pragma once

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
#include "agent/logs/log_console.h"
#include "agent/logs/log_file.h"
#include "agent/logs/log_mailbox.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/result.h"
#include "rendezvous/core/time.h"

namespace muster {

class LogLoop;

/// After this time a wait for somebody's reader or storage is explained to the user.
inline constexpr Duration kSayAfter = std::chrono::seconds(1);

struct FollowOptions {
  LogStream stream = LogStream::Out;
  std::string file;  // Made if it is not there yet; read from its beginning.
  LinePrefix prefix = {};
  std::vector<std::string> filters =
      {};  // Lines that contain any of them go to filtered_file, too.
  std::string filtered_file = {};
  std::shared_ptr<LogFile> written_here = nullptr;  // The same file, if the log thread writes it.
};

/// What becomes of the bytes that a worker writes into a pipe.
struct PipeOptions {
  std::optional<LocalRank> tail_of = {};    // Their end is kept: it is this worker's stderr.
  std::optional<LogStream> console = {};    // They are shown as they are.
  std::shared_ptr<LogFile> file = nullptr;  // They are appended.
};

struct FinishReport {
  bool all_read = false;  // Files to their ends, pipes until nobody held them.
  std::map<LocalRank, std::string> stderr_tails;  // The last lines; no entry: nothing known.
};

struct ShownReport {
  std::size_t lost_bytes = 0;  // What could not be shown. A reader that is gone misses nothing.
};

class LogPump {
 public:
  /// Streams of earlier attempts that a slow console may leave open before it holds up the next
  /// attempt.
  static constexpr std::size_t kEndedStreamsMax = 64;

  struct Options {
    int stdout_fd = 1;  // Where LogStream::Out goes; the descriptors stay the caller's.
    int stderr_fd = 2;
    LineLimits limits = {};
  };

  /// Starts the thread. Fails with the errno of epoll, eventfd or pthread_create; without inotify
  /// (its limits are per user, and may be used up) files are looked at ten times a second.
  static Result<std::unique_ptr<LogPump>> start(const Options& options);
  /// stop() with one second.
  ~LogPump();

  /// Text of muster's own: whole lines. From any thread. What the console does not take in time is
  /// dropped beyond 1 MiB, and counted.
  void say(LogStream stream, std::string lines) { mailbox_->say(stream, std::move(lines)); }
  /// For other threads that say something: lives as long as anybody holds it.
  const std::shared_ptr<LogMailbox>& mailbox() const { return mailbox_; }
  /// What is said from now on stands below what the workers have written before this call, if that
  /// is shown within `limit`.
  void catch_up(Duration limit);

  /// Whole, prefixed lines of a log file to the console.
  void follow(FollowOptions options);
  /// A pipe for a worker's stream. The descriptor returned is above 2 and close-on-exec, to be
  /// closed as soon as the worker has been started.
  Result<OwnedFd> pipe(PipeOptions options);

  /// Does something that storage may make wait. `done` is called afterwards.
  void run(std::function<void()> job, std::function<void()> done = {});

  /// The attempt's workers are dead, and another attempt follows. The thread reads and shows what
  /// they left as the console has room, then closes their files and pipes. follow() and pipe() are
  /// for the next attempt from now. `done` gets the ends of their stderr, as far as they are read;
  /// it is called when at most kEndedStreamsMax streams of earlier attempts wait for the console.
  using Tails = std::map<LocalRank, std::string>;
  void end_attempt(std::function<void(const Tails&)> done);
  /// The last attempt's workers are dead: `done` is called when all that they have written is read
  /// and is on its way to the console. A pipe that a process of another descent still holds is
  /// waited for until `pipe_limit`; after that only what is in it already is read.
  void finish(Duration pipe_limit, std::function<void(FinishReport)> done);
  /// `done` is called when everything is shown, or its reader is gone, or after hurry(). After a
  /// second a line says what is waited for.
  void flush(std::function<void(ShownReport)> done);
  /// Waits for no console any more: what one does not take at once is dropped, counted and said.
  void hurry();
  /// For how long the thread has been busy with one thing: seconds mean that storage holds it up.
  Duration busy_for() const;
  /// finish(), flush(), and the thread ends. After `limit` as after hurry(). True if everything was
  /// read and shown. Returns within `limit` and a second; a thread that hangs is then left behind.
  bool stop(Duration limit);
  /// The thread hangs: leaves it behind. Returns muster's lines that it has not taken yet.
  std::vector<std::unique_ptr<LogMessage>> abandon();

 private:
  struct Shared;
  LogPump(std::shared_ptr<Shared> shared, std::shared_ptr<LogMailbox> mailbox);
  void post(std::function<void(LogLoop&)> act);

  std::shared_ptr<Shared> shared_;  // With the thread, which may outlive us.
  std::shared_ptr<LogMailbox> mailbox_;
  std::future<bool> ended_;
  std::thread thread_;
};

}  // namespace muster
