#include "agent/core/line_assembler.h"

#include <algorithm>

#include "base/check.h"

namespace muster {

LineAssembler::LineAssembler(LineLimits limits) : limits_(limits) {
  MUSTER_CHECK(limits_.max_line_bytes > 0);
}

void LineAssembler::feed(std::string_view bytes, Instant now, LineSink& sink) {
  const bool any_return = bytes.find('\r') != std::string_view::npos;
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) return add(bytes, now, sink);
    const std::string_view line = bytes.substr(0, newline);
    // The fast path, for nearly all lines: the line is emitted from the caller's buffer.
    if (between_lines() && line.size() < limits_.max_line_bytes &&
        !(any_return && line.find('\r') != std::string_view::npos)) {
      sink.append({line});
    } else {
      add(line, now, sink);
      end_line(sink);
    }
    bytes.remove_prefix(newline + 1);
  }
}

void LineAssembler::add(std::string_view bytes, Instant now, LineSink& sink) {
  while (!bytes.empty()) {
    const std::size_t carriage_return = bytes.find('\r');
    add_plain(bytes.substr(0, carriage_return), now, sink);
    if (carriage_return == std::string_view::npos) return;
    returned_ = true;
    bytes.remove_prefix(carriage_return + 1);
  }
}

void LineAssembler::add_plain(std::string_view bytes, Instant now, LineSink& sink) {
  if (bytes.empty()) return;
  if (returned_) {  // The new bytes overwrite the line.
    segment_.clear();
    continues_ = returned_ = false;
  }
  last_byte_ = now;
  while (!bytes.empty()) {
    const std::size_t room = limits_.max_line_bytes - segment_.size();
    const std::size_t taken = std::min(room, bytes.size());
    segment_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (!held_since_) held_since_ = now;
    if (segment_.size() == limits_.max_line_bytes) emit_unfinished(sink);
  }
}

void LineAssembler::end_line(LineSink& sink) {
  sink.append({segment_, !continues_, true});
  segment_.clear();
  continues_ = returned_ = false;
  held_since_.reset();
}

void LineAssembler::emit_unfinished(LineSink& sink) {
  sink.append({segment_, !continues_, false});
  segment_.clear();
  continues_ = true;
  held_since_.reset();
}

void LineAssembler::on_time(Instant now, LineSink& sink) {
  if (const auto deadline = next_deadline(); deadline && now >= *deadline) emit_unfinished(sink);
}

void LineAssembler::expect_more(Instant now) {
  last_byte_ = now;
}

void LineAssembler::finish(LineSink& sink) {
  if (!segment_.empty() || continues_) end_line(sink);
  returned_ = false;
}

std::optional<Instant> LineAssembler::next_deadline() const {
  if (!held_since_) return std::nullopt;
  return std::min(last_byte_ + limits_.quiet, *held_since_ + limits_.hold);
}

}  // namespace muster
