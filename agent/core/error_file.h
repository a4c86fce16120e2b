// error.json, which a failing worker may leave (torch.distributed.elastic's @record, the SDK): read
// with distrust, because a worker may die while writing it; and written for the agent's own parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

namespace muster {

/// More is not read: a file this long is no error message.
inline constexpr std::size_t kMaxErrorFileBytes = 1 << 20;
/// How deep arrays and objects may nest in it.
inline constexpr int kMaxErrorFileDepth = 32;

struct ErrorRecord {
  std::string message;                      // One line, as a rule: "ValueError: boom".
  std::string traceback;                    // Python's, with newlines; empty: none.
  std::optional<std::int64_t> timestamp_s;  // Since the epoch; nothing if missing or absurd.
  std::optional<int> error_code;
  bool operator==(const ErrorRecord&) const = default;
};

/// Why a file holds no error that could be shown.
enum class ErrorFileDefect {
  Empty,
  Torn,  // Ends in the middle: its writer died, or the disk was full.
  NotJson,
  TooLarge,   // Over kMaxErrorFileBytes.
  TooDeep,    // Over kMaxErrorFileDepth.
  NoMessage,  // JSON, but not an object with a "message" of text or object.
};

std::string_view describe(ErrorFileDefect defect);

/// Takes every shape that torchrun reads, and those that make it crash. Never throws.
boost::system::result<ErrorRecord, ErrorFileDefect> read_error_file(std::string_view text);

/// A file as @record writes it, which any torchrun-like parent can read.
std::string write_error_file(const ErrorRecord& record);

/// What goes into the agent's own error file when a worker's was the first failure: the worker's
/// text with message.errorCode set (not if the message is a text, or `exit_code` is 0). Nothing if
/// the text is not readable as an error file.
std::optional<std::string> merge_error_file(std::string_view text, int exit_code);

}  // namespace muster
