// How muster's own lines look on stderr.

#pragma once

#include "launcher/argparse.h"

namespace muster {

/// torchrun's form, "W1121 09:08:26.123456 4711 muster] text", and its level: LOGLEVEL, a Python
/// level name in any case; WARNING if it is unset or unknown.
void set_up_logging(const Environment& environment);

/// Whether LOGLEVEL lets torchrun's INFO records of events through: they have a logger of their
/// own, whose level is INFO if the variable is unset.
bool shows_events(const Environment& environment);

}  // namespace muster
