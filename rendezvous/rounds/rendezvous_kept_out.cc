// Nodes that an operator keeps out of the rounds and lets in again.

#include <algorithm>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {
namespace {

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
}

}  // namespace

std::string Rendezvous::objection_to_node(const OperatorAsked& asked) const {
  using What = OperatorAsked::What;
  if (asked.node.empty() || asked.node.size() > kMaxNodeTextBytes || !is_plain(asked.node))
    return "a node's name, or a host's address, has 1 to " + std::to_string(kMaxNodeTextBytes) +
           " bytes, and no spaces";
  if (!run_) return "no muster node has been in it, and torchrun nodes cannot be told";
  if (closed_) return "a torchrun node has closed it: there will be no further round";
  if (asked.what == What::Allow) return objection_to_allowing(asked.node);
  bool found = false;
  for (const auto& [id, member] : members_) {
    if (!matches_node(asked.node, member.name)) continue;
    if (!member.native)
      return to_string(member.name) + " is a torchrun node, which cannot be told to stay out";
    found = true;
  }
  if (!found && asked.what == What::Drain)
    return "no node of the run has the name or the address " + asked.node +
           ": `musterctl nodes` shows both. `musterctl exclude` also works for nodes that have not "
           "joined yet";
  if (!kept_out_.has_room_for(asked.node))
    return std::to_string(kMaxKeptOut) +
           " nodes are kept out already: allow some of them first, or exclude whole hosts";
  return {};
}

/// A single node cannot be allowed while its whole host is kept out.
std::string Rendezvous::objection_to_allowing(const std::string& node) const {
  KeptOut after = kept_out_;
  after.remove(node);
  for (const auto& [id, member] : members_) {
    const auto still = matches_node(node, member.name) ? after.find(member.name) : std::nullopt;
    if (still) return still->node + " is kept out with all of its nodes: allow " + still->node;
  }
  return {};
}

void Rendezvous::keep_out(const std::string& node, KeptOutHow how) {
  operator_answer_ = describe_kept_out(node, how);
  kept_out_.add(node, how);
  excluded_may_work_ = true;
  changed();
  for (auto& [id, member] : members_) {
    if (!member.native || !matches_node(node, member.name)) continue;
    switch (member.place) {
      case Place::Participant:
        if (!complete()) move_out_if_kept_out(member);
        break;
      case Place::Waiting:
      case Place::Redundant:
      case Place::Standby:
      case Place::HeldBack:
        move_out_if_kept_out(member);
        break;
      case Place::Away:
      case Place::Restarting:  // Kept out when it joins again, after its workers have stopped.
      case Place::LeftOut:
      case Place::Finished:
      case Place::Resuming:
      case Place::KeptOut:
        break;
    }
  }
}

/// If the joining node is kept out, moves it to Place::KeptOut and returns true.
bool Rendezvous::move_out_if_kept_out(Member& member) {
  if (!kept_out_.find(member.name)) return false;
  if (member.place == Place::KeptOut) return true;
  members_.set_held(member, std::nullopt);
  members_.set_join_deadline(member, std::nullopt);
  members_.set_place(member, Place::KeptOut);
  return true;
}

/// Begins a restart if an excluded node is in the running round. Not if other nodes have finished:
/// they would not come back for another round. Returns whether a restart has begun.
bool Rendezvous::restart_without_excluded() {
  if (!excluded_may_work_ || !complete() || draining()) return false;
  excluded_may_work_ = false;
  if (kept_out_.empty() || closed_ || members_.counts().succeeded > 0) return false;
  const Member* excluded = members_.first_in(Place::Participant, [&](const Member& member) {
    const auto kept = member.native ? kept_out_.find(member.name) : std::nullopt;
    return kept && kept->how == KeptOutHow::Excluded;
  });
  if (excluded == nullptr) return false;
  begin_restart(RestartCause::Requested, operator_name(),
                "musterctl exclude " + to_string(excluded->name));
  return true;
}

bool Rendezvous::has_effect(const OperatorAsked& asked) const {
  return asked.what != OperatorAsked::What::Allow || KeptOut(kept_out_).remove(asked.node) ||
         !members_outside(asked.node).empty();
}

std::vector<NodeName> Rendezvous::members_outside(const std::string& node) const {
  std::vector<NodeName> outside;
  for (const auto& [id, member] : members_)
    if ((member.place == Place::KeptOut || member.place == Place::HeldBack) &&
        matches_node(node, member.name))
      outside.push_back(member.name);
  return outside;
}

void Rendezvous::allow(const std::string& node) {
  const bool removed = kept_out_.remove(node);
  const std::vector<NodeName> back = members_outside(node);
  for (const NodeName& name : back)
    if (Member* member = members_.named(name)) let_in_again(*member);
  // As for a newcomer: spares fill a first round that lacks nodes.
  if (!back.empty() && first_round() && run_)
    spares_step_in_ = later(now_, run().last_call_timeout);
  if (removed || !back.empty()) changed();
  if (!back.empty())
    operator_answer_ =
        "allowed; it joins again as any newcomer does, if --nnodes and --scale-policy have a "
        "place for it";
  else if (removed)
    operator_answer_ = "allowed; the next round takes it in as any other node";
  else
    operator_answer_ = "it was not kept out";
}

// --- for people ----------------------------------------------------------------------------------

/// The consequences of keeping `node` out, as text. Called before the change.
std::string Rendezvous::describe_kept_out(const std::string& node, KeptOutHow how) const {
  std::size_t known_here = 0, working = 0, others = 0;
  bool hosts = false;
  for (const auto& [id, member] : members_) {
    if (member.succeeded) continue;
    if (!matches_node(node, member.name)) {
      others += member.native && kept_out_.find(member.name) ? 0 : 1;
      continue;
    }
    ++known_here;
    hosts = hosts || member.hosts_rendezvous;
    working += member.place == Place::Participant && complete() ? 1 : 0;
  }
  const bool excluded = how == KeptOutHow::Excluded;
  std::string text;
  if (known_here == 0)
    text = "it is not in the run now, and will be kept out when it comes";
  else if (working == 0)
    text = "it waits outside the rounds from now on, or as soon as its workers have stopped";
  else if (!excluded)
    text =
        "it leaves at the next round, and the round that runs goes on with it until then "
        "(`musterctl restart` begins the next one now)";
  else if (members_.counts().succeeded > 0)
    text =
        "others have finished already, so the round that runs goes on with it; it is not taken "
        "into a further one";
  else
    text = "its workers are stopped now, and the others meet again without it";
  text += ". `musterctl allow` lets it in again";
  if (run_ && others < static_cast<std::size_t>(run_->min_nodes))
    text += "\nwarning: without it " + std::to_string(others) +
            (others == 1 ? " node is" : " nodes are") + " left, and --nnodes asks for at least " +
            std::to_string(run_->min_nodes) +
            ": a further round waits until another node comes or this one is allowed again";
  if (hosts)
    text +=
        "\nwarning: its muster hosts the rendezvous of the run: end that muster, and the run "
        "ends for all nodes";
  return text;
}

std::string Rendezvous::why_kept_out(const Member& member) const {
  const auto kept = kept_out_.find(member.name);
  if (!kept) return {};
  std::string text = "an operator has ";
  text += kept->how == KeptOutHow::Excluded ? "excluded" : "drained";
  text += " this node: it is in no round until `musterctl allow RUN " + kept->node +
          "` lets it in again";
  if (member.hosts_rendezvous)
    return text + "; it hosts the rendezvous, so the run ends if this muster does";
  return text + "; to end muster here (Ctrl-C) harms no other node";
}

}  // namespace muster
