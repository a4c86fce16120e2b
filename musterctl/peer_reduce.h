// The all-reduce of pairs. It starts a Python program with torch, all_reduce.py, once. The program
// sums with one node at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "musterctl/child_program.h"
#include "musterctl/peer_facts.h"

namespace muster::ctl {

inline constexpr int kTorchSeconds = 90;   // To import torch from slow storage, and to connect.
inline constexpr int kReduceSeconds = 30;  // More than the program's own limit for a pair.

class PeerReduce {
 public:
  /// `python`: a path.
  PeerReduce(const boost::asio::any_io_executor& executor, const std::string& python);

  /// Waits until the program has imported torch. Returns why it could not; empty: it is ready.
  boost::asio::awaitable<std::string> ready();
  /// Both nodes of the pair call this, one with rank 0 and one with rank 1. `name`: the prefix of
  /// the pair's keys in the store.
  boost::asio::awaitable<PairReduce> sum(std::string name, int rank);
  /// False once the program did not start or did not answer. It is killed then.
  bool works() const { return child_.has_value(); }

 private:
  boost::asio::awaitable<PairReduce> answer(int seconds);

  std::optional<ChildProgram> child_;
  boost::asio::posix::stream_descriptor output_;
  boost::asio::posix::stream_descriptor input_;
  std::string read_;
  std::string start_error_;
};

}  // namespace muster::ctl
