#include "rendezvous/rounds/operator_requests.h"

#include <string>
#include <vector>

#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/notices.h"
#include "rendezvous/rounds/operator_objections.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {

std::string OperatorRequests::keep_out(const std::string& node, KeptOutHow how) {
  std::string answer = describe_kept_out(node, how);
  run_.conduct.kept_out.add(node, how);
  run_.conduct.excluded_may_work = true;
  run_.changed();
  for (auto& [id, member] : run_.members) {
    if (!member.native || !matches_node(node, member.name)) continue;
    if (run_.can_be_moved_out(member)) move_out_if_kept_out(member);
  }
  return answer;
}

std::string OperatorRequests::allow(const std::string& node) {
  const bool removed = run_.conduct.kept_out.remove(node);
  const Notices::Withdrawn notice = Notices(run_).withdraw(node);
  const std::vector<NodeName> back = OperatorObjections(run_).members_outside(node);
  for (const NodeName& name : back)
    if (Member* member = run_.members.named(name)) MemberWatch(run_).let_in_again(*member);
  // As for a newcomer: spares fill a first round that lacks nodes.
  if (!back.empty() && run_.first_round() && run_.settings)
    run_.last_call.spares_step_in = later(run_.now, run_.known_settings().last_call_timeout);
  if (removed || notice.found || !back.empty()) run_.changed();
  if (!back.empty())
    return "allowed; it joins again as any newcomer does, if --nnodes and --scale-policy have a "
           "place for it";
  if (notice.restarts)
    return "allowed, and its notice is taken back: workers of the round may have saved and ended "
           "already, so the round restarts with it";
  if (removed || notice.found) return "allowed; the next round takes it in as any other node";
  return "it was not kept out";
}

/// The consequences of keeping `node` out, as text. Called before the change.
std::string OperatorRequests::describe_kept_out(const std::string& node, KeptOutHow how) const {
  std::size_t known_here = 0, working = 0, others = 0;
  bool hosts = false;
  for (const auto& [id, member] : run_.members) {
    if (member.succeeded) continue;
    if (!matches_node(node, member.name)) {
      others += member.native && run_.conduct.kept_out.find(member.name) ? 0 : 1;
      continue;
    }
    ++known_here;
    hosts = hosts || member.hosts_rendezvous;
    working += member.place == Place::Participant && run_.complete() ? 1 : 0;
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
  else if (run_.members.counts().succeeded > 0)
    text =
        "others have finished already, so the round that runs goes on with it; it is not taken "
        "into a further one";
  else
    text = "its workers are stopped now, and the others meet again without it";
  text += ". `musterctl allow` lets it in again";
  if (run_.settings && others < static_cast<std::size_t>(run_.settings->min_nodes))
    text += "\nwarning: without it " + std::to_string(others) +
            (others == 1 ? " node is" : " nodes are") + " left, and --nnodes asks for at least " +
            std::to_string(run_.settings->min_nodes) +
            ": a further round waits until another node comes or this one is allowed again";
  if (hosts)
    text +=
        "\nwarning: its muster hosts the rendezvous of the run: end that muster, and the run "
        "ends for all nodes";
  return text;
}

/// Begins a restart if an excluded node is in the running round. Not if other nodes have finished:
/// they would not come back for another round. Returns whether a restart has begun.
bool OperatorRequests::restart_without_excluded() {
  if (!run_.conduct.excluded_may_work || !run_.complete() || run_.draining()) return false;
  run_.conduct.excluded_may_work = false;
  if (run_.conduct.kept_out.empty() || run_.ending.closed || run_.members.counts().succeeded > 0)
    return false;
  const Member* excluded = run_.members.first_in(Place::Participant, [&](const Member& member) {
    const auto kept = member.native ? run_.conduct.kept_out.find(member.name) : std::nullopt;
    return kept && kept->how == KeptOutHow::Excluded;
  });
  if (excluded == nullptr) return false;
  RoundRules(run_).begin_restart(RestartCause::Requested, operator_name(),
                                 "musterctl exclude " + to_string(excluded->name));
  return true;
}

/// If the joining node is kept out, moves it to Place::KeptOut and returns true.
bool OperatorRequests::move_out_if_kept_out(Member& member) {
  if (!run_.conduct.kept_out.find(member.name)) return false;
  if (member.place == Place::KeptOut) return true;
  run_.members.set_held(member, std::nullopt);
  run_.members.set_join_deadline(member, std::nullopt);
  run_.members.set_place(member, Place::KeptOut);
  return true;
}

std::string OperatorRequests::on(const OperatorAsked& event) {
  using What = OperatorAsked::What;
  if (!OperatorObjections(run_).objection_to(event).empty()) return {};
  switch (event.what) {
    case What::Stop:
      RoundRules(run_).end_run(false, std::nullopt, "an operator has stopped it");
      return {};
    case What::Allow:
      return allow(event.node);
    case What::Drain: {
      Notices(run_).give(event);
      const std::string kept_out = keep_out(event.node, KeptOutHow::Drained);
      return event.notice ? Notices(run_).describe(event) : kept_out;
    }
    case What::Exclude:
      return keep_out(event.node, KeptOutHow::Excluded);
    case What::Restart:
      break;
  }
  if (run_.complete())
    RoundRules(run_).begin_restart(RestartCause::Requested, operator_name(), "musterctl restart");
  else
    run_.unseen.clear();  // The operator says that the silent nodes are dead.
  return {};
}

}  // namespace muster
