#include "base/net/http_connection.h"

#include <cstdint>
#include <memory>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/net/no_throw.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using HttpParser = http::response_parser<http::string_body>;

namespace {

// The buffer holds a head, or what one read gives of a body.
constexpr std::size_t kReadBytes = std::size_t{64} << 10;

http::request<http::string_body> beast_request(HttpRequest&& from) {
  http::request<http::string_body> request(from.posts ? http::verb::post : http::verb::get,
                                           from.target, 11);
  for (const auto& [name, value] : from.fields)
    request.insert(name, value);
  request.body() = std::move(from.body);
  request.prepare_payload();
  return request;
}

}  // namespace

struct HttpConnection::Stream {
  Stream(const asio::any_io_executor& executor, HttpLimits given)
      : tcp(executor), limits(given), buffer(given.head_bytes + kReadBytes) {}
  void begin_reply() {
    parser = std::make_unique<HttpParser>();
    parser->header_limit(static_cast<std::uint32_t>(limits.head_bytes));
    parser->body_limit(limits.body_bytes);
  }

  beast::tcp_stream tcp;
  HttpLimits limits;
  beast::flat_buffer buffer;
  std::unique_ptr<HttpParser> parser;  // Of the latest reply. Null before the first request.
};

HttpConnection::HttpConnection(const asio::any_io_executor& executor, HttpLimits limits)
    : stream_(std::make_unique<Stream>(executor, limits)) {}

HttpConnection::~HttpConnection() = default;

asio::ip::tcp::socket& HttpConnection::socket() {
  return stream_->tcp.socket();
}

bool HttpConnection::has_head() const {
  return stream_->parser && stream_->parser->is_header_done();
}

asio::awaitable<error_code> HttpConnection::send(HttpRequest request, Instant deadline) {
  stream_->begin_reply();
  stream_->tcp.expires_at(to_steady(deadline));
  const auto bytes = beast_request(std::move(request));
  auto [error, sent] = co_await http::async_write(stream_->tcp, bytes, kNoThrow);
  co_return error;
}

asio::awaitable<boost::system::result<HttpReply>> HttpConnection::exchange(HttpRequest request,
                                                                           Instant deadline) {
  if (const error_code error = co_await send(std::move(request), deadline); error) co_return error;
  HttpParser& parser = *stream_->parser;
  auto [head_error, head_bytes] =
      co_await http::async_read_header(stream_->tcp, stream_->buffer, parser, kNoThrow);
  if (head_error) co_return head_error;
  if (stream_->limits.needs_length && !parser.content_length())
    co_return make_error_code(http::error::bad_content_length);
  auto [error, bytes] = co_await http::async_read(stream_->tcp, stream_->buffer, parser, kNoThrow);
  if (error) co_return error;
  http::response<http::string_body>& reply = parser.get();
  HttpReply result{.status = reply.result_int(),
                   .keep_alive = reply.keep_alive(),
                   .body = std::move(reply.body())};
  const auto [first, last] = reply.equal_range(http::field::www_authenticate);
  for (auto field = first; field != last; ++field)
    result.challenges.emplace_back(field->value());
  co_return result;
}

asio::awaitable<boost::system::result<HttpPart>> HttpConnection::read_part(Instant deadline) {
  stream_->tcp.expires_at(to_steady(deadline));
  HttpParser& parser = *stream_->parser;
  parser.body_limit(boost::none);  // Only of all parts together: the caller bounds each.
  auto [error, bytes] =
      co_await http::async_read_some(stream_->tcp, stream_->buffer, parser, kNoThrow);
  if (error) co_return error;
  HttpPart part;
  if (!parser.is_header_done()) co_return part;
  part.status = parser.get().result_int();
  part.body = std::exchange(parser.get().body(), {});
  part.is_last = parser.is_done();
  co_return part;
}

error_code http_timeout() {
  return make_error_code(beast::error::timeout);
}

bool is_http_timeout(const error_code& error) {
  return error == beast::error::timeout;
}

bool is_http_too_long(const error_code& error) {
  return error == http::error::body_limit || error == http::error::buffer_overflow;
}

bool is_http_closed(const error_code& error) {
  return error == http::error::end_of_stream || error == asio::error::connection_reset;
}

bool is_http_cut_off(const error_code& error) {
  return error == http::error::partial_message;
}

bool is_no_http_reply(const error_code& error) {
  return error.category() == make_error_code(http::error::end_of_stream).category() &&
         !is_http_too_long(error);
}

}  // namespace muster
