#include "agent/io/node_answers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>

#include "rendezvous/core/limits.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {
namespace {

NodeAnswered no_answer(std::string why) {
  NodeAnswered answered;
  answered.error = std::move(why);
  return answered;
}

NodeAnswered cannot_read(const std::string& path) {
  return no_answer("cannot read " + path + ": " + std::strerror(errno));
}

constexpr const char* kNoFile =
    " of this worker goes to the console of its launcher, and to no file: start muster with "
    "--tee=3 or --redirects=3 (and --log-dir)";

}  // namespace

NodeAnswered read_piece(const std::string& path, std::int64_t offset) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!fd.is_open() || ::fstat(fd.get(), &about) != 0) return cannot_read(path);
  NodeAnswered piece;
  piece.size = about.st_size;
  piece.offset = std::clamp<std::int64_t>(offset < 0 ? piece.size + offset : offset, 0, piece.size);
  piece.bytes.resize(
      static_cast<std::size_t>(std::min<std::int64_t>(piece.size - piece.offset, kMaxPieceBytes)));
  const ssize_t got = ::pread(fd.get(), piece.bytes.data(), piece.bytes.size(), piece.offset);
  if (got < 0) return cannot_read(path);
  piece.bytes.resize(static_cast<std::size_t>(got));
  return piece;
}

void NodeAnswers::read(std::string path, std::int64_t offset, int attempt, Done done) {
  work_.pump().run([&io = io_, path = std::move(path), offset, attempt, done = std::move(done)] {
    NodeAnswered piece = read_piece(path, offset);
    piece.attempt = attempt;
    boost::asio::post(io, [piece = std::move(piece), done] { done(piece); });
  });
}

void NodeAnswers::answer(const NodeAsked& asked, const WorkerGroup& group, int attempt, Done done) {
  const LocalRank rank{asked.local_rank};
  if (!group.has(rank)) return done(no_answer("the workers of this node have not been started"));
  if (asked.what == NodeAsked::What::Log) {
    const std::string& path = group.log_file(rank, asked.from_stderr);
    if (path.empty())
      return done(no_answer((asked.from_stderr ? "stderr" : "stdout") + std::string(kNoFile)));
    // An offset in the log of another attempt means nothing here.
    const bool is_same = asked.attempt == 0 || asked.attempt == attempt;
    return read(path, is_same ? asked.offset : 0, attempt, std::move(done));
  }
  hangs_.request_stacks(rank, [this, attempt, done](const StackCollector::Evidence& seen) {
    if (!seen.file.empty()) return read(seen.file, 0, attempt, done);
    done(no_answer(seen.problem));
  });
}

}  // namespace muster
