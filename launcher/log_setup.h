// The format and the level of muster's own log lines on stderr.

#pragma once

#include "launcher/argparse.h"

namespace muster {

/// Sets torchrun's format, "W1121 09:08:26.123456 4711 muster] text", and torchrun's level:
/// LOGLEVEL, a Python level name in upper or lower case; WARNING if it is unset or unknown.
void set_up_logging(const Environment& environment);

/// Whether LOGLEVEL lets the INFO records of events through. As in torchrun, events have their own
/// logger, whose level is INFO if the variable is unset.
bool shows_events(const Environment& environment);

}  // namespace muster
