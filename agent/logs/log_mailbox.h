// Messages to the log thread, and the text of muster's own lines among them.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/net/owned_fd.h"

namespace muster {

class LogLoop;

/// The agent's own stdout or stderr.
enum class LogStream { Out, Err };

/// Either something to do, or text to show.
struct LogMessage {
  std::function<void(LogLoop&)> act;
  LogStream stream = LogStream::Err;
  std::string text;
  LogMessage* next = nullptr;  // The mailbox's.
};

/// A queue that any thread may write and that never makes a writer wait, whatever its reader does:
/// a list whose head is exchanged, and an eventfd.
class LogMailbox {
 public:
  /// Text that waits in the mailbox. More than that is dropped and counted: its reader hangs.
  static constexpr std::size_t kMaxWaitingTextBytes = 1 << 20;

  LogMailbox();
  LogMailbox(const LogMailbox&) = delete;
  LogMailbox& operator=(const LogMailbox&) = delete;
  ~LogMailbox();

  /// errno if the eventfd could not be made; 0 if it was.
  int error() const { return error_; }
  /// Readable while there are messages.
  int fd() const { return event_.get(); }

  void post(std::function<void(LogLoop&)> act);
  void say(LogStream stream, std::string text);

  /// The oldest message; null: there is none. The thread that hangs in a message leaves the next
  /// ones in the mailbox, so that another thread can take them.
  std::unique_ptr<LogMessage> take();
  bool is_empty() const { return oldest_.load() == nullptr && newest_.load() == nullptr; }
  /// How many texts were dropped since the last call.
  std::size_t take_dropped() { return dropped_.exchange(0); }

 private:
  void push(LogMessage* message);

  std::atomic<LogMessage*> newest_ = nullptr;  // A list from the newest back.
  std::atomic<LogMessage*> oldest_ = nullptr;  // What take() has turned round: from the oldest on.
  std::atomic<std::size_t> text_bytes_ = 0;
  std::atomic<std::size_t> dropped_ = 0;
  OwnedFd event_;
  int error_ = 0;
};

}  // namespace muster
