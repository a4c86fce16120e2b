// The log thread: brings what workers write to the console, and keeps the end of their stderr.
//
// It has a thread, an epoll and an inotify of its own, so that neither a worker that prints
// 100 MB/s nor a console that nobody reads delays supervision. Workers write to their files
// themselves; the thread follows the files by inotify. It shares nothing with its caller: calls
// become messages, answers come through functions that it calls ON ITS OWN THREAD, so post them on.
//
// A console that is slow holds up what it is to show: files wait on disk, and a tapped worker waits
// as it would for the console itself. One that is closed holds up nothing. Neither loses a byte of
// a log file, or keeps stop() from returning.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/core/line_assembler.h"
#include "agent/core/log_plan.h"
#include "agent/logs/log_console.h"
#include "agent/logs/log_space.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/result.h"
#include "rendezvous/core/time.h"

namespace muster {

class LogLoop;

/// The agent's own stdout or stderr.
enum class LogStream { Out, Err };

struct FollowOptions {
  LocalRank worker;
  LogStream stream = LogStream::Out;
  std::string file;  // Made if it is not there yet; read from its beginning.
  LinePrefix prefix = {};
  std::vector<std::string> filters =
      {};  // Lines that contain any of them go to filtered_file, too.
  std::string filtered_file = {};
};

struct TapOptions {
  LocalRank worker;
  LogStream console = LogStream::Err;
  bool to_console = true;  // False: only its end is kept (a rank that --local-ranks-filter hides).
};

struct FinishReport {
  bool all_read = false;   // Files to their ends, pipes until nobody held them.
  bool all_shown = false;  // Everything read is on the console, or the console is closed.
  std::map<LocalRank, std::string> stderr_tails;  // As tail() gives them; no entry: nothing known.
};

class LogPump {
 public:
  struct Options {
    int stdout_fd = 1;  // Where LogStream::Out goes; the descriptors stay the caller's.
    int stderr_fd = 2;
    LineLimits limits = {};
    LogSpaceOptions space = {};
  };

  /// Starts the thread. Fails with the errno of epoll, pipe or pthread_create; without inotify
  /// (its limits are per user, and may be used up) files are looked at ten times a second.
  static Result<std::unique_ptr<LogPump>> start(const Options& options);
  /// stop() with one second.
  ~LogPump();

  /// Whole, prefixed lines of a log file to the console, until finish().
  void follow(FollowOptions options);
  /// A pipe for a worker's stderr, or for its stdout and stderr if these are one console: what
  /// comes out goes to the console at once, unchanged. The descriptor returned is above 2,
  /// close-on-exec and the caller's, to be closed as soon as the worker has been started.
  Result<int> tap(const TapOptions& options);
  /// A pipe, too; what comes out of it is appended to a log file that is there already, and dropped
  /// when the disk is full. The descriptor is as of tap(). Before follow() of the same file.
  Result<int> record(std::string file);
  /// Says where a worker's stderr is, if it is neither tapped nor followed: for tail().
  void keep_tail_of(LocalRank worker, std::string stderr_file);

  /// Keeps a log file within its limit, and room free behind its end, until finish(). The file is
  /// there, and reserve_log_space() was called for it. Before follow() of the same file.
  void keep(std::string file);

  /// The last lines of the worker's stderr, of this attempt or, after finish(), of the last one.
  void tail(LocalRank worker, std::function<void(std::string)> done);
  /// What the workers have written before this call is read and goes to the console: then `done`,
  /// or after `limit`. For what is to stand below it.
  void catch_up(Duration limit, std::function<void()> done);
  /// The attempt's workers are dead: reads what they left, ends unfinished lines, forgets the
  /// streams; a pipe that a grandchild still holds is served on, but not waited for beyond `limit`.
  /// `done` is called within `limit`, once; follow() and tap() are for the next attempt from then.
  void finish(Duration limit, std::function<void(FinishReport)> done);
  /// finish(), and the thread ends. True if everything was read and shown. Returns within `limit`
  /// and a second; a thread that hangs in a dead disk is then left behind, and calls nobody.
  bool stop(Duration limit);

 private:
  using Message = std::function<void(LogLoop&)>;
  struct Shared;
  LogPump(std::shared_ptr<Shared> shared, LogFd mailbox);
  void post(Message message);

  std::shared_ptr<Shared> shared_;  // With the thread, which may outlive us.
  LogFd mailbox_;                   // Pointers to messages go through this pipe.
  std::future<bool> ended_;
  std::thread thread_;
};

}  // namespace muster
