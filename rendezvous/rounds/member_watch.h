// Which members are alive: leases, closed connections, join deadlines and pauses of this host; and
// the nodes that are lost again and again.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class MemberWatch {
 public:
  explicit MemberWatch(RunCore& run) : run_(run) {}

  void time_passed();
  void on(const ConnectionLost& event);
  /// This host was frozen for `length` until now and could not receive anything.
  void host_was_frozen(Duration length);
  void extend_deadlines_after_pause(Duration length);

  void bind(Member& member, ConnectionId connection);
  /// A sign of life.
  void touch(const Member& member);
  void remove(Member& member, std::string_view why = "it gave up");
  /// Removes the member, and restarts its round if it was needed there.
  void lose(Member& member, RestartCause cause, const std::string& what);

  bool hold_back(Member& member);
  void let_in_again(Member& member);
  bool let_in_if_needed();

 private:
  void take_absent();
  bool closed_with_all_others(const Member& member) const;
  bool address_has_newcomer(const Member& silent) const;
  void release_held();
  void join_deadlines();

  RunCore& run_;
};

}  // namespace muster
