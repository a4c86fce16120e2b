#include "rendezvous/musterd/musterd_process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/system/standard_streams.h"
#include "base/whole_number.h"

namespace muster {

void prepare_process() {
  open_missing_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

std::optional<std::vector<int>> inherited_descriptors() {
  constexpr int kFirst = 3;
  constexpr int kMax = 64;
  const char* pid = std::getenv("LISTEN_PID");
  const char* text = std::getenv("LISTEN_FDS");
  std::vector<int> descriptors;
  if (pid == nullptr || text == nullptr || std::atol(pid) != ::getpid()) return descriptors;
  const auto count = whole_number<int>(text);
  if (!count || *count < 0 || *count > kMax) return std::nullopt;
  for (int i = 0; i < *count; ++i)
    descriptors.push_back(kFirst + i);
  return descriptors;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace muster
