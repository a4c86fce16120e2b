// What agents tell each other through the store to number their workers, as torchrun 2.13 writes it
// (elastic/agent/server/api.py): JSON under role_info/I and assigned_ranks/I.
#pragma once

#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "agent/core/ranks.h"

namespace muster {

/// Why a message is refused: a sentence without its end, "rank is not a whole number".
struct RankMessageError {
  std::string reason;
};

/// {"role": "default", "rank": 0, "local_world_size": 1}
std::string encode_role_info(const RoleInfo& info);
boost::system::result<RoleInfo, RankMessageError> decode_role_info(std::string_view text);

/// [base global rank, world size, base role rank, role world size]
std::string encode_assigned_ranks(const AssignedRanks& ranks);
boost::system::result<AssignedRanks, RankMessageError> decode_assigned_ranks(std::string_view text);

}  // namespace muster
