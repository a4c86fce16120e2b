// The records of runs as JSON text, for every kind of state that a run service can have.
//
// A reader ignores unknown fields: a later muster may have written them.
#pragma once

#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/rounds/run_record.h"

namespace muster {

struct RecordError {
  std::string reason;  // Names the wrong field and the expected value.
};

std::string encode(const RunRecord& record);
std::string encode(const MemberRecord& record);
std::string encode(const EndedRun& run);

boost::system::result<RunRecord, RecordError> decode_run_record(std::string_view text);
boost::system::result<MemberRecord, RecordError> decode_member_record(std::string_view text);
boost::system::result<EndedRun, RecordError> decode_ended_run(std::string_view text);

}  // namespace muster
