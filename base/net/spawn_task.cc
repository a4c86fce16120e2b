#include "base/net/spawn_task.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "base/system/wait_for_room.h"

namespace muster {
namespace {

constexpr int kReaderLimitMs = 1000;  // The reader of stderr may be stuck.

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "not a std::exception";
  }
}

}  // namespace

void end_after_failed_task(const char* name, const std::exception_ptr& error) {
  std::string line = std::string("task_failed task=") + name + " error=\"" + text_of(error);
  line.resize(std::min<std::size_t>(line.size(), PIPE_BUF - 2));
  write_last_words(line + "\"\n", kReaderLimitMs);
  std::abort();
}

}  // namespace muster
