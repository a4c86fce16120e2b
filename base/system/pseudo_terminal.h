// A terminal for a worker whose output goes to a terminal: muster keeps the worker's last lines,
// and the worker still has colours, progress bars and a width (isatty() is true).
#pragma once

#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

/// Both ends are close-on-exec and above 2.
struct PseudoTerminal {
  /// muster's end, non-blocking. A read fails with EIO once no process has the other.
  OwnedFd reader;
  /// The worker's stdout and stderr. It is nobody's controlling terminal.
  OwnedFd worker;
};

/// Makes a terminal with the settings and the size of `console`, which is one. It passes on each
/// byte as it is written: the console itself makes "\r\n" of "\n". Fails with an errno, as where no
/// devpts is mounted.
Result<PseudoTerminal> open_pseudo_terminal(int console);

/// Gives a worker's terminal, of which `reader` is muster's end, the size of the console. Does
/// nothing if either is no terminal.
void copy_terminal_size(int console, int reader);

}  // namespace muster
