#include "agent/io/stack_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "agent/io/temporary_folder.h"
#include "agent/posix/write_all.h"
#include "base/from_errno.h"
#include "base/net/bounded_work.h"
#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr int kFilesMax = 1000;  // In one directory.

struct StackFile {
  std::string path;
  OwnedFd fd;
  error_code error;  // Why it could not be opened.
};

StackFile open_new_file(const std::string& dir) {
  StackFile file;
  for (int n = 0; n < kFilesMax; ++n) {
    file.path = dir + "/stacks." + std::to_string(n) + ".txt";
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
    file.fd = OwnedFd(::open(file.path.c_str(), kFlags, 0666));
    if (file.fd.get() >= 0) return file;
    file.error = from_errno(errno);
    if (file.error != boost::system::errc::file_exists) break;
  }
  return file;
}

}  // namespace

// The last thread that uses the files closes them: closing may wait for the storage, too.
struct StackFiles::Opened {
  std::vector<StackFile> files;

  void open_all(const std::vector<std::string>& dirs) {
    Result<std::string> spare_dir{std::string()};  // For workers without a log directory.
    for (const std::string& dir : dirs) {
      if (dir.empty() && spare_dir && spare_dir->empty())
        spare_dir = create_lasting_folder("muster_stacks");
      if (dir.empty() && !spare_dir)
        files.push_back({.path = "a temporary directory", .fd = {}, .error = spare_dir.error()});
      else
        files.push_back(open_new_file(dir.empty() ? *spare_dir : dir));
    }
  }
};

void StackFiles::mark_lost(const std::string& why, const std::string& what) {
  if (std::exchange(is_lost_, true)) return;
  std::string text = "the stacks cannot be written: ";
  text.append(why).append(": ").append(what);
  for (std::string& problem : problems_)
    problem = text;
}

asio::awaitable<void> StackFiles::open(std::vector<std::string> dirs) {
  paths_.assign(dirs.size(), {});
  problems_.assign(dirs.size(), {});
  is_lost_ = false;
  const std::string first = dirs.front().empty() ? "a temporary directory" : dirs.front();
  if (!closing_.expired()) {
    mark_lost("storage does not answer since the last time", first);
    co_return;
  }
  opened_ = std::make_shared<Opened>();
  std::function<void()> work = [opened = opened_, dirs = std::move(dirs)] {
    opened->open_all(dirs);
  };
  if (const error_code failed = co_await run_in_time(std::move(work), limit_)) {
    mark_lost("storage does not answer (" + failed.message() + ")", first);
    co_return;
  }
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const StackFile& file = opened_->files[i];
    if (file.fd.get() >= 0)
      paths_[i] = file.path;
    else
      problems_[i] = "cannot write " + file.path + ": " + file.error.message();
  }
}

asio::awaitable<void> StackFiles::append(std::size_t index, std::string text) {
  if (is_lost_ || paths_[index].empty()) co_return;
  const auto error = std::make_shared<error_code>();
  std::function<void()> work = [opened = opened_, index, text = std::move(text), error] {
    *error = write_all(opened->files[index].fd.get(), text);
  };
  if (const error_code failed = co_await run_in_time(std::move(work), limit_))
    mark_lost("storage does not answer (" + failed.message() + ")", paths_[index]);
  else if (*error && problems_[index].empty())  // A full disk, for example.
    problems_[index] = "cannot write all of " + paths_[index] + ": " + error->message();
}

asio::awaitable<void> StackFiles::close() {
  if (!opened_) co_return;  // closing_ is for a thread that still waits since an earlier call.
  closing_ = opened_;
  std::function<void()> work = [opened = std::exchange(opened_, nullptr)]() mutable {
    opened.reset();
  };
  if (!closing_.expired()) co_await run_in_time(std::move(work), limit_);
}

}  // namespace muster
