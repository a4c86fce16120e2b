#include "musterctl/peer_reduce.h"

#include <chrono>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/net/no_throw.h"
#include "musterctl/peer_json.h"

namespace muster::ctl {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;

namespace {

constexpr const char* kProgram =
#include "musterctl/all_reduce_program.inc"
    ;

}  // namespace

PeerReduce::PeerReduce(const asio::any_io_executor& executor, const std::string& python)
    : output_(executor), input_(executor) {
  const std::vector<std::string> argv{python, "-c", kProgram};
  auto started = ChildProgram::start(argv, own_environment(), ChildProgram::Stdin::Pipe);
  if (!started) {
    start_error_ = "cannot start " + python + ": " + started.error().message();
    return;
  }
  child_.emplace(*std::move(started));
  output_.assign(child_->output.release());
  input_.assign(child_->input.release());
}

asio::awaitable<std::string> PeerReduce::ready() {
  if (!child_) co_return start_error_;
  PairReduce said = co_await answer(kTorchSeconds);
  if (said.right) co_return std::string();
  child_.reset();
  co_return "torch: " + said.error;
}

asio::awaitable<PairReduce> PeerReduce::sum(std::string name, int rank) {
  PairReduce failed{.error = "the Python program is gone"};
  if (!child_) co_return failed;
  const std::string line = name + " " + std::to_string(rank) + "\n";
  // A pipe takes a line of this length at once: the write needs no time limit.
  auto [ec, sent] = co_await asio::async_write(input_, asio::buffer(line), kNoThrow);
  if (!ec) co_return co_await answer(kReduceSeconds);
  child_.reset();
  failed.error = "the Python program is gone: " + ec.message();
  co_return failed;
}

asio::awaitable<PairReduce> PeerReduce::answer(int seconds) {
  asio::steady_timer limit(output_.get_executor(), std::chrono::seconds(seconds));
  const auto done = co_await (
      asio::async_read_until(output_, asio::dynamic_buffer(read_, kMaxPeerJson), '\n', kNoThrow) ||
      limit.async_wait(kNoThrow));
  PairReduce result{.error = "no answer within " + std::to_string(seconds) + " s"};
  if (const auto* line = std::get_if<0>(&done)) {
    const auto [ec, size] = *line;
    result.error = "the Python program has ended";
    if (!ec) {
      const auto said = read_reduce(std::string_view(read_).substr(0, size));
      read_.erase(0, size);
      if (said) co_return *said;
      result.error = "the answer of the Python program is not valid";
    }
  }
  child_.reset();  // A late answer would be mistaken for that of the next pair.
  co_return result;
}

}  // namespace muster::ctl
