// The messages to the log thread. Muster's own lines are among them.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/system/owned_fd.h"

namespace muster {

class LogLoop;

/// The agent's own stdout or stderr.
enum class LogStream { Out, Err };

/// Whether a text of muster may be dropped while too much earlier text is not read yet.
enum class Keep { IfThereIsRoom, Always };

/// Lines of muster itself.
struct OwnText {
  LogStream stream = LogStream::Err;
  std::string text;
  Keep keep = Keep::IfThereIsRoom;
};

/// Either a function to call (`act`), or text to print.
struct LogMessage {
  std::function<void(LogLoop&)> act;
  OwnText own;
  LogMessage* next = nullptr;  // Used by the mailbox only.
};

/// A queue that any thread may write. It never blocks a writer, whatever its reader does: it is a
/// list whose head is exchanged atomically, and an eventfd.
class LogMailbox {
 public:
  /// The most text that waits in the mailbox. If there is more, the reader hangs: further text is
  /// dropped and counted.
  static constexpr std::size_t kMaxWaitingTextBytes = 1 << 20;

  LogMailbox();
  LogMailbox(const LogMailbox&) = delete;
  LogMailbox& operator=(const LogMailbox&) = delete;
  ~LogMailbox();

  /// The errno of eventfd(); 0 if it succeeded.
  int error() const { return error_; }
  /// Readable while there are messages.
  int fd() const { return event_.get(); }

  void post(std::function<void(LogLoop&)> act);
  void print(LogStream stream, std::string text, Keep keep = Keep::IfThereIsRoom);

  /// Removes and returns the oldest message; null: there is none. If a thread hangs in a message,
  /// the next messages are still in the mailbox, and another thread can take them.
  std::unique_ptr<LogMessage> take();
  bool is_empty() const { return oldest_.load() == nullptr && newest_.load() == nullptr; }
  /// The number of texts that were dropped since the last call.
  std::size_t take_dropped() { return dropped_.exchange(0); }

 private:
  void push(LogMessage* message);

  std::atomic<LogMessage*> newest_ = nullptr;  // The list of new messages, the newest first.
  std::atomic<LogMessage*> oldest_ = nullptr;  // The list that take() has reversed, oldest first.
  std::atomic<std::size_t> text_bytes_ = 0;
  std::atomic<std::size_t> dropped_ = 0;
  OwnedFd event_;
  int error_ = 0;
};

}  // namespace muster
