#include "rendezvous/tls/tls_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace muster {

namespace {

/// Whether a call that has failed may succeed later.
bool is_temporary(int error) {
  return error == EAGAIN || error == EINTR;
}

/// Sends as many bytes as the socket accepts, and removes them from `bytes`. Returns false if
/// nothing more can be sent; errno says why.
bool send_some(int fd, std::string& bytes) {
  std::size_t sent = 0;
  bool works = true;
  while (sent < bytes.size()) {
    const ssize_t more = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (more > 0) {
      sent += static_cast<std::size_t>(more);
      continue;
    }
    works = is_temporary(errno);
    break;
  }
  bytes.erase(0, sent);
  return works;
}

}  // namespace

TlsLink::TlsLink(OwnedFd tcp, OwnedFd plain, std::unique_ptr<TlsEngine> engine,
                 std::shared_ptr<TlsStatus> status)
    : tcp_(std::move(tcp)),
      plain_(std::move(plain)),
      engine_(std::move(engine)),
      status_(std::move(status)) {}

TlsLink::~TlsLink() {
  status_->forget_tcp();
}

std::uint32_t TlsLink::tcp_interest() const {
  if (phase_ == Phase::Over || tcp_ended_) return to_tcp_.empty() ? 0U : EPOLLOUT;
  // In Draining the plain side reads no more, so nothing is read. In Closing bytes are discarded.
  const bool reads = phase_ == Phase::Closing || (to_plain_.empty() && phase_ != Phase::Draining);
  return (reads ? EPOLLIN : 0U) | (to_tcp_.empty() ? 0U : EPOLLOUT);
}

std::uint32_t TlsLink::plain_interest() const {
  if (plain_.get() < 0 || phase_ == Phase::Over) return 0;
  const std::uint32_t in = to_tcp_.empty() ? EPOLLIN : 0U;
  if (phase_ == Phase::Handshake) return EPOLLRDHUP;
  if (phase_ == Phase::Draining) return in;
  return EPOLLRDHUP | in | (to_plain_.empty() ? 0U : EPOLLOUT);
}

void TlsLink::on_tcp(std::uint32_t events) {
  if (phase_ == Phase::Over) return;
  if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) send_to_tcp();
  const bool reads = (tcp_interest() & EPOLLIN) != 0;
  if (reads && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) read_tcp();
}

void TlsLink::on_plain(std::uint32_t events) {
  if (phase_ == Phase::Over || plain_.get() < 0) return;
  const bool closed = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (closed && phase_ == Phase::Handshake) return end();
  if ((events & EPOLLOUT) != 0 && phase_ == Phase::Open) deliver();
  if (closed && phase_ == Phase::Open) {
    phase_ = Phase::Draining;
    to_plain_.clear();
  }
  const bool reads = (plain_interest() & EPOLLIN) != 0;
  if (reads && (closed || (events & EPOLLIN) != 0)) read_plain();
}

void TlsLink::time_out() {
  if (phase_ == Phase::Handshake)
    fail({TlsFailure::Kind::Lost, "the TLS handshake was not done in time"});
  end();
}

void TlsLink::read_tcp() {
  std::array<char, kMaxReadBytes> bytes;
  const ssize_t got = ::recv(tcp_.get(), bytes.data(), read_bytes_, 0);
  if (got < 0 && is_temporary(errno)) return;
  if (got > 0) status_->note_received();
  if (got <= 0) tcp_ended_ = true;
  if (phase_ == Phase::Closing) {
    if (tcp_ended_ && (got < 0 || to_tcp_.empty())) end();
    return;
  }
  if (got < 0) return fail({TlsFailure::Kind::Lost, std::strerror(errno)});
  decrypted_bytes_ = decrypted_pieces_ = 0;
  if (got > 0)
    engine_->receive({bytes.data(), static_cast<std::size_t>(got)});
  else
    engine_->end_of_input();
  deliver();
  const bool small_records = decrypted_bytes_ < kSmallRecordBytes * decrypted_pieces_;
  read_bytes_ = small_records ? kLeastReadBytes : std::min(2 * read_bytes_, kMaxReadBytes);
}

// Decrypts, and passes on as many bytes as the plain side accepts.
void TlsLink::deliver() {
  std::array<char, kPieceBytes> bytes;
  while (send_to_plain()) {
    // Small records are collected: sending each one by itself would cost more than decrypting it.
    std::size_t size = 0;
    while (size < bytes.size()) {
      const std::size_t got = engine_->read(bytes.data() + size, bytes.size() - size);
      if (got == 0) break;
      size += got;
      ++decrypted_pieces_;
    }
    record_peer_names();
    if (size == 0) break;
    decrypted_bytes_ += size;
    to_plain_.assign(bytes.data(), size);
  }
  if (phase_ == Phase::Over) return;
  if (phase_ == Phase::Handshake && engine_->state() != TlsEngine::State::Handshake)
    if (engine_->state() != TlsEngine::State::Failed) phase_ = Phase::Open;
  send_to_tcp();
  if (phase_ == Phase::Over || phase_ == Phase::Closing || !to_plain_.empty()) return;
  if (engine_->state() == TlsEngine::State::Failed) return fail(engine_->failure());
  if (engine_->state() == TlsEngine::State::Ended) begin_closing();
}

/// Records the names once, when the handshake is done: the plain side may need them when it reads
/// the first byte.
void TlsLink::record_peer_names() {
  if (peer_names_recorded_ || engine_->state() == TlsEngine::State::Handshake) return;
  peer_names_recorded_ = true;
  status_->set_peer_names(engine_->peer_names());
}

/// Sends to the plain side. Returns whether there is room for more bytes.
bool TlsLink::send_to_plain() {
  if (to_plain_.empty()) return true;
  if (!send_some(plain_.get(), to_plain_)) {
    to_plain_.clear();  // The plain side has closed. Reading from it reports that.
    return false;
  }
  return to_plain_.empty();
}

void TlsLink::send_to_tcp() {
  while (!tcp_broken_) {
    if (to_tcp_.empty()) to_tcp_ = engine_->take_outgoing();
    if (to_tcp_.empty()) break;
    // Bytes that the peer has sent before the failure are still read: they may have the reason.
    tcp_broken_ = !send_some(tcp_.get(), to_tcp_);
    if (!to_tcp_.empty()) break;
  }
  if (tcp_broken_) {
    to_tcp_.clear();
    engine_->take_outgoing();
  }
  if (phase_ != Phase::Closing || !to_tcp_.empty()) return;
  if (tcp_broken_ || tcp_ended_) return end();
  if (!std::exchange(fin_sent_, true)) ::shutdown(tcp_.get(), SHUT_WR);
}

void TlsLink::read_plain() {
  std::array<char, kPieceBytes> bytes;
  const ssize_t got = ::recv(plain_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && is_temporary(errno)) return;
  if (got <= 0) return begin_closing();
  engine_->write({bytes.data(), static_cast<std::size_t>(got)});
  send_to_tcp();
}

void TlsLink::close_plain() {
  plain_.reset();
  to_plain_.clear();
}

void TlsLink::begin_closing() {
  engine_->close();
  close_plain();
  phase_ = Phase::Closing;
  send_to_tcp();
}

void TlsLink::fail(TlsFailure failure) {
  failure_ = failure;
  status_->set_failure(std::move(failure));
  begin_closing();
}

}  // namespace muster
