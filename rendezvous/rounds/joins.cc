#include "rendezvous/rounds/joins.h"

#include <algorithm>
#include <limits>
#include <string>

#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/notices.h"
#include "rendezvous/rounds/operator_requests.h"
#include "rendezvous/rounds/restored_run.h"
#include "rendezvous/rounds/resuming.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {
namespace {

/// Whether the node knows this round or a later one. A node that got the round from an earlier host
/// may have another number for it: then the generation decides.
bool knows_round(const NodeJoined& node, std::int64_t round, std::int64_t generation) {
  return node.last_round >= round || (node.generation > 0 && node.generation >= generation);
}

}  // namespace

void Joins::on(const NodeJoined& sent) {
  NodeJoined event = sent;
  event.name = name_for(sent);
  if (sent.life != 0 && run_.setup.life != 0 && sent.life != run_.setup.life) event.last_round = -1;
  if (run_.ending.was_missed_by(event)) return run_.send_outcome(event.from);
  if (auto refusal = refusal_of(event)) {
    // The network is up: the nodes of a restored run could be back, too.
    if (refusal->why == JoinRefused::Why::Settings) RestoredRun(run_).first_is_back();
    if (refusal->settings_differ && run_.settings) {
      const SettingsDifference found = difference(event.run, *run_.settings);
      run_.note_refusal(to_string(event.name) + " has " + found.here + ", and " +
                        run_.settings_from + " has " + found.there);
    }
    return run_.send(*std::move(refusal));
  }
  const bool of_recovery = run_.recovery && run_.recovery->was_in(sent);
  const Member* before = run_.members.named(event.name);
  const bool is_new = before == nullptr;
  const bool reconnected =
      !is_new && (before->connection != event.from || before->rejoins == event.from);
  Member* member = &register_member(event);
  member->rejoins.reset();
  member->saved_round = -1;
  if (of_recovery) Resuming(run_).cancel_recovery("node " + to_string(event.name) + " has left it");
  Resuming(run_).note_return(event);
  update_unseen_workers(event);
  if (is_new) compare_command(event);
  if (!is_new) return join_again(*member, event, reconnected);
  if (OperatorRequests(run_).move_out_if_kept_out(*member)) return;
  if (!MemberWatch(run_).hold_back(*member))
    run_.members.set_place(*member, event.spare ? Place::Standby : Place::Redundant);
  // If no other node comes, spares fill a first round that lacks nodes.
  if (run_.first_round())
    run_.last_call.spares_step_in = later(run_.now, run_.known_settings().last_call_timeout);
}

/// The node's own name; if another instance has that name, the name with the next free number.
NodeName Joins::name_for(const NodeJoined& event) const {
  NodeName name = event.name;
  if (event.instance.empty()) return name;  // An older muster sends no instance.
  const Member* member = run_.members.of_instance(event.instance);
  if (member != nullptr && member->name.addr == name.addr && member->name.pid == name.pid)
    return member->name;
  const auto is_taken = [&] {
    const Member* other = run_.members.named(name);
    return other != nullptr && other->native && !other->instance.empty() &&
           other->instance != event.instance;
  };
  if (!is_taken()) return name;
  // Start after the largest number in use: a thousand nodes of one name need no search each.
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t largest = run_.members.largest_local_id(name);
  name.local_id = largest >= 0 && largest < kLargest ? largest + 1 : 0;
  for (int tries = 0; tries < kMaxNameTries && is_taken(); ++tries)
    ++name.local_id;
  return name;
}

