#include "musterctl/gpu_errors.h"

#include <stdio.h>
#include <unistd.h>

#include <string>

#include <catch2/catch.hpp>

namespace muster::ctl {
namespace {

TEST_CASE("gpu errors: Xids are read, one entry for each GPU and number", "[unit][musterctl]") {
  const auto xids = xids_in(
      "6,10,1000000,-;nvidia 0000:3b:00.0: enabling device\n"
      " SUBSYSTEM=pci\n"
      "4,11,2000000,-;NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, DBE (1)\n"
      "4,12,3000000,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=71, name=python3, DBE (2)\n"
      "4,13,4000000,c;NVRM: Xid (PCI:0000:5e:00): 48, DBE (3)\n"
      "4,14,5000000,-;NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed");
  REQUIRE(xids.size() == 3);
  CHECK(xids[0].device == "0000:3b:00");
  CHECK(xids[0].number == 48);
  CHECK(xids[0].times == 2);
  CHECK(xids[0].last_seconds == 3);
  CHECK(xids[0].text == "DBE (2)");
  CHECK(xids[1].device == "0000:5e:00");
  CHECK(xids[1].text == "DBE (3)");
  CHECK(xids[2].number == 154);
  CHECK(xids[2].text == "GPU recovery action changed");
}

TEST_CASE("gpu errors: other lines are skipped, and number and length of Xids are bounded",
          "[unit][musterctl]") {
  CHECK(xids_in("").empty());
  CHECK(xids_in("\n\n;\n").empty());
  CHECK(xids_in("4,1,x,-;NVRM: Xid (PCI:0): 79, gone\n").empty());
  CHECK(xids_in("4,1,2,-;NVRM: Xid (PCI:0): many, gone\n").empty());
  CHECK(xids_in("4,1,2,-;NVRM: Xid (PCI:0").empty());
  CHECK(xids_in("NVRM: Xid (PCI:0): 79, gone\n").empty());
  std::string many;
  for (int i = 0; i < 200; ++i)
    many +=
        "4,1,2,-;NVRM: Xid (PCI:" + std::to_string(i) + "): 79, " + std::string(5000, 'x') + "\n";
  const auto xids = xids_in(many);
  REQUIRE(xids.size() == kMaxXids);
  CHECK(xids[0].text.size() == kMaxXidBytes);
  CHECK(xids_in("4,1,2,-;NVRM: Xid (PCI:0): 79, \x1b[2J\n").at(0).text.find('\x1b') ==
        std::string::npos);
}

TEST_CASE("gpu errors: the log is a file, or the reason why not", "[unit][musterctl]") {
  CHECK(gpu_errors("/proc/nowhere").error == "/proc/nowhere: No such file or directory");
  CHECK_FALSE(gpu_errors("/proc").error.empty());  // /proc is a folder.
  char path[] = "/tmp/muster-gpu-errors-XXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(fd >= 0);
  const std::string line = "4,1,2,-;NVRM: Xid (PCI:0): 79, gone\n";
  REQUIRE(::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  ::close(fd);
  const GpuErrors errors = gpu_errors(path);
  ::unlink(path);
  CHECK(errors.error.empty());
  CHECK(errors.now_seconds > 0);
  CHECK(errors.xids.size() == 1);
}

}  // namespace
}  // namespace muster::ctl
