#include "base/limit_advice.h"

#include <cerrno>

namespace muster {

std::string limit_advice(int error) {
  switch (error) {
    case EMFILE:
      return "; the limit of open files is reached: raise it with `ulimit -n`";
    case ENFILE:
      return "; the limit of open files of the whole system is reached: raise sysctl fs.file-max";
    case EFBIG:
      return "; the limit of a file's size is reached: raise it with `ulimit -f`";
    default:
      return "";
  }
}

std::string start_limit_advice(int error) {
  if (error != EAGAIN) return limit_advice(error);
  return "; the limit of processes is reached: raise it with `ulimit -u`, or pids.max of the "
         "cgroup. A limit of memory (`ulimit -v`) has the same error";
}

}  // namespace muster
