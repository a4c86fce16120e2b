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

/// What a static node says about the job, so that nodes with another --nnodes are noticed. muster's
/// own: torchrun nodes neither write nor read it.
struct NodesClaim {
  int nodes = 0;  // --nnodes
  GroupRank group_rank = {};
  std::string host = {};  // For people.
};
/// {"nnodes": 2, "rank": 0, "host": "10.0.0.1"}
std::string encode_nodes_claim(const NodesClaim& claim);
boost::system::result<NodesClaim, RankMessageError> decode_nodes_claim(std::string_view text);

/// [base global rank, world size, base role rank, role world size]
std::string encode_assigned_ranks(const AssignedRanks& ranks);
boost::system::result<AssignedRanks, RankMessageError> decode_assigned_ranks(std::string_view text);

}  // namespace muster
