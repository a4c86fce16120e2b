#include "agent/io/progress_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <future>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/system/owned_fd.h"

namespace muster {
namespace {

constexpr Duration kProgressInterval = std::chrono::seconds(1);
// How long the loop waits for the file when a worker has failed.
constexpr Duration kProgressReadLimit = std::chrono::milliseconds(250);

/// The beginning of the file. Empty: it cannot be read. May wait for storage.
std::optional<std::string> read_beginning(const std::string& path) {
  // A pipe or a device must not hold up the log thread.
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return std::nullopt;
  std::array<char, kMaxProgressFileBytes> bytes;
  const ssize_t size = ::read(file.get(), bytes.data(), bytes.size());
  if (size < 0) return std::nullopt;
  return std::string(bytes.data(), static_cast<std::size_t>(size));
}

}  // namespace

struct ProgressWatch::File {
  std::string path;
  ProgressMark mark;  // Used on the log thread only.
};

ProgressWatch::ProgressWatch(boost::asio::io_context& io, std::string file, LogWork& work,
                             Handler on_progress)
    : io_(io),
      work_(work),
      on_progress_(std::move(on_progress)),
      check_(io, kProgressInterval, [this] { return check(); }) {
  if (!file.empty()) file_ = std::make_shared<File>(File{std::move(file), {}});
}

void ProgressWatch::begin_attempt() {
  highest_.reset();
  failed_ = false;
  ++*attempt_;
  if (!file_) return;
  // The log thread also makes the attempt's log files before the workers start: it reads first.
  work_.pump().run([file = file_] { file->mark.begin(read_beginning(file->path)); });
  check_.begin();
}

void ProgressWatch::note_step(std::int64_t step) {
  if (!file_) tell({step});
}

bool ProgressWatch::check() {
  if (std::exchange(is_reading_, true)) return true;  // Storage hangs.
  work_.pump().run([this, &io = io_, file = file_, current = attempt_, attempt = *attempt_] {
    const auto made = file->mark.read(read_beginning(file->path));
    boost::asio::post(io, [this, made, current, attempt] {
      is_reading_ = false;
      if (made && *current == attempt) tell(*made);
    });
  });
  return true;
}

void ProgressWatch::worker_failed() {
  failed_ = true;
  if (!file_) return;
  const auto answer = std::make_shared<std::promise<std::optional<Progressed>>>();
  auto made = answer->get_future();
  work_.pump().run(
      [file = file_, answer] { answer->set_value(file->mark.read(read_beginning(file->path))); });
  if (made.wait_for(kProgressReadLimit) != std::future_status::ready) return;
  if (const auto progressed = made.get()) tell(*progressed);
}

void ProgressWatch::tell(const Progressed& progressed) {
  if (progressed.step && highest_ && *progressed.step <= *highest_) return;
  if (progressed.step) highest_ = progressed.step;
  on_progress_(progressed);
}

}  // namespace muster
