#include "agent/core/line_merger.h"

namespace muster {

void LineMerger::add(int stream, const LinePrefix& prefix, const LinePiece& piece,
                     std::string_view time, std::string& out) {
  const bool continues = !piece.begins && open_ == stream;
  // Only the newline is left of a line that another one interrupted. It was already ended then.
  if (!piece.begins && !continues && piece.text.empty() && piece.ends) return;
  if (!continues) {
    if (open_) out += '\n';
    prefix.append_to(out, time);
  }
  out += piece.text;
  if (piece.ends) {
    out += '\n';
    open_.reset();
  } else {
    open_ = stream;
  }
}

void LineMerger::add_verbatim(std::string_view bytes, std::string& out) {
  if (bytes.empty()) return;
  if (open_ && *open_ != kVerbatim) out += '\n';
  out += bytes;
  open_.reset();
  if (bytes.back() != '\n') open_ = kVerbatim;
}

void LineMerger::add_own(std::string_view lines, std::string& out) {
  if (open_) out += '\n';
  out += lines;
  open_.reset();
}

}  // namespace muster
