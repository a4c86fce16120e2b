// The messages with which agents number their workers through the store, as torchrun 2.13 writes
// them (elastic/agent/server/api.py): JSON under role_info/I and assigned_ranks/I.
#pragma once

#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "agent/core/ranks.h"

namespace muster {

/// Why a message is refused: a clause without a full stop, "rank is not a whole number".
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
