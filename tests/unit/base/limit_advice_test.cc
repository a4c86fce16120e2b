#include "base/limit_advice.h"

#include <cerrno>

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("limit advice: it names the limit to raise, and is empty for other errors",
          "[unit][rendezvous]") {
  CHECK(limit_advice(EMFILE) == "; the limit of open files is reached: raise it with `ulimit -n`");
  CHECK(limit_advice(ENFILE).find("fs.file-max") != std::string::npos);
  CHECK(limit_advice(EFBIG).find("ulimit -f") != std::string::npos);
  CHECK(limit_advice(EACCES).empty());
  CHECK(limit_advice(EAGAIN).empty());  // From a socket it means "not yet".
  for (const char* named : {"ulimit -u", "ulimit -v"})
    CHECK(start_limit_advice(EAGAIN).find(named) != std::string::npos);
  CHECK(start_limit_advice(EMFILE) == limit_advice(EMFILE));
}

}  // namespace
}  // namespace muster
