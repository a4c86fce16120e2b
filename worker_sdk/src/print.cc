#include "muster/print.h"

#include <cstdio>

#include "muster/collectives.h"

namespace muster {
namespace {

// Writes the line in one call, so that it stays whole if another process shares the terminal.
void print_line(std::string text) {
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

void print_in_order(const std::string& text, const ProcessGroup& group) {
  group.torch_group();  // Throws if this process is not a member, before any member waits for it.
  for (int turn = 0; turn < group.size(); ++turn) {
    if (turn == group.rank()) print_line(text);
    barrier(group);
  }
}

void print_on_rank0(const std::string& text) {
  if (get_rank() <= 0) print_line(text);
}

}  // namespace muster
