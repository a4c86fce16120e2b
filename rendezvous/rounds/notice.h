// Notices: a node will go at a deadline, and the nodes of its round are told, so that all can save.
//
// A node that will go is doomed. docs/rendezvous_rules.md, "Notices", has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace muster {

/// The reason of a notice. The sender cuts a longer one.
inline constexpr std::size_t kMaxNoticeReasonBytes = 256;
/// The longest notice of an operator: 30 days.
inline constexpr std::int64_t kMaxNoticeSeconds = 2'592'000;
/// Doomed nodes that one message names. Further ones are only counted.
inline constexpr std::size_t kMaxNoticeNodes = 16;
/// Ranges of doomed ranks in one message. A node that is doomed itself knows its own ranks.
inline constexpr std::size_t kMaxNoticeRanges = 32;
/// A node that has more time than this is taken into a round that would be too small without it.
inline constexpr Duration kDoomedRoundLeast = std::chrono::minutes(5);

/// What is known of a node that will go.
struct Doom {
  Instant deadline{};
  /// The deadline by the host's wall clock, in ms since 1970: for people, and for the record.
  std::int64_t deadline_ms = 0;
  std::string reason;
  /// The node was in the round, or was to be in it, when it got the notice. A spare can go without
  /// the others.
  bool in_job = false;
  /// The next round would be too small without the node, so the node is taken into it.
  bool is_needed = false;
  bool operator==(const Doom&) const = default;
};

/// The notice that the nodes of the running round get. Once they have got it, their workers may
/// save and end, so the round ends, also if all doomed nodes stay after all.
struct RoundNotice {
  Instant deadline{};  // The earliest of the doomed nodes.
  std::string reason;  // Of the node with that deadline.
  bool stops = true;   // The run ends with the round. False: the next round begins without them.
  std::vector<int> doomed;  // Their group ranks, in order.
  bool operator==(const RoundNotice&) const = default;
};

// --- events --------------------------------------------------------------------------------------

/// The node will go. It repeats this after each join and resume.
struct NodeNotified {
  ConnectionId from;
  Duration left{};  // The time until the deadline.
  std::string reason;
  std::int64_t deadline_ms = 0;  // Doom::deadline_ms. Not sent: the host sets it.
};
/// All workers of the node have answered the notice. Repeated after a resume in that round.
struct NodeSaved {
  ConnectionId from;
  std::int64_t round = 0;
};

// --- actions -------------------------------------------------------------------------------------

/// To a node of the running round: nodes of the round will go. Only to nodes whose hello says
/// `notices`.
struct PreemptionNotice {
  ConnectionId to;
  std::int64_t round = 0;
  Duration left{};
  std::string reason;
  std::vector<std::string> nodes;  // Doomed nodes, at most kMaxNoticeNodes.
  int doomed = 0;                  // The number of doomed nodes.
  /// The global ranks of their workers as ranges [first, last], at most kMaxNoticeRanges. Empty
  /// with a torchrun node in the round.
  std::vector<std::pair<int, int>> ranks;
  bool this_node = false;  // The receiver is doomed.
  bool stops = true;       // RoundNotice::stops.
};

}  // namespace muster
