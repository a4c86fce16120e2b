#include "agent/io/shim_link.h"

#include <cerrno>
#include <utility>

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

ShimLink::ShimLink(asio::io_context& io, int socket, Handlers handlers)
    : socket_(io, socket), handlers_(std::move(handlers)) {
  wait_to_read();
}

void ShimLink::send(const ShimRequest& request, std::vector<OwnedFd> fds) {
  queue_.push_back({request, std::move(fds)});
  if (!waiting_to_write_) flush();
}

void ShimLink::flush() {
  while (!queue_.empty() && !lost_) {
    const Waiting& next = queue_.front();
    const error_code error = send_message(socket_.native_handle(), next.request, next.fds);
    if (error.value() == EAGAIN || error.value() == ETOOMANYREFS) {
      waiting_to_write_ = true;
      socket_.async_wait(asio::posix::descriptor_base::wait_write, [this](error_code ec) {
        waiting_to_write_ = false;
        if (!ec) flush();
      });
      return;
    }
    queue_.pop_front();
    if (error) return mark_lost();
  }
}

void ShimLink::wait_to_read() {
  socket_.async_wait(asio::posix::descriptor_base::wait_read, [this](error_code ec) {
    if (!ec) receive_reports();
  });
}

void ShimLink::receive_reports() {
  for (;;) {
    const auto received = receive_message<ShimReport>(socket_.native_handle());
    if (!received) {
      if (received.error().value() == EAGAIN) return wait_to_read();
      return mark_lost();
    }
    handlers_.on_report(received->message);
  }
}

void ShimLink::mark_lost() {
  if (std::exchange(lost_, true)) return;
  handlers_.on_lost();
}

}  // namespace muster
