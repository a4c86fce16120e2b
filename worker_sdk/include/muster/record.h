// Writes the reason of a failure into the error file, where the launcher reads it.
//
//     int main(int argc, char** argv) {
//       return muster::record([&] { return train(argc, argv); });
//     }
//
// Needs no LibTorch (target muster::worker_env).
#pragma once

#include <functional>
#include <string>

namespace muster {

/// Runs `body` and returns its result, the exit status. Call it once in a process, in main().
///
/// Exceptions: an exception that nothing catches, in any thread, ends the process with exit status
/// 1. Its type and text are written to stderr. They are also written, with the stack of the place
/// that threw, to the file that TORCHELASTIC_ERROR_FILE names. The launcher's failure summary shows
/// them. No destructors run, so a process group that waits for its peers cannot make the failing
/// process hang. If core files are enabled (`ulimit -c` is not 0), the process ends by SIGABRT
/// instead, which writes a core file.
///
/// Signals: SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT also write the file, and then end the
/// process as usual. If the stack cannot be read, the process ends after at most ten seconds. One
/// case writes no file: SIGSEGV by a stack overflow in another thread than the one that called
/// record(). The handler needs a second stack, which each thread can only set up for itself
/// (sigaltstack).
///
/// Without TORCHELASTIC_ERROR_FILE, only stderr is written. If a function between the throw and
/// record() catches all exceptions, record() does not see the exception. An exception that leaves a
/// `noexcept` function has no stack left to show.
///
/// (Python: the decorator torch.distributed.elastic.multiprocessing.errors.record, which writes no
/// file for signals.)
int record(const std::function<int()>& body);

/// The content of an error file.
struct ErrorFileEntry {
  std::string message;
  std::string stack;
  long long timestamp_s = 0;  // Seconds since the epoch.
};
/// Returns the text of an error file in the form that launchers read. It is for programs that do
/// not use record(). Any bytes in the entry become valid JSON.
std::string format_error_file(const ErrorFileEntry& entry);

}  // namespace muster
