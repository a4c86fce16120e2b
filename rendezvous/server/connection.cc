#include "rendezvous/server/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "rendezvous/server/refusal_text.h"

namespace muster {

namespace {

// The most bytes of a large value that are read at a time, because other connections wait.
constexpr std::size_t kDirectReadBytes = 1 << 20;

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

}  // namespace

Connection::Connection(ConnectionShared& shared, OwnedFd fd, ConnectionId id,
                       const boost::asio::ip::tcp::endpoint& peer)
    : shared_(shared),
      id_(id),
      socket_(std::move(fd), peer),
      decoder_(shared.codec),
      input_(shared.table.account()),
      replies_(shared, socket_),
      runs_(shared, id, socket_),
      store_(*this) {}

void Connection::leave() {
  runs_.leave();
  runs_.abandon_wait();
  socket_.close();
}

std::int64_t Connection::work_left() const {
  return kNameWork * static_cast<std::int64_t>(shared_.table.wait_size(id_));
}

void Connection::on_readable() {
  if (!may_read()) return;
  const bool held = phase_ == Phase::Held;
  const std::size_t missing = input_.empty() || held ? 0 : decoder_.wanted() - input_.size();
  if (missing >= ConnectionShared::kReadBytes) return read_into_buffer();
  char* const memory = shared_.read_buffer.get();
  const ssize_t got = ::recv(socket_.fd(), memory, ConnectionShared::kReadBytes, 0);
  if (has_arrived(got)) feed({memory, static_cast<std::size_t>(got)});
}

/// Reads the rest of a large request directly into the memory where the value will stay.
void Connection::read_into_buffer() {
  const auto [room, size] = input_.room(decoder_.wanted());
  const ssize_t got = ::recv(socket_.fd(), room, std::min(size, kDirectReadBytes), 0);
  if (!has_arrived(got)) return;
  input_.commit(static_cast<std::size_t>(got));
  count_input();
  if (has_ended()) return flush();
  if (input_.size() < decoder_.wanted()) return;
  serve_input();
  if (has_drained()) serve_buffered();
}

/// Handles the result of recv(). Returns whether bytes have come.
bool Connection::has_arrived(ssize_t got) {
  if (got > 0) {
    shared_.traffic.received_bytes += static_cast<std::uint64_t>(got);
    return true;
  }
  if (got == 0)
    end(false);
  else if (errno != EAGAIN && errno != EINTR)
    end(true);
  return false;
}

void Connection::feed(std::string_view bytes) {
  replies_.begin_serving();
  while (!bytes.empty() && !has_ended()) {
    if (phase_ != Phase::Serving) {
      input_.append(bytes);
      break;
    }
    if (input_.empty()) {
      bytes.remove_prefix(serve(bytes, nullptr));
      if (!bytes.empty() && !has_ended()) input_.append(bytes);
      break;
    }
    bytes.remove_prefix(input_.top_up(bytes, decoder_.wanted()));
    input_.erase_front(serve(input_.view(), &input_.buffer()));
  }
  end_serving();
  if (has_drained()) serve_buffered();
}

/// Serves the complete requests that were read before.
void Connection::serve_input() {
  replies_.begin_serving();
  input_.erase_front(serve(input_.view(), &input_.buffer()));
  end_serving();
}

void Connection::end_serving() {
  replies_.end_serving();
  count_input();
  flush();
}

/// Serves the complete requests in `bytes`. Returns their number of bytes.
std::size_t Connection::serve(std::string_view bytes, ByteBuffer* buffer) {
  std::size_t served = 0;
  while (served < bytes.size() && phase_ == Phase::Serving) {
    if (!has_room_for_replies()) break;
    const std::string_view rest = bytes.substr(served);
    const auto complete = decoder_.scan(rest);
    if (!complete) {
      refuse(describe(complete.error(), shared_.codec), to_string(complete.error().fault));
      break;
    }
    // Checked before any part of a request is kept that the client is not allowed to send.
    if (decoder_.asks_store() && !store_.is_open() && !store_.open()) break;
    if (!*complete) break;
    if (must_yield()) {
      phase_ = Phase::Yielded;
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
  if (out().size() > limit) replies_.send_next();
  if (out().size() <= limit) return true;
  if (let_in) {
    phase_ = Phase::Paused;
    return false;
  }
  refuse(fmt::format("it reads no replies before it is let in: limit {} bytes", limit),
         "replies are not read before it is let in");
  out().clear();
  phase_ = Phase::Done;
  return false;
}

/// Serves the complete request at the front of `bytes`, and subtracts its cost from the slice.
void Connection::serve_in_slice(std::string_view bytes, ByteBuffer* buffer) {
  const std::uint64_t before = work_so_far();
  auto work = kRequestWork + static_cast<std::int64_t>(decoder_.size());
  if (decoder_.native()) {
    work += kNativeWork + kNativeByteWork * static_cast<std::int64_t>(decoder_.size());
    if (!native_) native_ = std::make_unique<NativeDoor>(*this);
    native_->serve(decoder_.native_message(bytes));
  } else {
    Request request = decoder_.request(bytes, shared_.scratch);
    request.buffer = buffer;
    work += kNameWork * static_cast<std::int64_t>(request.keys.size());
    if (request.query == Query::ListKeys) work += list_work();
    store_.serve(request);
  }
  shared_.work.spend(work + static_cast<std::int64_t>(work_so_far() - before));
}

/// A counter that grows by the cost of each request beyond its own bytes and names.
std::uint64_t Connection::work_so_far() const {
  return shared_.table.account().allocated +
         static_cast<std::uint64_t>(kNameWork) * shared_.table.waiters_seen() +
         (shared_.runs ? static_cast<std::uint64_t>(kRenderWork) * shared_.runs->rendered_nodes()
                       : 0);
}

/// Whether the complete request must wait for a later turn.
bool Connection::must_yield() const {
  auto work = static_cast<std::int64_t>(decoder_.size());
  if (decoder_.lists_keys()) work += list_work();
  return shared_.work.must_yield(work);
}

std::int64_t Connection::list_work() const {
  return kNameWork * static_cast<std::int64_t>(shared_.table.num_names()) +
         static_cast<std::int64_t>(shared_.table.list_bytes());
}

void Connection::resume() {
  if (phase_ == Phase::Yielded) serve_buffered();
}

/// Serves the bytes that were read before a pause. They come before the bytes in the socket.
void Connection::serve_buffered() {
  do {
    phase_ = Phase::Serving;
    serve_input();
  } while (has_drained());
}

/// Whether a pause is over. Must be checked after flush(), too: if flush() has sent everything, no
/// further event for writing comes, and the pause would never end.
bool Connection::has_drained() const {
  return phase_ == Phase::Paused && replies_.unread_bytes() <= shared_.connections.queued_bytes / 2;
}

void Connection::count_input() {
  // After a request with many keys, the scratch memory is released: the views into it are no longer
  // used.
  constexpr std::size_t kScratchKept = 4096;
  if (shared_.scratch.keys.capacity() > kScratchKept) shared_.scratch = RequestScratch{};
  if (!input_.count(native_ ? native_->memory() : 0) || shared_.table.has_room(0)) return;
  refuse(describe(Refusal::TooManyBytes, shared_.limits), to_cause(Refusal::TooManyBytes));
}

void Connection::on_writable() {
  replies_.send_unread();
  if (has_drained()) serve_buffered();
  finish_if_sent();
}

void Connection::on_hang_up() {
  if (yielded()) return;       // Requests that have been read are served first.
  if (!may_read()) end(true);  // Otherwise recv() reports the end, after the last bytes.
}

void Connection::answer(const SharedBytes& text) {
  if (phase_ != Phase::Held) return;
  encode_reply(Value{text}, replies_.unread());
  replies_.send_unread();
  phase_ = Phase::Paused;
  if (has_drained()) serve_buffered();
}

void Connection::push(std::string_view frame) {
  if (replies_.broken() || has_ended()) return;
  if (replies_.unread_bytes() > shared_.connections.queued_bytes) {
    refuse("it does not read what it is sent: limit queued_bytes", "limit queued_bytes");
    phase_ = Phase::Done;
    return;
  }
  replies_.unread().add(frame);
  on_writable();
}

/// Sends the replies to the requests that were just served.
void Connection::flush() {
  replies_.flush();
  finish_if_sent();
}

void Connection::finish_if_sent() {
  if (has_ended() && !replies_.has_unread()) phase_ = Phase::Done;
}

/// The peer sends nothing more. It still gets the queued replies, unless it has reset the
/// connection.
void Connection::end(bool by_reset) {
  begin_ending();
  std::string_view why;
  if (decoder_.begun())
    why = "the client left in the middle of a request";
  else if (shared_.table.is_waiting(id_))
    why = "the client left while it was waiting";
  if (!ending_ && !why.empty())
    ending_ = std::make_unique<ConnectionEnding>(
        ConnectionEnding{.reason = std::string(why), .cause = why, .violation = false});
  runs_.abandon_wait();
  runs_.leave();
  input_.clear();
  count_input();
  if (by_reset || !replies_.has_unread()) phase_ = Phase::Done;
}

void Connection::refuse(std::string reason, std::string_view cause) {
  if (ending_ && ending_->violation) return;
  end_because({.reason = std::move(reason), .cause = cause, .violation = true});
}

void Connection::turn_away(const std::string& reason, std::string_view cause) {
  if (!ending_) end_because({.reason = reason, .cause = cause, .violation = false});
}

void Connection::end_because(ConnectionEnding ending) {
  begin_ending();
  ending_ = std::make_unique<ConnectionEnding>(std::move(ending));
  runs_.abandon_wait();
  runs_.leave();
}

void Connection::begin_ending() {
  if (phase_ != Phase::Done) phase_ = Phase::Ending;
}

std::string Connection::at_offset(const std::string& reason) const {
  return fmt::format("{}; in the request at byte {}", reason, decoder_.offset());
}

}  // namespace muster
