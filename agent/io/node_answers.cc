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

NodeAnswered read_piece(const std::string& path, std::int64_t position, const LogCut& cut) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!fd.is_open() || ::fstat(fd.get(), &about) != 0) return cannot_read(path);
  const std::int64_t size = about.st_size;
  if (position < 0) position = cut.position_of(std::max<std::int64_t>(size + position, 0));
  const LogRange range = cut.readable(position, size);
  NodeAnswered piece;
  piece.size = cut.position_of(size);
  piece.offset = cut.position_of(range.offset);
  piece.bytes.resize(
      static_cast<std::size_t>(std::min<std::int64_t>(range.length, kMaxPieceBytes)));
  const ssize_t got = ::pread(fd.get(), piece.bytes.data(), piece.bytes.size(), range.offset);
  if (got < 0) return cannot_read(path);
  piece.bytes.resize(static_cast<std::size_t>(got));
  return piece;
}

void NodeAnswers::read(LogSource source, std::int64_t position, int attempt, Done done) {
  work_.pump().run([&io = io_, source = std::move(source), position, attempt,
                    done = std::move(done)] {
    NodeAnswered piece = read_piece(source.path, position, source.cut ? *source.cut : LogCut(0));
    piece.attempt = attempt;
    boost::asio::post(io, [piece = std::move(piece), done] { done(piece); });
  });
}

void NodeAnswers::answer(const NodeAsked& asked, const WorkerGroup& group, int attempt, Done done) {
  const LocalRank rank{asked.local_rank};
  if (!group.has(rank)) return done(no_answer("the workers of this node have not been started"));
  if (asked.what == NodeAsked::What::Log) {
    const WorkerLogs logs = group.logs()[static_cast<std::size_t>(asked.local_rank)];
    const LogSource& source = asked.from_stderr ? logs.err : logs.out;
    if (source.path.empty())
      return done(no_answer((asked.from_stderr ? "stderr" : "stdout") + std::string(kNoFile)));
    // An offset in the log of another attempt means nothing here.
    const bool is_same = asked.attempt == 0 || asked.attempt == attempt;
    return read(source, is_same ? asked.offset : 0, attempt, std::move(done));
  }
  hangs_.request_stacks(rank, [this, attempt, done](const StackCollector::Evidence& seen) {
    if (!seen.file.empty()) return read({.path = seen.file}, 0, attempt, done);
    done(no_answer(seen.problem));
  });
}

}  // namespace muster
