#include "rendezvous/net/store_exchange.h"

#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/endian/conversion.hpp>

#include "rendezvous/net/clock.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/name_lookup.h"
#include "rendezvous/net/no_throw.h"
#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/reply_reader.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Duration kRetryFirst = std::chrono::milliseconds(50);
constexpr Duration kRetryMost = std::chrono::seconds(2);
// If a name server does not answer, the resolver asks the next one after 5 s.
constexpr Duration kResolveMost = std::chrono::seconds(15);
// The time limit of one try, if there are several. The kernel may wait up to half a minute before
// it sends a lost SYN again, and the name may have another address by then.
constexpr Duration kTryMost = std::chrono::seconds(5);

// The destructor of Boost's error_category is not virtual, because categories are never deleted
// through their base class.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
class StoreCategory final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "muster.store"; }
  std::string message(int code) const override {
    switch (static_cast<StoreErrc>(code)) {
      case StoreErrc::ConnectTimedOut:
        return "the store did not answer in time";
      case StoreErrc::WaitTimedOut:
        return "the wait has ended without a result: its time is over";
      case StoreErrc::ReplyTimedOut:
        return "the store is connected, but does not answer a request in time";
      case StoreErrc::Closed:
        return "the store has closed the connection";
      case StoreErrc::UnexpectedReply:
        return "the answer is not a store's";
      case StoreErrc::ReplyTooLarge:
        return "the answer is too large";
      case StoreErrc::QueueEmpty:
        return "the queue is empty";
      case StoreErrc::ResolveTimedOut:
        return "no name server has answered in time";
    }
    return "unknown";
  }
};
#pragma GCC diagnostic pop

}  // namespace

const boost::system::error_category& store_category() {
  static const StoreCategory category;
  return category;
}

std::string bytes_of(const Request& request) {
  std::string bytes;
  encode_request(request, bytes);
  return bytes;
}

StoreExchange::Awaitable StoreExchange::with_deadline(Instant deadline,
                                                      asio::awaitable<error_code> work,
                                                      StoreErrc timed_out) {
  deadline_.expires_at(to_steady(deadline));
  const auto done = co_await (std::move(work) || deadline_.async_wait(kNoThrow));
  const auto* ec = std::get_if<0>(&done);
  co_return ec != nullptr ? *ec : make_error_code(timed_out);
}

StoreExchange::Awaitable StoreExchange::resolve(std::vector<tcp::endpoint>& endpoints,
                                                Duration limit) {
  NameLookup found;
  found.addresses = options_.addresses;
  if (found.addresses.empty()) {
    std::string name = options_.host;
    found = co_await look_up(std::move(name), limit);
  }
  for (const std::string& text : found.addresses) {
    error_code not_numeric;
    const auto address = asio::ip::make_address(text, not_numeric);
    if (!not_numeric) endpoints.emplace_back(address, options_.port);
  }
  co_return found.error;
}

StoreExchange::Awaitable StoreExchange::no_reply() {
  co_return error_code();
}

/// Ranks the errors of a name's addresses. "Refused" means that no server is there, so it counts
/// only if each address that this machine can reach says so.
int error_priority(const error_code& ec) {
  using namespace boost::system::errc;
  const bool unreachable = ec == network_unreachable || ec == address_not_available ||
                           ec == address_family_not_supported;
  if (unreachable) return 0;
  return ec == connection_refused ? 1 : 2;
}

// Each address gets its share of the time, because the first one may not answer at all.
StoreExchange::Awaitable StoreExchange::connect_any(std::vector<tcp::endpoint> endpoints,
                                                    Instant deadline) {
  error_code worst = asio::error::host_not_found;
  asio::steady_timer limit(socket_.get_executor());
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    close();
    const auto left = static_cast<Duration::rep>(endpoints.size() - i);
    limit.expires_after((deadline - now()) / left);
    const auto done =
        co_await (socket_.async_connect(endpoints[i], kNoThrow) || limit.async_wait(kNoThrow));
    const auto* connected = std::get_if<0>(&done);
    const error_code ec = connected != nullptr ? std::get<0>(*connected)
                                               : make_error_code(StoreErrc::ConnectTimedOut);
    if (!ec) co_return ec;
    if (i == 0 || error_priority(ec) >= error_priority(worst)) worst = ec;
  }
  co_return worst;
}