/// `resumes`: the node is in the round that is being taken up again. It may go on in a closed run.
std::optional<JoinRefused> Joins::refusal_of(const NodeJoined& event, bool resumes) const {
  using Why = JoinRefused::Why;
  const std::string who = to_string(event.name);
  const auto refuse = [&](Why why, std::string text) {
    return JoinRefused{event.from, why, std::move(text)};
  };
  if (event.protocol_version != kNativeProtocolVersion)
    return refuse(Why::Version, who + " runs muster " + event.muster_version + " (protocol " +
                                    std::to_string(event.protocol_version) +
                                    "), the rendezvous speaks protocol " +
                                    std::to_string(kNativeProtocolVersion));
  if (run_.ending.closed && !resumes)
    return refuse(Why::Closed,
                  "the run is over" + (run_.ending.outcome && !run_.ending.outcome->why.empty()
                                           ? ": " + run_.ending.outcome->why
                                           : std::string()));
  if (run_.settings && !agree(*run_.settings, event.run)) {
    const SettingsDifference found = difference(event.run, *run_.settings);
    return JoinRefused{event.from, Why::Settings,
                       "settings differ: this node (" + who + ") has " + found.here + ", and " +
                           run_.settings_from + " has " + found.there + ": give all nodes the same",
                       /*settings_differ=*/true};
  }
  const auto most_nodes = std::min<std::int64_t>(event.run.max_nodes, std::int64_t{kMaxMembers});
  const auto most_workers = std::min<std::int64_t>(
      kMaxLocalWorldSize, kMaxRoundWorkers / std::max<std::int64_t>(most_nodes, 1));
  if (event.local_world_size < 1 || event.local_world_size > most_workers)
    return refuse(Why::Settings, who + " brings " + std::to_string(event.local_world_size) +
                                     " workers: with up to " + std::to_string(most_nodes) +
                                     " nodes, 1 to " + std::to_string(most_workers) +
                                     " are possible");
  const Member* other = run_.members.named(event.name);
  if (other == nullptr && run_.members.size() >= run_.setup.members)
    return refuse(Why::TooManyNodes,
                  "the run has " + std::to_string(run_.setup.members) + " nodes");
  if (other != nullptr && !other->native)
    return refuse(Why::NameTaken, "a torchrun node is called " + who);
  if (other != nullptr && other->instance != event.instance)
    return refuse(Why::NameTaken,
                  "another node is called " + who +
                      ", and two nodes of an older muster at one address cannot be distinguished: "
                      "upgrade one of them");
  const Member* bound = run_.members.from(event.from);
  if (bound != nullptr && bound->name != event.name)
    return refuse(Why::NameTaken,
                  "this connection belongs to " + to_string(bound->name) + ", not " + who);
  return std::nullopt;
}

/// Adds the node, or updates it if it is a member already.
Member& Joins::register_member(const NodeJoined& event) {
  if (!run_.settings) {
    run_.settings = event.run;
    run_.settings_from = to_string(event.name);
  }
  if (!run_.settings->on_notice) run_.settings->on_notice = event.run.on_notice;
  if (!run_.settings->restart_policy) run_.settings->restart_policy = event.run.restart_policy;
  if (event.has_progress_file) run_.restarts.ledger.expect_progress();
  Member* member = run_.members.named(event.name);
  if (member == nullptr) member = &run_.members.add(event.name, true);
  if (member->instance != event.instance) member->came_at = run_.now;
  MemberWatch(run_).bind(*member, event.from);
  run_.members.set_instance(*member, event.instance);
  member->resumes = event.resumes && !event.instance.empty();
  member->proxied = event.proxied;
  member->takes_notices = event.takes_notices;
  member->tells_progress = event.run.restart_policy.has_value();
  member->local_world_size = event.local_world_size;
  member->role = event.role;
  member->preferred_rank = event.preferred_rank;
  member->spare = event.spare;
  member->hosts_rendezvous = event.hosts_rendezvous;
  // A wrong number of a node must not use up the range of the type.
  if (run_.is_credible(event.generation))
    run_.generations.reported = std::max(run_.generations.reported, event.generation);
  run_.generations.highest = std::max(run_.generations.highest, run_.generations.reported);
  if (event.generation > run_.setup.ended_generation && run_.is_credible(event.generation))
    RoundRules(run_).raise_restart_count(event.restart_count);
  note_command(event, member->name);
  MemberWatch(run_).touch(*member);
  run_.members.mark_unrecorded(member->name);
  return *member;
}

/// A join may show that workers of the last round have stopped: a node joins only after it has
/// stopped its workers. A new agent at the address of a lost member shows that this machine reaches
/// the host, so the silent agent there is dead.
void Joins::update_unseen_workers(const NodeJoined& event) {
  const bool was_in_it = knows_round(event, run_.unseen.round(), run_.unseen.generation());
  const bool in_its_place =
      std::any_of(run_.round.lost.begin(), run_.round.lost.end(), [&](const LostNode& node) {
        return node.name.addr == event.name.addr && node.proxied == event.proxied;
      });
  if (!run_.complete() && (was_in_it || in_its_place)) run_.unseen.clear();
}

