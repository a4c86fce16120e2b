// A client with a blocking connection and a time limit, which can send any bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace muster::testing {

class BlockingClient {
 public:
  explicit BlockingClient(std::uint16_t port, const char* host = "127.0.0.1") : socket_(loop_) {
    socket_.connect({boost::asio::ip::make_address(host), port});
    socket_.set_option(boost::asio::ip::tcp::no_delay(true));
    const timeval patience{20, 0};  // A limit for answers that should come at once.
    ::setsockopt(fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  /// Sends as many bytes as the server accepts. That the server has closed the connection is no
  /// failure here.
  BlockingClient& send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return *this;
  }
  std::string receive(std::size_t bytes) {
    std::string got(bytes, '\0');
    std::size_t size = 0;
    while (size < bytes) {
      const ssize_t part = ::recv(fd(), got.data() + size, bytes - size, 0);
      if (part <= 0) break;
      size += static_cast<std::size_t>(part);
    }
    got.resize(size);
    return got;
  }
  /// Whether the server closes the connection, possibly after sending more bytes.
  bool closed() {
    char ignored = 0;
    for (;;) {
      const ssize_t got = ::recv(fd(), &ignored, 1, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }
  /// Whether bytes can be read within this time.
  bool readable(int milliseconds = 0) {
    pollfd watch{fd(), POLLIN, 0};
    return ::poll(&watch, 1, milliseconds) > 0;
  }
  int fd() { return socket_.native_handle(); }

 private:
  boost::asio::io_context loop_;

 protected:
  boost::asio::ip::tcp::socket socket_;
};

}  // namespace muster::testing
