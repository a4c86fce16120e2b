// A client's HTTP/1.1 on one connection, with limits for time and size. For etcd and for musterd's
// HTTP. Whoever uses it connects the socket, and may put TLS on it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include "base/time.h"

namespace muster {

struct HttpRequest {
  bool posts = false;  // Else GET.
  std::string target;
  std::vector<std::pair<std::string, std::string>> fields = {};  // Sent in this order.
  std::string body = {};                                         // Only of POST.
};

struct HttpReply {
  unsigned status = 0;
  bool keep_alive = false;                   // Whether the connection may be used again.
  std::vector<std::string> challenges = {};  // The fields WWW-Authenticate.
  std::string body = {};
};

struct HttpPart {
  unsigned status = 0;  // 0: the head is not complete yet.
  std::string body = {};
  bool is_last = false;
};

struct HttpLimits {
  std::size_t head_bytes = std::size_t{8} << 10;
  std::size_t body_bytes = 0;
  bool needs_length = false;  // A reply without Content-Length is an error.
};

/// To be used on one thread, by one coroutine at a time. After an error, the connection is of no
/// more use.
class HttpConnection {
 public:
  HttpConnection(const boost::asio::any_io_executor& executor, HttpLimits limits);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  boost::asio::ip::tcp::socket& socket();

  boost::asio::awaitable<boost::system::error_code> send(HttpRequest request, Instant deadline);
  /// Sends a request and reads its reply, whatever the status is.
  boost::asio::awaitable<boost::system::result<HttpReply>> exchange(HttpRequest request,
                                                                    Instant deadline);
  /// Reads the next part of a reply whose body has no end, after send().
  boost::asio::awaitable<boost::system::result<HttpPart>> read_part(Instant deadline);
  /// Whether the head of the latest reply has arrived.
  bool has_head() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

/// What an error of HttpConnection means. The deadline has passed:
boost::system::error_code http_timeout();
bool is_http_timeout(const boost::system::error_code& error);
/// The reply is larger than the limit for its body.
bool is_http_too_long(const boost::system::error_code& error);
/// The connection was closed, and nothing of a reply had arrived.
bool is_http_closed(const boost::system::error_code& error);
/// The connection was closed within a reply.
bool is_http_cut_off(const boost::system::error_code& error);
/// What has arrived is no reply of HTTP, or only a part of one.
bool is_no_http_reply(const boost::system::error_code& error);

}  // namespace muster
