// Printing from many processes without a jumble.
#pragma once

#include <string>

#include "muster/process_group.h"

namespace muster {

/// Every process's text, one after the other in the order of their ranks, on this process's own
/// stdout, each with a newline at its end and flushed. All members must call it. With launchers
/// that merge the output of several nodes the order holds per node only.
/// (In Python: a loop over ranks with a barrier in each turn.)
void print_in_order(const std::string& text, const ProcessGroup& group = {});

/// The text on rank 0 of the job only, with a newline, flushed. One process or all may call it;
/// without a process group every caller prints. (In Python: if dist.get_rank() == 0: print(…).)
void print_on_rank0(const std::string& text);

}  // namespace muster
