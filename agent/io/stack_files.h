// The files that say where workers stand. Their storage may not answer: threads of their own open,
// write and close them, and the loop does not wait for long.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "rendezvous/core/time.h"

namespace muster {

class StackFiles {
 public:
  /// For each of these calls. After the first one that takes longer the storage counts as lost, and
  /// nothing more is written.
  static constexpr Duration kLimit = std::chrono::seconds(5);

  /// Opens stacks.<n>.txt in each of `dirs`, with the first n that is free. An empty name stands
  /// for a new temporary directory, one for all. Not while other files are open. Tries nothing
  /// while a thread still waits for the storage of earlier files.
  boost::asio::awaitable<void> open(std::vector<std::string> dirs);
  /// Appends to one of them, by its place in `dirs`. Nothing if that one could not be opened.
  boost::asio::awaitable<void> append(std::size_t index, std::string text);
  boost::asio::awaitable<void> close();

  /// Of the files of the last open(): empty if there is none.
  const std::string& path(std::size_t index) const { return paths_[index]; }
  /// Why that file is missing or incomplete; empty: it is neither.
  const std::string& problem(std::size_t index) const { return problems_[index]; }

 private:
  struct Opened;
  void lose(const std::string& why, const std::string& what);

  std::shared_ptr<Opened> opened_;
  std::weak_ptr<Opened> closing_;  // Lives as long as a thread waits for its storage.
  std::vector<std::string> paths_;
  std::vector<std::string> problems_;
  bool is_lost_ = false;
};

}  // namespace muster
