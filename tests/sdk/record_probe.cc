// Fails in the way that its argument names, under muster::record().
#include <dlfcn.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include "muster/record.h"

namespace muster::testing {

// Its name must be in the stack, so it must not become part of its caller.
[[gnu::noinline]] void step_that_fails(const std::string& text) {
  throw std::runtime_error(text);
}

// Recurses deeper than any stack, on purpose. Neither the compiler nor the linter can see that.
[[gnu::noinline]] int overflow_stack(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : overflow_stack(depth - 1) + frame[0];
}

// The constructor of `library` sleeps while the loader's lock is held.
void crash_while_the_loader_is_locked(const std::string& library) {
  std::thread([library] { ::dlopen(library.c_str(), RTLD_NOW); }).detach();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::raise(SIGSEGV);
}

int fail(const std::string& how) {
  std::cout << "before" << '\n';  // Not flushed: must not be lost.
  if (how == "succeed") return 0;
  if (how == "status") return 7;
  if (how == "throw") step_that_fails("a \"quoted\" text\nof two lines \xc3\xa9");
  if (how == "throw_bytes") step_that_fails("not UTF-8: \xff\xc3");
  if (how == "throw_int") throw 42;
  if (how == "thread") std::thread([] { step_that_fails("in a thread"); }).join();
  if (how == "caught") {
    try {
      step_that_fails("caught");
    } catch (const std::exception&) {
      return 0;
    }
  }
  if (how == "abort") std::abort();
  if (how == "segv") std::raise(SIGSEGV);
  if (how.starts_with("stuck:")) crash_while_the_loader_is_locked(how.substr(6));
  if (how == "overflow") return overflow_stack(1'000'000'000);
  return 1;
}

}  // namespace muster::testing

int main(int argc, char** argv) {
  return muster::record([&] { return muster::testing::fail(argc > 1 ? argv[1] : ""); });
}