StoreExchange::Awaitable StoreExchange::connect_once(std::vector<tcp::endpoint> endpoints,
                                                     Instant deadline) {
  const error_code connect_error = co_await connect_any(std::move(endpoints), deadline);
  if (connect_error) co_return connect_error;
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  if (const error_code no_tls = begin_tls(); no_tls) co_return no_tls;
  std::string greeting = bytes_of({.query = Query::Validate, .number = c10d::kValidationMagic});
  if (options_.ping) greeting += bytes_of({.query = Query::Ping, .number = ::getpid()});
  auto [write_error, written] =
      co_await asio::async_write(socket_, asio::buffer(greeting), kNoThrow);
  if (write_error) co_return write_error;
  if (!options_.ping) co_return error_code();
  co_return co_await read_nonce();
}

error_code StoreExchange::begin_tls() {
  if (!options_.tls) return {};
  const std::string& name = options_.tls_name.empty() ? options_.host : options_.tls_name;
  auto secured = secure_socket(socket_, *options_.tls, name);
  if (!secured) return secured.error();
  secured_ = *std::move(secured);
  return {};
}

StoreExchange::Awaitable StoreExchange::read_nonce() {
  std::array<unsigned char, 4> nonce{};
  if (const error_code ec = co_await read(nonce.data(), nonce.size()); ec) co_return ec;
  const bool ours =
      boost::endian::load_little_u32(nonce.data()) == static_cast<std::uint32_t>(::getpid());
  co_return ours ? error_code() : make_error_code(StoreErrc::UnexpectedReply);
}

StoreExchange::Awaitable StoreExchange::connect() {
  const Instant deadline = now() + options_.timeout;
  Duration pause = kRetryFirst;
  for (;;) {
    close();
    secured_ = {};
    std::vector<tcp::endpoint> endpoints;
    error_code ec = co_await resolve(endpoints, std::min<Duration>(deadline - now(), kResolveMost));
    if (!ec) {
      const Instant until = options_.retry ? std::min(deadline, now() + kTryMost) : deadline;
      auto trying = connect_once(std::move(endpoints), until);
      ec = co_await with_deadline(until, std::move(trying), StoreErrc::ConnectTimedOut);
    }
    if (!ec) co_return ec;
    close();
    const bool final_no =
        ec == StoreErrc::UnexpectedReply || tls_failure().kind == TlsFailure::Kind::Refused;
    if (!options_.retry || final_no) co_return ec;
    if (now() + pause >= deadline) co_return ec;  // This error says more than ConnectTimedOut.
    deadline_.expires_after(pause);
    co_await deadline_.async_wait(kNoThrow);
    pause = std::min(2 * pause, kRetryMost);
  }
}

