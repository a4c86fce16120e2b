#include "rendezvous/rounds/operator_objections.h"

#include <algorithm>

#include "rendezvous/rounds/kept_out.h"

namespace muster {
namespace {

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
}

}  // namespace

std::string OperatorObjections::objection_to(const OperatorAsked& asked) const {
  using What = OperatorAsked::What;
  if (run_.ending.outcome) return "the run has ended";
  if (asked.what != What::Restart && asked.what != What::Stop) return objection_to_node(asked);
  if (run_.members.counts().natives == 0)
    return "no muster node is in it, and torchrun nodes take no requests";
  const bool restart = asked.what == What::Restart;
  if (restart && run_.unseen.may_run(run_.now)) return {};
  if (restart && run_.phase() != RunPhase::Running && run_.phase() != RunPhase::Preparing)
    return "no round runs: its nodes are on their way into one already";
  if (restart && run_.ending.closed)
    return "a torchrun node has closed it: there will be no further round";
  const std::size_t left = run_.members.size() - run_.members.counts().succeeded;
  if (restart && run_.members.counts().succeeded > 0 &&
      left < static_cast<std::size_t>(run_.known_settings().min_nodes))
    return "the workers of " + std::to_string(run_.members.counts().succeeded) +
           " of its nodes have finished, and without these nodes no round can be complete";
  return {};
}

std::string OperatorObjections::objection_to_node(const OperatorAsked& asked) const {
  using What = OperatorAsked::What;
  if (asked.node.empty() || asked.node.size() > kMaxNodeTextBytes || !is_plain(asked.node))
    return "a node's name, or a host's address, has 1 to " + std::to_string(kMaxNodeTextBytes) +
           " bytes, and no spaces";
  if (!run_.settings) return "no muster node has been in it, and torchrun nodes take no requests";
  if (run_.ending.closed) return "a torchrun node has closed it: there will be no further round";
  if (asked.what == What::Allow) return objection_to_allowing(asked.node);
  bool found = false;
  for (const auto& [id, member] : run_.members) {
    if (!matches_node(asked.node, member.name)) continue;
    if (!member.native)
      return to_string(member.name) +
             " is a torchrun node, which takes no requests: stop it on its machine";
    found = true;
  }
  if (!found && asked.what == What::Drain)
    return "no node of the run has the name or the address " + asked.node +
           ": `musterctl nodes` shows both. `musterctl exclude` also works for nodes that have not "
           "joined yet";
  if (!run_.conduct.kept_out.has_room_for(asked.node))
    return std::to_string(kMaxKeptOut) +
           " nodes are kept out already: allow some of them first, or exclude whole hosts";
  return {};
}

/// A single node cannot be allowed while its whole host is kept out.
std::string OperatorObjections::objection_to_allowing(const std::string& node) const {
  KeptOut after = run_.conduct.kept_out;
  after.remove(node);
  for (const auto& [id, member] : run_.members) {
    const auto still = matches_node(node, member.name) ? after.find(member.name) : std::nullopt;
    if (still) return still->node + " is kept out with all of its nodes: allow " + still->node;
  }
  return {};
}

bool OperatorObjections::has_effect(const OperatorAsked& asked) const {
  return asked.what != OperatorAsked::What::Allow ||
         KeptOut(run_.conduct.kept_out).remove(asked.node) ||
         !members_outside(asked.node).empty() || is_doomed(asked.node);
}

bool OperatorObjections::is_doomed(const std::string& node) const {
  const auto doomed = run_.members.doomed();
  return std::any_of(doomed.begin(), doomed.end(),
                     [&](const Member* member) { return matches_node(node, member->name); });
}

std::vector<NodeName> OperatorObjections::members_outside(const std::string& node) const {
  std::vector<NodeName> outside;
  for (const auto& [id, member] : run_.members)
    if ((member.place == Place::KeptOut || member.place == Place::HeldBack) &&
        matches_node(node, member.name))
      outside.push_back(member.name);
  return outside;
}

}  // namespace muster
