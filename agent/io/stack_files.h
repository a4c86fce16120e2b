// The files that get the workers' stacks. Their storage may not answer: other threads open, write
// and close them, and the loop waits for a limited time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/time.h"

namespace muster {

class StackFiles {
 public:
  /// The usual time limit of each call. After the first call that takes longer, the storage counts
  /// as lost, and nothing more is written.
  static constexpr Duration kLimit = std::chrono::seconds(5);
  explicit StackFiles(Duration limit = kLimit) : limit_(limit) {}

  /// Opens stacks.<n>.txt in each of `dirs`, with the first n that is free. All empty names stand
  /// for one new temporary directory. Not to be called while other files are open. Opens nothing
  /// while a thread still waits for the storage of earlier files.
  boost::asio::awaitable<void> open(std::vector<std::string> dirs);
  /// Appends to the file in `dirs[index]`. Does nothing if that file could not be opened.
  boost::asio::awaitable<void> append(std::size_t index, std::string text);
  boost::asio::awaitable<void> close();

  /// The path of a file of the last open(); empty if it could not be opened.
  const std::string& path(std::size_t index) const { return paths_[index]; }
  /// Why that file is missing or incomplete; empty if it is complete.
  const std::string& problem(std::size_t index) const { return problems_[index]; }

 private:
  struct Opened;
  void mark_lost(const std::string& why, const std::string& what);

  const Duration limit_;
  std::shared_ptr<Opened> opened_;
  std::weak_ptr<Opened> closing_;  // Not expired while a thread waits for the storage.
  std::vector<std::string> paths_;
  std::vector<std::string> problems_;
  bool is_lost_ = false;
};

}  // namespace muster
