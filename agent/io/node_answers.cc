#include "agent/io/node_answers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/system/owned_fd.h"
#include "rendezvous/rounds/limits.h"

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

NodeAnswered read_first(const std::vector<LogPart>& parts) {
  NodeAnswered piece;
  for (const LogPart& part : parts) {
    piece =
        read_piece(part.source.path, part.position, part.source.cut ? *part.source.cut : LogCut(0));
    piece.attempt = part.attempt;
    if (!piece.bytes.empty()) break;
  }
  return piece;
}

void NodeAnswers::read(std::vector<LogPart> parts, Done done) {
  work_.pump().run([&io = io_, parts = std::move(parts), done = std::move(done)] {
    boost::asio::post(io, [piece = read_first(parts), done] { done(piece); });
  });
}

void NodeAnswers::answer(const NodeAsked& asked, Done done) {
  const LocalRank rank{asked.local_rank};
  if (!logs_.has(rank)) return done(no_answer("the workers of this node have not been started"));
  if (asked.what == NodeAsked::What::Log) {
    auto parts = logs_.parts(asked);
    if (!parts.empty()) return read(std::move(parts), std::move(done));
    return done(no_answer((asked.from_stderr ? "stderr" : "stdout") + std::string(kNoFile)));
  }
  hangs_.request_stacks(
      rank, [this, attempt = logs_.newest(), done](const StackCollector::Evidence& seen) {
        if (!seen.file.empty()) return read({{{.path = seen.file}, 0, attempt}}, done);
        done(no_answer(seen.problem));
      });
}

}  // namespace muster
