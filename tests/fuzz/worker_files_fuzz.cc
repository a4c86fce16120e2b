// libFuzzer: texts that workers leave for their agent (error.json, the lines of file timers), and
// the messages in which nodes exchange their ranks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/error_file.h"
#include "agent/core/rank_messages.h"
#include "agent/core/strict_json.h"
#include "agent/core/timer_table.h"

namespace {

using namespace muster;

void read_error(std::string_view text) {
  const std::string strict = strict_json(text);
  if (strict_json(strict) != strict) std::abort();
  const auto record = read_error_file(text);
  const auto merged = merge_error_file(text, 3);
  if (!record) {
    if (merged || describe(record.error()).empty()) std::abort();
    return;
  }
  if (!merged || !read_error_file(*merged)) std::abort();
  if (!read_error_file(write_error_file(*record))) std::abort();
}

std::vector<std::string> lines_in_pieces(std::string_view text, std::size_t piece) {
  TimerLines lines;
  std::vector<std::string> all;
  while (!text.empty()) {
    const std::string_view head = text.substr(0, piece);
    text.remove_prefix(head.size());
    for (std::string& line : lines.feed(head))
      all.push_back(std::move(line));
  }
  return all;
}

void read_timers(std::string_view text) {
  const auto lines = lines_in_pieces(text, text.size());
  if (lines != lines_in_pieces(text, 7))
    std::abort();  // The result must not depend on how the pipe cuts the lines.
  TimerTable table;
  for (const std::string& line : lines) {
    const auto request = parse_timer_request(line);
    if (request) table.apply(*request, {}, 1e9);
  }
  table.expire(Instant(std::chrono::hours(1)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_error(text);
  if (size > 0) read_timers(text);
  if (const auto info = decode_role_info(text))
    if (!decode_role_info(encode_role_info(*info))) std::abort();
  if (const auto ranks = decode_assigned_ranks(text))
    if (!decode_assigned_ranks(encode_assigned_ranks(*ranks))) std::abort();
  return 0;
}
