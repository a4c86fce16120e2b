// Reads and writes error.json. A failing worker may leave such a file (torch.distributed.elastic's
// @record, the SDK). Its content is not trusted, because a worker may die while writing it. The
// agent writes such a file for its own parent process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>
#include <nlohmann/json_fwd.hpp>

namespace muster {

/// Larger files are not read: they cannot be error messages.
inline constexpr std::size_t kMaxErrorFileBytes = 1 << 20;
/// The maximum nesting of arrays and objects in the file.
inline constexpr std::size_t kMaxErrorFileDepth = 32;
/// Values in the file, including objects and arrays.
inline constexpr std::size_t kMaxErrorFileValues = 10'000;

struct ErrorRecord {
  std::string message;                      // Usually one line: "ValueError: boom".
  std::string traceback;                    // Python's traceback, with newlines. Empty: none.
  std::optional<std::int64_t> timestamp_s;  // Since the epoch. Empty if missing or implausible.
  std::optional<int> error_code;
  bool operator==(const ErrorRecord&) const = default;
};

/// Why a file has no error that could be shown.
enum class ErrorFileDefect {
  Empty,
  Torn,  // Incomplete: its writer died, or the disk was full.
  NotJson,
  TooLarge,       // More than kMaxErrorFileBytes.
  TooDeep,        // Nested deeper than kMaxErrorFileDepth.
  TooManyValues,  // More than kMaxErrorFileValues.
  NoMessage,      // JSON, but not an object whose "message" is a text or an object.
};

std::string_view describe(ErrorFileDefect defect);

/// Accepts every form that torchrun reads, and also forms that make torchrun crash. Never throws.
boost::system::result<ErrorRecord, ErrorFileDefect> read_error_file(std::string_view text);

/// The whole file as JSON. False if read_error_file() would return a defect.
bool parse_error_file(std::string_view text, nlohmann::ordered_json& json);

/// Returns a file in the form that @record writes, which any parent like torchrun can read.
std::string write_error_file(const ErrorRecord& record);

/// Returns the content of the agent's own error file if a worker's error file explains the first
/// failure: the worker's text with message.errorCode set (not if the message is a text, or
/// `exit_code` is 0). Empty if the text is not a readable error file.
std::optional<std::string> merge_error_file(std::string_view text, int exit_code);

}  // namespace muster
