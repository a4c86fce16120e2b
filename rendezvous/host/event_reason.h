// The reason in an event of a node, which the host passes on to all nodes of the run.
#pragma once

#include "rendezvous/messages/native_codec.h"

namespace muster {

/// Cuts the reason of an event to kMaxSharedReasonBytes, between two characters. A longer reason
/// then ends in "...".
void cut_reason(NativeRequest& request);

}  // namespace muster
