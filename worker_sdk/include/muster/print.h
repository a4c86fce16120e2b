// Ordered output of many processes.
#pragma once

#include <string>

#include "muster/process_group.h"

namespace muster {

/// Each process prints its text on its own stdout, with a newline, and flushes it. The processes
/// print one after the other, in the order of their ranks. All members must call it. If the
/// launcher merges the output of several nodes, the order holds only within each node.
/// (Python: a loop over ranks with a barrier in each turn.)
void print_in_order(const std::string& text, const ProcessGroup& group = {});

/// Prints the text on rank 0 of the job only, with a newline, and flushes it. One process or all
/// processes may call it. Without a process group, every caller prints.
/// (Python: if dist.get_rank() == 0: print(…).)
void print_on_rank0(const std::string& text);

}  // namespace muster
