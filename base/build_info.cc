#include "base/build_info.h"

#include "muster_commit.inc"  // packaging/commit.cmake writes it in each build.

#ifndef __GLIBC__
#error "muster is for glibc: see docs/install.md"
#endif

namespace muster {

std::string build_text(std::string_view program) {
  // The headers of the C library define the release whose functions the compiler may use.
  const std::string glibc = std::to_string(__GLIBC__) + "." + std::to_string(__GLIBC_MINOR__);
  return std::string(program)
      .append(" " MUSTER_VERSION "\n")
      .append("commit    " MUSTER_COMMIT "\n")
      .append("target    " MUSTER_TARGET ", glibc " + glibc + " or newer\n")
      .append("compiler  " MUSTER_COMPILER "\n")
      .append("built in  " MUSTER_LIBRARIES "\n");
}

}  // namespace muster
