#include "rendezvous/musterd/leadership.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "base/net/guarded_loop.h"
#include "rendezvous/musterd/musterd_config.h"

namespace muster {
namespace {

/// Sets close-on-exec on all descriptors, because Asio opens sockets without it.
void close_all_at_exec() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number > STDERR_FILENO) ::fcntl(number, F_SETFD, FD_CLOEXEC);
  }
}

/// Restarts the program in the same process, by exec(). The new program has no connections, no
/// state and no listeners. The service manager does not see an end of the process. A SIGTERM that
/// StopSignals has not read stays pending for the new program.
[[noreturn]] void restart_process(char** argv) {
  constexpr const char* kOwnProgram = "/proc/self/exe";
  std::error_code unknown;
  std::string program = std::filesystem::read_symlink(kOwnProgram, unknown);
  // If the program's file was replaced, its old path no longer works, but /proc/self/exe does.
  if (unknown || ::access(program.c_str(), X_OK) != 0) program = kOwnProgram;
  spdlog::default_logger()->flush();
  std::fflush(nullptr);
  close_all_at_exec();
  hold_back_reloads();
  ::execv(program.c_str(), argv);
  std::perror("musterd: cannot start anew, and ends: execv");
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

Leadership::Leadership(boost::asio::io_context& loop, const EtcdStateOptions& options, char** argv)
    : loop_(loop), argv_(argv) {
  EtcdStateHandlers handlers;
  handlers.on_standing_by = [this](const std::string& why) {
    boost::asio::post(loop_, [this, why] { on_standing_by(why); });
  };
  handlers.on_leading = [this] {
    boost::asio::post(loop_, [this] {
      end_ = End::Leads;
      loop_.stop();
    });
  };
  handlers.on_lost = [this](const std::string& why) {
    boost::asio::post(loop_, [this, why] { on_lost(why); });
  };
  handlers.on_unusable = [this](const std::string& reason) {
    boost::asio::post(loop_, [this, reason] {
      std::fprintf(stderr, "musterd: %s\n", reason.c_str());
      end_ = End::Unusable;
      loop_.stop();
    });
  };
  state_ = start_etcd_state(options, std::move(handlers));
}

Leadership::End Leadership::stand_by() {
  const auto work = boost::asio::make_work_guard(loop_);
  run_guarded(loop_, "musterd");
  loop_.restart();
  if (end_ == End::Leads) spdlog::info("leading as=\"{}\"", process_text());
  return end_;
}

void Leadership::on_standing_by(const std::string& why) {
  standing_by_ = "standing by: " + why;
  spdlog::info("standing_by reason=\"{}\"", why);
}

void Leadership::on_lost(const std::string& why) {
  if (stopping_) return;
  spdlog::error(
      "leadership_lost reason=\"{}\" advice=\"nothing is acknowledged any more: musterd closes all "
      "connections and stands by again\"",
      why);
  restart_process(argv_);
}

}  // namespace muster
