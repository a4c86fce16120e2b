// Parses the lines that a worker sends over one connection of the worker channel.
//
// Pure: bytes go in, messages come out. The protocol is in docs/worker_channel.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"

namespace muster {

/// The worker makes progress, or has announced that it will report no more.
struct WorkerProgress {
  LocalRank rank;
  bool ends = false;                 // The worker will report no further progress.
  std::optional<std::int64_t> step;  // The step that the worker reported, if any.
  friend bool operator==(const WorkerProgress&, const WorkerProgress&) = default;
};

/// The worker has saved its work, and may be stopped: the answer to a notice.
struct WorkerSaved {
  LocalRank rank;
  std::optional<std::int64_t> id;  // The notice that the worker means. Empty: the last one.
  friend bool operator==(const WorkerSaved&, const WorkerSaved&) = default;
};

using WorkerMessage = std::variant<WorkerProgress, WorkerSaved>;

/// The parser of one connection. The result does not depend on how the bytes were cut into pieces.
class WorkerLines {
 public:
  static constexpr std::size_t kMaxLineBytes = 4096;  // Without its newline.

  /// `local_world_size`: the number of workers of this node.
  explicit WorkerLines(int local_world_size) : local_world_size_(local_world_size) {}

  /// Adds received bytes. Call next() until it returns nothing, before you add more bytes.
  void add(std::string_view bytes) { buffer_.append(bytes); }

  /// The next message. Empty if there is no complete line, or if a line broke a rule of the
  /// protocol: then error() says which one.
  std::optional<WorkerMessage> next();

  /// Why the connection must be closed. Empty as long as no rule was broken.
  std::string_view error() const { return error_; }

  /// The worker of this connection, after its hello.
  std::optional<LocalRank> rank() const { return rank_; }

  /// The worker of this connection, if it has promised to end by itself when a notice comes.
  std::optional<LocalRank> ends_itself() const { return ends_itself_ ? rank_ : std::nullopt; }

 private:
  std::optional<WorkerMessage> handle_line(std::string_view line);
  std::optional<WorkerMessage> fail(std::string_view why);

  int local_world_size_;
  std::string buffer_;
  std::optional<LocalRank> rank_;
  bool ends_itself_ = false;
  std::string_view error_;  // Always a string literal.
};

}  // namespace muster
