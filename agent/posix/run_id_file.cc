#include "agent/posix/run_id_file.h"

#include <unistd.h>

#include "agent/posix/kernel_calls.h"
#include "rendezvous/core/run_id_file_name.h"

namespace muster {

int publish_run_id(std::string_view run_id) {
  const int file = make_memory_file(kRunIdFileName);
  if (file < 0) return -1;
  if (::write(file, run_id.data(), run_id.size()) == static_cast<ssize_t>(run_id.size()))
    return file;
  ::close(file);  // As with `ulimit -f 0`.
  return -1;
}

}  // namespace muster
