#include "rendezvous/messages/text_cuts.h"

#include <algorithm>
#include <string_view>

#include "base/cut_text.h"
#include "pickle/utf8.h"

namespace muster {
namespace {

std::size_t room_for(std::string_view text, std::size_t most) {
  return is_utf8(text) ? most : most / 3;
}

bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80;
}

}  // namespace

std::string cut_native(const std::string& text) {
  std::string start = text.substr(0, kMaxNativeTextBytes);
  for (int dropped = 0; dropped < 4 && start.size() + 4 > kMaxNativeTextBytes; ++dropped) {
    if (is_utf8(start)) return start;
    start.pop_back();  // The cut may have divided the last character.
  }
  if (!is_utf8(start)) start.resize(std::min(start.size(), kMaxNativeTextBytes / 3));
  return start;
}

std::string cut_notice(const std::string& text) {
  std::string reason = text;
  cut_text(reason, room_for(text, kMaxNoticeReasonBytes));
  return reason;
}

std::string cut_report(const std::string& text) {
  std::size_t end = std::min(text.size(), room_for(text, kMaxReportTextBytes));
  while (end > 0 && end < text.size() && is_utf8(text) && is_inside_character(text[end]))
    --end;
  return text.substr(0, end);
}

std::string cut_report_front(const std::string& text) {
  std::size_t begin = text.size() - std::min(text.size(), room_for(text, kMaxReportTextBytes));
  while (begin > 0 && begin < text.size() && is_utf8(text) && is_inside_character(text[begin]))
    ++begin;
  return text.substr(begin);
}

}  // namespace muster
