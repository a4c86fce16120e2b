#include "agent/core/rank_messages.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "agent/core/strict_json.h"
#include "base/bounded_json.h"
#include "base/json_integer.h"

namespace muster {
namespace {

using nlohmann::json;

// The messages of muster and torchrun are flat, and have at most four values.
constexpr JsonLimits kLimits{.values = 64, .depth = 4};

// JSON has no form for a name that is not UTF-8. Invalid bytes are replaced; the name is not
// refused.
std::string json_text(const std::string& text) {
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace

std::string encode_role_info(const RoleInfo& info) {
  return R"({"role": )" + json_text(info.role) + R"(, "rank": )" +
         std::to_string(info.group_rank.value) + R"(, "local_world_size": )" +
         std::to_string(info.local_world_size) + "}";
}

boost::system::result<RoleInfo, RankMessageError> decode_role_info(std::string_view text) {
  // Python may have written a role that is not UTF-8.
  json message;
  if (parse_bounded_json(strict_json(text), kLimits, message) || !message.is_object())
    return RankMessageError{"it is not a JSON object"};
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return RankMessageError{"role is not a text"};
  const auto rank = message.find("rank");
  const auto size = message.find("local_world_size");
  const auto group_rank =
      rank == message.end() ? std::nullopt : integer_within(*rank, 0, kMaxWorldSize);
  if (!group_rank) return RankMessageError{"rank is not a whole number in its range"};
  const auto workers =
      size == message.end() ? std::nullopt : integer_within(*size, 1, kMaxWorldSize);
  if (!workers) return RankMessageError{"local_world_size is not a whole number in its range"};
  return RoleInfo{{*group_rank}, role->get<std::string>(), *workers};
}

std::string encode_nodes_claim(const NodesClaim& claim) {
  return R"({"nnodes": )" + std::to_string(claim.nodes) + R"(, "rank": )" +
         std::to_string(claim.group_rank.value) + R"(, "host": )" + json_text(claim.host) + "}";
}

boost::system::result<NodesClaim, RankMessageError> decode_nodes_claim(std::string_view text) {
  json message;
  if (parse_bounded_json(text, kLimits, message) || !message.is_object())
    return RankMessageError{"it is not a JSON object"};
  const auto number = [&message](const char* name, int smallest) {
    const auto found = message.find(name);
    return found == message.end() ? std::nullopt : integer_within(*found, smallest, kMaxWorldSize);
  };
  const auto nodes = number("nnodes", 1);
  const auto rank = number("rank", 0);
  const auto host = message.find("host");
  if (!nodes) return RankMessageError{"nnodes is not a whole number in its range"};
  if (!rank) return RankMessageError{"rank is not a whole number in its range"};
  if (host == message.end() || !host->is_string()) return RankMessageError{"host is not a text"};
  return NodesClaim{*nodes, {*rank}, host->get<std::string>()};
}

std::string encode_assigned_ranks(const AssignedRanks& ranks) {
  return "[" + std::to_string(ranks.base_global_rank.value) + ", " +
         std::to_string(ranks.world_size) + ", " + std::to_string(ranks.base_role_rank) + ", " +
         std::to_string(ranks.role_world_size) + "]";
}

boost::system::result<AssignedRanks, RankMessageError> decode_assigned_ranks(
    std::string_view text) {
  json message;
  if (parse_bounded_json(text, kLimits, message) || !message.is_array() || message.size() != 4)
    return RankMessageError{"it is not a JSON array of four numbers"};
  const auto base = integer_within(message[0], 0, kMaxWorldSize - 1);
  const auto world = integer_within(message[1], 1, kMaxWorldSize);
  const auto role_base = integer_within(message[2], 0, kMaxWorldSize - 1);
  const auto role_world = integer_within(message[3], 1, kMaxWorldSize);
  if (!base || !world || !role_base || !role_world || *base >= *world || *role_base >= *role_world)
    return RankMessageError{"its numbers are no ranks"};
  return AssignedRanks{{*base}, *world, *role_base, *role_world};
}

}  // namespace muster
