#include "rendezvous/server/connection.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "base/check.h"

namespace muster {

namespace {

// The most bytes of a large value that are read at a time, because other connections wait.
constexpr std::size_t kDirectReadBytes = 1 << 20;
constexpr std::size_t kHugePageBytes = 2 << 20;  // Values from this size on get huge pages.
constexpr std::size_t kTopUpBytes = 4096;
constexpr std::size_t kPieces = 64;  // The most pieces of a queue that one system call sends.

// Work, in the units of kSliceWork.
constexpr std::int64_t kRequestWork = 256;
constexpr std::int64_t kNameWork = 64;        // A look-up, a waiting client, a name in a list.
constexpr std::int64_t kNativeWork = 5'000;   // Handling a native message, also in its run.
constexpr std::int64_t kNativeByteWork = 16;  // Parsing a byte of JSON.
constexpr std::uint64_t kRenderWork = 4'000;  // Rendering and encoding a node of a run's state.

// Without huge pages, half of the time to receive 64 MB was spent in 16,000 page faults. Best
// effort. The advice covers the whole mapping: realloc() cannot move the pages of a mapping whose
// pages have different advice.
void use_huge_pages(std::span<char> memory) {
  static const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t in_page = reinterpret_cast<std::uintptr_t>(memory.data()) % page_bytes;
  ::madvise(memory.data() - in_page, in_page + memory.size(), MADV_HUGEPAGE);
}

std::string describe(const ParseError& error, const CodecLimits& limits) {
  std::string text = fmt::format("{} at byte {}", to_string(error.fault), error.offset);
  switch (error.fault) {
    case ParseFault::KeyTooLong:
      return fmt::format("{}: limit key_bytes={}", text, limits.key_bytes);
    case ParseFault::ValueTooLong:
      return fmt::format("{}: limit value_bytes={}", text, limits.value_bytes);
    case ParseFault::TooManyKeys:
      return fmt::format("{}: limit keys_per_request={}", text, limits.keys_per_request);
    case ParseFault::RequestTooLong:
      return fmt::format("{}: limit request_bytes={}", text, limits.request_bytes);
    default:
      return text;
  }
}

std::string_view to_cause(Refusal refusal) {
  switch (refusal) {
    case Refusal::NotANumber:
      return "not a number";
    case Refusal::TooManyKeys:
      return "limit keys";
    case Refusal::TooLongValue:
      return "limit appended_bytes";
    case Refusal::TooManyBytes:
      break;
  }
  return "limit total_bytes";
}

std::string describe(Refusal refusal, const StoreLimits& limits) {
  switch (refusal) {
    case Refusal::NotANumber:
      return "ADD or BARRIER on a value that is not a number";
    case Refusal::TooManyKeys:
      return fmt::format("the store is full: limit keys={}", limits.keys);
    case Refusal::TooLongValue:
      return fmt::format("APPEND makes a value too long: limit appended_bytes={}",
                         limits.appended_bytes);
    case Refusal::TooManyBytes:
      break;
  }
  return fmt::format("the store is full: limit total_bytes={}", limits.bytes);
}

}  // namespace

Connection::Connection(ConnectionShared& shared, OwnedFd fd, ConnectionId id,
                       const boost::asio::ip::tcp::endpoint& peer)
    : shared_(shared),
      fd_(std::move(fd)),
      id_(id),
      peer_(peer),
      decoder_(shared.codec),
      input_(&shared.table.account()),
      c10d_open_(shared.c10d.open_to_all()) {}

Connection::~Connection() {
  shared_.table.account().kept -= counted_input_;
  leave_runs();
  disconnect_store();
  if (account_ != nullptr) shared_.accounts.leave(*account_);
}

void Connection::leave() {
  leave_runs();
  abandon_store();
  fd_ = {};
}

std::int64_t Connection::work_left() const {
  return kNameWork * static_cast<std::int64_t>(shared_.table.wait_size(id_));
}

void Connection::on_readable() {
  if (paused_ || yielded_ || ended_) return;
  const std::size_t missing = input_.empty() || held_ ? 0 : decoder_.wanted() - input_.size();
  if (missing >= ConnectionShared::kReadBytes) return read_into_buffer();
  const ssize_t got = ::recv(fd_.get(), shared_.read_buffer.get(), ConnectionShared::kReadBytes, 0);
  if (got > 0) {
    shared_.traffic.received_bytes += static_cast<std::uint64_t>(got);
    feed({shared_.read_buffer.get(), static_cast<std::size_t>(got)});
  } else if (got == 0) {
    end(false);
  } else if (errno != EAGAIN && errno != EINTR) {
    end(true);
  }
}

/// Reads the rest of a large request directly into the memory where the value will stay.
void Connection::read_into_buffer() {
  const std::size_t capacity = input_.capacity();
  const auto [room, size] = input_.room(decoder_.wanted());
  if (input_.capacity() != capacity && input_.capacity() >= kHugePageBytes)
    use_huge_pages({room - input_.size(), input_.capacity()});
  const ssize_t got = ::recv(fd_.get(), room, std::min(size, kDirectReadBytes), 0);
  if (got > 0) {
    shared_.traffic.received_bytes += static_cast<std::uint64_t>(got);
    input_.commit(static_cast<std::size_t>(got));
    count_input();
    if (ended_) return flush();
    if (input_.size() < decoder_.wanted()) return;
    serving_ = true;
    input_.erase_front(serve(input_.view(), &input_));
    serving_ = false;
    count_input();
    flush();
    if (has_drained()) serve_buffered();
  } else if (got == 0) {
    end(false);
  } else if (errno != EAGAIN && errno != EINTR) {
    end(true);
  }
}

void Connection::feed(std::string_view bytes) {
  serving_ = true;
  while (!bytes.empty() && !ended_) {
    if (paused_ || held_ || yielded_) {
      input_.append(bytes);
      break;
    }
    if (input_.empty()) {
      bytes.remove_prefix(serve(bytes, nullptr));
      if (!bytes.empty() && !ended_) input_.append(bytes);
      break;
    }
    // Appends up to the end of the request. More bytes, at most kTopUpBytes in total, are appended
    // only if they need no new memory: the memory of a large request ends exactly with the request.
    const std::size_t missing = decoder_.wanted() - input_.size();
    const std::size_t spare = std::min(kTopUpBytes, input_.capacity() - input_.size());
    const std::size_t take = std::min(bytes.size(), std::max(missing, spare));
    input_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    input_.erase_front(serve(input_.view(), &input_));
  }
  serving_ = false;
  count_input();
  flush();
  if (has_drained()) serve_buffered();
}

/// Serves the complete requests in `bytes`. Returns their number of bytes.
std::size_t Connection::serve(std::string_view bytes, ByteBuffer* buffer) {
  std::size_t served = 0;
  while (served < bytes.size() && !ended_ && !held_) {
    if (!has_room_for_replies()) break;
    const std::string_view rest = bytes.substr(served);
    const auto complete = decoder_.scan(rest);
    if (!complete) {
      refuse(describe(complete.error(), shared_.codec), to_string(complete.error().fault));
      break;
    }
    // Checked before any part of a request is kept that the client is not allowed to send.
    if (!c10d_open_ && decoder_.asks_store() && !enter_c10d()) break;
    if (!*complete) break;
    if (must_yield()) {
      yielded_ = true;
      break;
    }
    serve_in_slice(rest, buffer);
    served += decoder_.size();
    decoder_.next();
  }
  return served;
}

/// Whether further replies may be queued. If not, pauses a client that was let in, and closes any
/// other: all strangers together must not use up the memory for the unread replies of clients.
bool Connection::has_room_for_replies() {
  const std::size_t for_all = shared_.connections.queued_bytes;
  if (out().size() <= std::min(for_all, kMaxStrangerQueuedBytes)) return true;
  const bool let_in = validated();
  const std::size_t limit = let_in ? for_all : kMaxStrangerQueuedBytes;
  if (out().size() > limit) send(out());
  if (out().size() <= limit) return true;
  if (let_in) {
    paused_ = true;
    return false;
  }
  refuse(fmt::format("it reads no replies before it is let in: limit {} bytes", limit),
         "replies are not read before it is let in");
  out().clear();
  done_ = true;
  return false;
}

/// Serves the complete request at the front of `bytes`, and subtracts its cost from the slice.
void Connection::serve_in_slice(std::string_view bytes, ByteBuffer* buffer) {
  const std::uint64_t before = work_so_far();
  auto work = kRequestWork + static_cast<std::int64_t>(decoder_.size());
  if (decoder_.native()) {
    work += kNativeWork + kNativeByteWork * static_cast<std::int64_t>(decoder_.size());
    serve_native(decoder_.native_message(bytes));
  } else {
    Request request = decoder_.request(bytes, shared_.scratch);
    request.buffer = buffer;
    work += kNameWork * static_cast<std::int64_t>(request.keys.size());
    if (request.query == Query::ListKeys) work += list_work();
    serve_one(request);
  }
  shared_.slice_work -= work + static_cast<std::int64_t>(work_so_far() - before);
}

/// A counter that grows by the cost of each request beyond its own bytes and names.
std::uint64_t Connection::work_so_far() {
  return shared_.table.account().allocated +
         static_cast<std::uint64_t>(kNameWork) * shared_.table.waiters_seen() +
         (shared_.runs ? kRenderWork * shared_.runs->rendered_nodes() : 0);
}

/// Whether the complete request must wait for a later turn: the slice is used up, or the request is
/// expensive and this turn has no work left for expensive requests.
bool Connection::must_yield() const {
  if (shared_.slice_work <= 0) return true;
  if (shared_.turn_work > 0) return false;
  auto work = static_cast<std::int64_t>(decoder_.size());
  if (decoder_.lists_keys()) work += list_work();
  return work > kSmallSliceWork;
}

std::int64_t Connection::list_work() const {
  return kNameWork * static_cast<std::int64_t>(shared_.table.num_names()) +
         static_cast<std::int64_t>(shared_.table.list_bytes());
}

void Connection::serve_one(const Request& request) {
  shared_.traffic.count(request.query);
  if (shared_.runs_apart && !stays_in_run(request)) return;
  if (shared_.runs && !fits_in_run(request)) return;
  if (shared_.runs && about_runs(request)) return serve_state(request);
  if (shared_.runs && refuse_plant(request)) return;
  if (request.query == Query::ListKeys && shared_.runs_apart) return list_keys_of_run();
  if (request.query == Query::ListKeys) {
    if (!may_build(shared_.table.list_bytes())) return;
    out().reserve_text(sizeof(std::uint64_t) + shared_.table.list_bytes());
  }
  send_reply(apply(request));
  if (in_runs_) report_wait(request);
}

/// Whether a reply that takes so much memory may be queued. If not, closes the connection.
bool Connection::may_build(std::size_t reply_bytes) {
  const std::size_t limit = shared_.connections.queued_total_bytes;
  if (reply_bytes <= limit && shared_.unread_bytes() <= limit - reply_bytes) return true;
  refuse(fmt::format("a reply of {} bytes does not fit beside the unread replies of all clients: "
                     "limit queued_total_bytes={}",
                     reply_bytes, limit),
         "limit queued_total_bytes");
  return false;
}

Reply Connection::apply(const Request& request) {
  Reply reply = shared_.apply(id_, request);
  for (const ConnectionId released : shared_.table.released()) {
    if (released == id_)
      out().add_byte(kStopWaiting.value);
    else
      shared_.wake(released);
  }
  return reply;
}

void Connection::send_reply(const Reply& reply) {
  if (const auto* refusal = std::get_if<Refusal>(&reply))
    return refuse(describe(*refusal, shared_.limits), to_cause(*refusal));
  if (const auto* values = std::get_if<Values>(&reply)) {
    const std::size_t memory = reply_memory(*values);
    if (!may_build(memory)) return;
    shared_.slice_work -= static_cast<std::int64_t>(memory - ReplyQueue::kManyBytes);
  }
  encode_reply(reply, out());
}

void Connection::resume() {
  if (!std::exchange(yielded_, false) || paused_ || held_ || ended_) return;
  serve_buffered();
}

/// Serves the bytes that were read before a pause. They come before the bytes in the socket.
void Connection::serve_buffered() {
  do {
    paused_ = false;
    serving_ = true;
    input_.erase_front(serve(input_.view(), &input_));
    serving_ = false;
    count_input();
    flush();
  } while (has_drained());
}

/// Whether a pause is over. Must be checked after flush(), too: if flush() has sent everything, no
/// further event for writing comes, and the pause would never end.
bool Connection::has_drained() const {
  return paused_ && !ended_ && replies_.size() <= shared_.connections.queued_bytes / 2;
}

void Connection::count_input() {
  // After a request with many keys, the scratch memory is released: the views into it are no longer
  // used.
  constexpr std::size_t kScratchKept = 4096;
  if (shared_.scratch.keys.capacity() > kScratchKept) shared_.scratch = RequestScratch{};
  const std::size_t footprint = input_.footprint() + (gate_ ? gate_->memory() : 0);
  if (footprint == counted_input_) return;
  shared_.table.account().kept += footprint - counted_input_;
  counted_input_ = footprint;
  if (footprint == 0 || shared_.table.has_room(0)) return;
  refuse(describe(Refusal::TooManyBytes, shared_.limits), to_cause(Refusal::TooManyBytes));
}

void Connection::on_writable() {
  send_waiting();
}

void Connection::send_waiting() {
  send(replies_);
  if (has_drained()) serve_buffered();
  if (ended_ && replies_.empty()) done_ = true;
}

void Connection::on_hang_up() {
  if (yielded_) return;             // Requests that have been read are served first.
  if (!interest().read) end(true);  // Otherwise recv() reports the end, after the last bytes.
}

void Connection::wake() {
  if (broken_) return;
  if (replies_.empty()) {
    const ssize_t sent = ::send(fd_.get(), &kStopWaiting.value, 1, MSG_NOSIGNAL);
    if (sent == 1) {
      ++shared_.traffic.sent_bytes;
      return;
    }
    broken_ = errno != EAGAIN && errno != EINTR;
    if (broken_) return;
  }
  replies_.add_byte(kStopWaiting.value);
}

/// Sends the replies to the requests that were just served. Unsent replies are queued in replies_.
void Connection::flush() {
  if (!shared_.replies.empty()) {
    send(shared_.replies);
    if (!shared_.replies.empty()) replies_.append(shared_.replies);
  }
  if (ended_ && replies_.empty()) done_ = true;
}

void Connection::send(ReplyQueue& queue) {
  std::array<std::string_view, kPieces> pieces;
  std::array<iovec, kPieces> vectors;
  while (!queue.empty() && !broken_) {
    const std::size_t count = queue.gather(pieces);
    std::size_t offered = 0;
    for (std::size_t i = 0; i < count; ++i) {
      vectors[i] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
      offered += pieces[i].size();
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t sent = count == 1 ? ::send(fd_.get(), vectors[0].iov_base, offered, MSG_NOSIGNAL)
                                    : ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      // The peer has reset the connection: its earlier requests are still served, without replies.
      if (errno != EAGAIN) broken_ = true;
      break;
    }
    queue.consume(static_cast<std::size_t>(sent));
    shared_.traffic.sent_bytes += static_cast<std::uint64_t>(sent);
    shared_.slice_work -= sent;
    if (static_cast<std::size_t>(sent) < offered) break;
  }
  if (broken_) queue.clear();
  if (&queue == &replies_ && queue.empty()) replies_ = ReplyQueue{};
}

/// The peer sends nothing more. It still gets the queued replies, unless it has reset the
/// connection.
void Connection::end(bool by_reset) {
  ended_ = true;
  if (reason_.empty() && decoder_.begun())
    reason_ = cause_ = "the client left in the middle of a request";
  else if (reason_.empty() && shared_.table.is_waiting(id_))
    reason_ = cause_ = "the client left while it was waiting";
  abandon_store();
  leave_runs();
  input_.clear();
  count_input();
  if (by_reset || replies_.empty()) done_ = true;
}

void Connection::refuse(std::string reason, std::string_view cause) {
  if (violation_) return;
  violation_ = true;
  ended_ = true;
  reason_ = std::move(reason);
  cause_ = cause;
  abandon_store();
  leave_runs();
}

}  // namespace muster
