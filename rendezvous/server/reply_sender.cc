#include "rendezvous/server/reply_sender.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace muster {

namespace {

constexpr std::size_t kPieces = 64;  // The most pieces of a queue that one system call sends.

}  // namespace

void ReplySender::flush() {
  if (shared_.replies.empty()) return;
  send(shared_.replies);
  if (!shared_.replies.empty()) unread_.append(shared_.replies);
}

void ReplySender::send_byte(std::uint8_t byte) {
  if (broken_) return;
  if (unread_.empty()) {
    const ssize_t sent = ::send(socket_.fd(), &byte, 1, MSG_NOSIGNAL);
    if (sent == 1) {
      ++shared_.traffic.sent_bytes;
      return;
    }
    broken_ = errno != EAGAIN && errno != EINTR;
    if (broken_) return;
  }
  unread_.add_byte(byte);
}

void ReplySender::send(ReplyQueue& queue) {
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
    const ssize_t sent = count == 1
                             ? ::send(socket_.fd(), vectors[0].iov_base, offered, MSG_NOSIGNAL)
                             : ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      // The peer has reset the connection: its earlier requests are still served, without replies.
      if (errno != EAGAIN) broken_ = true;
      break;
    }
    queue.consume(static_cast<std::size_t>(sent));
    shared_.traffic.sent_bytes += static_cast<std::uint64_t>(sent);
    shared_.work.spend(sent);
    if (static_cast<std::size_t>(sent) < offered) break;
  }
  if (broken_) queue.clear();
  if (&queue == &unread_ && queue.empty()) unread_ = ReplyQueue{};
}

}  // namespace muster
