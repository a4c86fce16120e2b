// A failing program says why where its launcher looks for it: the error file.
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

/// Runs `body` and returns what it returns, the exit status. Once in a process, in main().
/// An exception that nothing catches, in any thread, ends the process with exit status 1: its type
/// and text go to stderr and, with the stack of the place that threw, to the file that
/// TORCHELASTIC_ERROR_FILE names; the launcher's failure summary shows them. No destructors run:
/// a process group that waits for its peers cannot hang the failing process. Where core files are
/// asked for (`ulimit -c` is not 0), the process ends by SIGABRT instead, which writes one.
/// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a file, too, and then end the process as they
/// would have, within ten seconds if the stack cannot be had; but not SIGSEGV by stack overflow in
/// another thread than the one that calls this: the handler needs another stack, and each thread
/// can only give itself one (sigaltstack). Without TORCHELASTIC_ERROR_FILE only stderr is written.
/// A function that catches everything on the way hides the exception from this, as anywhere.
/// Not caught: an exception that leaves a `noexcept` function has no stack left to show.
/// (Python: the decorator torch.distributed.elastic.multiprocessing.errors.record, which leaves no
/// file for signals.)
int record(const std::function<int()>& body);

/// The file's text, as launchers read it: for programs with a main() of their own making.
/// `timestamp_s`: seconds since the epoch. Any bytes are made valid JSON.
struct ErrorFileEntry {
  std::string message;
  std::string stack;
  long long timestamp_s = 0;
};
std::string format_error_file(const ErrorFileEntry& entry);

}  // namespace muster
