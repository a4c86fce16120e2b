// The all-reduce of pairs: a Python program with torch, started once, that sums with one node at a
// time.
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

inline constexpr int kTorchSeconds = 90;   // To import torch from slow storage, and connect.
inline constexpr int kReduceSeconds = 30;  // More than what the program gives each pair.

class PeerReduce {
 public:
  /// `python`: a path.
  PeerReduce(const boost::asio::any_io_executor& executor, const std::string& python);

  /// Until torch is there; why not, otherwise. An empty text: it is.
  boost::asio::awaitable<std::string> ready();
  /// Both nodes of the pair do this, one with rank 0 and one with 1. `name` is a key's beginning.
  boost::asio::awaitable<PairReduce> sum(std::string name, int rank);
  /// False from the first time on that the program did not answer: it has been ended then.
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
