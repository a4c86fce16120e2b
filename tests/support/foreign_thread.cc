// A thread that blocks no signals, as profilers and monitoring agents bring it into each program.
// Tests preload this library. It starts the thread in programs called muster, and again in their
// forked children, as agents do that must survive fork().
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>

namespace {

void* wait_for_ever(void* /*unused*/) {
  for (;;)
    ::pause();
}

void start_thread() {
  pthread_t thread{};
  if (::pthread_create(&thread, nullptr, wait_for_ever, nullptr) == 0) ::pthread_detach(thread);
}

[[gnu::constructor]] void begin() {
  if (std::strcmp(::program_invocation_short_name, "muster") != 0) return;
  start_thread();
  ::pthread_atfork(nullptr, nullptr, start_thread);
}

}  // namespace
