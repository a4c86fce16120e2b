// How texts from outside are cut before they are sent or recorded, and the rules for fields.
#pragma once

#include <string>

#include "base/json_fields.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/notice.h"

namespace muster {

// The writer replaces each byte that is not UTF-8 by a character of three bytes, so less than the
// limit is kept of such a text.

std::string cut_native(const std::string& text);
std::string cut_notice(const std::string& text);
std::string cut_report(const std::string& text);
/// Keeps the end of the text.
std::string cut_report_front(const std::string& text);

inline constexpr TextRule kReason{kMaxNativeTextBytes, cut_native};
inline constexpr TextRule kNoticeReason{kMaxNoticeReasonBytes, cut_notice};
inline constexpr TextRule kReportText{kMaxReportTextBytes, cut_report};
inline constexpr TextRule kReportEnd{kMaxReportTextBytes, cut_report_front};

}  // namespace muster
