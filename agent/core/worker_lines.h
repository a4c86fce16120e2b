// What one connection of the worker channel says, line by line, and what the agent says back.
//
// Pure: bytes go in, messages come out. The protocol is in docs/worker_channel.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

/// The worker gets on; `step` is what it has said, if it has said one.
struct WorkerProgress {
  LocalRank rank;
  std::optional<std::int64_t> step;
  friend bool operator==(const WorkerProgress&, const WorkerProgress&) = default;
};

/// The worker will report no more.
struct WorkerProgressEnd {
  LocalRank rank;
  friend bool operator==(const WorkerProgressEnd&, const WorkerProgressEnd&) = default;
};

using WorkerMessage = std::variant<WorkerProgress, WorkerProgressEnd>;

/// The bytes of one connection. How they are cut into pieces does not matter.
class WorkerLines {
 public:
  static constexpr std::size_t kMaxLineBytes = 4096;  // Without its newline.

  /// For a node of so many workers.
  explicit WorkerLines(int local_world_size) : local_world_size_(local_world_size) {}

  /// Call next() until it has nothing, before the next bytes are added.
  void add(std::string_view bytes) { buffer_.append(bytes); }

  /// The next message. Nothing if no line is whole, or if a rule was broken: then why() says which.
  std::optional<WorkerMessage> next();

  /// Why the connection must be closed; empty while all is well.
  std::string_view why() const { return why_; }

  /// Who speaks, once a hello has said it.
  std::optional<LocalRank> rank() const { return rank_; }

  /// Who speaks, if it has promised to end by itself when a notice comes.
  std::optional<LocalRank> promised() const { return ends_itself_ ? rank_ : std::nullopt; }

 private:
  std::optional<WorkerMessage> take_line(std::string_view line);
  std::optional<WorkerMessage> fail(std::string_view why);

  int local_world_size_;
  std::string buffer_;
  std::optional<LocalRank> rank_;
  bool ends_itself_ = false;
  std::string_view why_;  // A literal.
};

/// The notice, with its newline, that workers have until `deadline`.
std::string preempt_line(Instant deadline, Instant now);

}  // namespace muster