void StoreExchange::set_lost_after(Duration time) {
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(time);
  if (secured_.status) return secured_.status->set_lost_after(whole);
  const auto ms = static_cast<unsigned>(whole.count());
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

asio::ip::address StoreExchange::local_address() const {
  if (secured_.status) return unmapped(secured_.local.address());
  error_code ec;
  const tcp::endpoint endpoint = socket_.local_endpoint(ec);
  return ec ? asio::ip::address() : unmapped(endpoint.address());
}

asio::ip::address StoreExchange::remote_address() const {
  if (secured_.status) return unmapped(secured_.remote.address());
  error_code ec;
  const tcp::endpoint endpoint = socket_.remote_endpoint(ec);
  return ec ? asio::ip::address() : unmapped(endpoint.address());
}

StoreExchange::Awaitable StoreExchange::read(void* to, std::size_t size) {
  auto [ec, got] = co_await asio::async_read(socket_, asio::buffer(to, size), kNoThrow);
  if (ec == asio::error::eof || ec == asio::error::connection_reset)
    co_return make_error_code(StoreErrc::Closed);
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::read_reply(ReplyReader& reader) {
  for (std::span<char> to = reader.wanted(); !to.empty(); to = reader.wanted()) {
    if (const error_code ec = co_await read(to.data(), to.size()); ec) co_return ec;
    if (const auto taken = reader.received(); !taken)
      co_return make_error_code(taken.error() == ReplyFault::TooLarge ? StoreErrc::ReplyTooLarge
                                                                      : StoreErrc::UnexpectedReply);
  }
  co_return error_code();
}

StoreExchange::Awaitable StoreExchange::read_number(std::int64_t& number) {
  ReplyReader reader = ReplyReader::number();
  const error_code ec = co_await read_reply(reader);
  number = reader.value();
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::read_text(std::string& text) {
  ReplyReader reader = ReplyReader::text(options_.reply_bytes);
  const error_code ec = co_await read_reply(reader);
  if (!ec) text = std::move(reader.found().front());
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::read_texts(std::vector<std::string>& texts) {
  ReplyReader reader = ReplyReader::texts(texts.size(), options_.reply_bytes);
  const error_code ec = co_await read_reply(reader);
  if (!ec) texts = std::move(reader.found());
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::read_list(std::vector<std::string>& texts) {
  ReplyReader reader = ReplyReader::list(options_.reply_bytes);
  const error_code ec = co_await read_reply(reader);
  if (!ec) texts = std::move(reader.found());
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::read_popped(std::int64_t& length, std::string& text) {
  ReplyReader reader = ReplyReader::popped(options_.reply_bytes);
  const error_code ec = co_await read_reply(reader);
  length = reader.value();
  if (!ec && !reader.found().empty()) text = std::move(reader.found().front());
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::write_then(const std::string& bytes,
                                                   asio::awaitable<error_code> reply) {
  auto [ec, sent] = co_await asio::async_write(socket_, asio::buffer(bytes), kNoThrow);
  if (ec == asio::error::broken_pipe || ec == asio::error::connection_reset)
    co_return make_error_code(StoreErrc::Closed);
  if (ec) co_return ec;
  co_return co_await std::move(reply);
}

StoreExchange::Awaitable StoreExchange::ask(std::string bytes, asio::awaitable<error_code> reply) {
  if (!connected()) co_return make_error_code(StoreErrc::Closed);
  auto work = write_then(bytes, std::move(reply));
  const error_code ec = co_await with_deadline(now() + options_.reply_timeout, std::move(work),
                                               StoreErrc::ReplyTimedOut);
  if (ec) close();  // A late reply would be taken for the reply to the next request.
  co_return ec;
}

StoreExchange::Awaitable StoreExchange::send(std::string bytes) {
  co_return co_await ask(std::move(bytes), no_reply());
}

StoreExchange::Awaitable StoreExchange::wait(std::string bytes, Duration timeout) {
  if (!connected()) co_return make_error_code(StoreErrc::Closed);
  std::uint8_t answer = 0;
  auto work = write_then(bytes, read_byte(answer));
  const error_code ec =
      co_await with_deadline(now() + timeout, std::move(work), StoreErrc::WaitTimedOut);
  if (!ec && answer == kStopWaiting.value) co_return ec;
  if (ec == StoreErrc::WaitTimedOut) {
    const error_code cancelled = co_await cancel_wait();
    co_return cancelled ? cancelled : ec;
  }
  close();
  co_return ec ? ec : make_error_code(StoreErrc::UnexpectedReply);
}

// The key may be set while the cancellation is under way. Then the server sends 00 before 01.
StoreExchange::Awaitable StoreExchange::cancel_wait() {
  std::uint8_t answer = 0;
  auto first = read_byte(answer);
  error_code ec = co_await ask(bytes_of({.query = Query::CancelWait}), std::move(first));
  if (!ec && answer == kStopWaiting.value) {
    auto second = read_byte(answer);
    ec = co_await ask({}, std::move(second));
  }
  if (!ec && answer != kWaitCanceled.value) {
    close();
    ec = make_error_code(StoreErrc::UnexpectedReply);
  }
  co_return ec;
}

}  // namespace muster