void Joins::join_again(Member& member, const NodeJoined& event, bool reconnected) {
  // The node sent this join before it got the messages about the round or the restart, so the join
  // is outdated. But on a new connection the node cannot get the messages that were sent on the old
  // one: send them again.
  if (member.place == Place::Participant &&
      (!run_.complete() || !knows_round(event, run_.round.number, run_.round.generation))) {
    if (run_.complete() && reconnected && run_.preparing() && member.rank == 0)
      RoundRules(run_).prepare_round();
    if (run_.complete() && reconnected && !run_.preparing())
      run_.send(RoundRules(run_).announcement(member, event.from));
    return;
  }
  if (event.last_round < member.restarted_round && !reconnected) return;
  if (member.place == Place::Participant)
    RoundRules(run_).begin_restart(RestartCause::Requested, event.name, "it joined again");
  if (run_.ending.outcome || member.erased) return;  // The restart may have ended the run.
  if (member.place == Place::Restarting) run_.unseen.clear();
  run_.members.set_succeeded(member, false);
  run_.members.mark_unrecorded(member.name);
  if (OperatorRequests(run_).move_out_if_kept_out(member)) return;
  if (Notices(run_).move_out_if_doomed(member)) return;
  if (member.place == Place::Restarting || member.place == Place::Resuming) {
    run_.members.set_place(member, Place::Waiting);
    return run_.members.set_join_deadline(member,
                                          later(run_.now, run_.known_settings().join_timeout));
  }
  // A node that was left out of a round, or had finished, comes back as a newcomer. In any other
  // place this join repeats an earlier one.
  if (member.place == Place::LeftOut || member.place == Place::Finished)
    run_.members.set_place(member, event.spare ? Place::Standby : Place::Redundant);
}

/// Called for each join and resume that is accepted.
void Joins::note_command(const NodeJoined& event, const NodeName& name) {
  if (event.command.empty()) return;
  const auto found = run_.conduct.first_commands.find(event.role);
  if (found == run_.conduct.first_commands.end()) {
    if (run_.conduct.first_commands.size() < kMaxComparedRoles)
      run_.conduct.first_commands[event.role] = {.digest = event.command, .node = name};
  } else if (run_.members.named(found->second.node) == nullptr) {
    // Nodes with a new command may replace the old ones, one by one.
    found->second = {.digest = event.command, .node = name};
  }
}

/// Called for each new node: a node that joins again was compared before. A difference is no reason
/// to refuse the node: it may be in an argument that each node has of its own.
void Joins::compare_command(const NodeJoined& event) {
  // All nodes of an earlier job are away, after a power cut for example.
  if (!event.command.empty() && run_.restarts.used > 0 && event.generation == 0 &&
      run_.members.counts().connected == 1)
    run_.send(
        Notice{event.from, "nodes that are not here now have begun this run, and " +
                               std::to_string(run_.restarts.used) + " of its " +
                               std::to_string(run_.known_settings().max_restarts) +
                               " restarts (--max-restarts) are used already; a new job needs an "
                               "--rdzv-id of its own, or the end of that run (musterctl stop)"});
  const auto found = run_.conduct.first_commands.find(event.role);
  if (event.command.empty() || found == run_.conduct.first_commands.end()) return;
  FirstCommand& first = found->second;
  const Member* other = run_.members.named(first.node);
  if (first.digest == event.command || first.node == event.name || other == nullptr) return;
  const std::string text =
      "node " + to_string(event.name) + " runs another command than node " + to_string(first.node) +
      ": if they belong to two jobs, these have become one; give each job an --rdzv-id of its own";
  run_.send(Notice{event.from, text});
  if (first.knows) return;
  first.knows = true;
  if (other->connection) run_.send(Notice{*other->connection, text});
  run_.send(CommandsDiffer{event.name, first.node});
}

}  // namespace muster
