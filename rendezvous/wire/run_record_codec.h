// The records of runs as texts of JSON: what a run service's state keeps, whatever it is kept in.
//
// A reader takes fields that it does not know for those of a later muster, and leaves them out.
#pragma once

#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/core/run_record.h"

namespace muster {

struct RecordError {
  std::string reason;  // Which field, and what it should be.
};

std::string encode(const RunRecord& record);
std::string encode(const MemberRecord& record);
std::string encode(const EndedRun& run);

boost::system::result<RunRecord, RecordError> decode_run_record(std::string_view text);
boost::system::result<MemberRecord, RecordError> decode_member_record(std::string_view text);
boost::system::result<EndedRun, RecordError> decode_ended_run(std::string_view text);

}  // namespace muster
