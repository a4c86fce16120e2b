// What the host changes in an event of a node before the rules get it: it cuts the reason, which it
// passes on to all nodes of the run, and adds what it knows itself.
#pragma once

#include <cstdint>

#include "rendezvous/messages/native_codec.h"

namespace muster {

/// Cuts the reason of an event to kMaxSharedReasonBytes, between two characters. A longer reason
/// then ends in "...".
void cut_reason(NativeRequest& request);

/// Fills in what a node's messages do not have, because its hello or the host's clock says it.
struct EventFacts {
  bool resumes = false;
  bool takes_notices = false;
  std::int64_t wall_ms = 0;  // Now, since 1970.
};
void add_facts(NativeRequest& request, const EventFacts& facts);

}  // namespace muster
