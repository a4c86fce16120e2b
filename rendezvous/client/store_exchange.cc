#include "rendezvous/client/store_exchange.h"

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

#include "base/net/connect_any.h"
#include "base/net/connect_errors.h"
#include "base/net/listener.h"
#include "base/net/name_lookup.h"
#include "base/net/no_throw.h"
#include "base/net/unmapped.h"
#include "base/system/clock.h"
#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/store/reply_reader.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Duration kRetryFirst = std::chrono::milliseconds(50);
constexpr Duration kMaxRetry = std::chrono::seconds(2);
// How long a try waits for newer addresses when the remembered ones have not worked.
constexpr Duration kMaxAnew = std::chrono::seconds(2);
// The time limit of one try, if there are several. The kernel may wait up to half a minute before
// it sends a lost SYN again, and the name may have another address by then.
constexpr Duration kMaxTry = std::chrono::seconds(5);

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
      case StoreErrc::SpeaksHttp:
        return "the answer is not a store's, but HTTP: is this the port of --http? Nodes meet at "
               "the port of --port";
      case StoreErrc::ReplyTooLarge:
        return "the answer is too large";
      case StoreErrc::QueueEmpty:
        return "the queue is empty";
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

asio::awaitable<NameLookup> StoreExchange::resolve(Duration limit) {
  NameLookup found;
  found.addresses = options_.addresses;
  if (!found.addresses.empty()) co_return found;
  std::string name = options_.host;
  co_return co_await look_up(std::move(name), limit);
}

StoreExchange::Awaitable StoreExchange::no_reply() {
  co_return error_code();
}

/// Tries the addresses once. The server's answer has a limit of its own, if one is given.
StoreExchange::Awaitable StoreExchange::connect_once(std::vector<tcp::endpoint> endpoints,
                                                     Instant deadline) {
  close();
  secured_ = {};
  accepted_ = false;
  auto connecting = connect_any(socket_, std::move(endpoints), deadline,
                                make_error_code(StoreErrc::ConnectTimedOut));
  const error_code ec =
      co_await with_deadline(deadline, std::move(connecting), StoreErrc::ConnectTimedOut);
  if (ec) co_return ec;
  accepted_ = true;
  Instant answer_by = deadline;
  if (options_.answer_timeout)
    answer_by = std::min(later(now(), *options_.answer_timeout), options_.give_up_at);
  auto greeting = greet();
  auto patience = wait_for_answer(answer_by);
  const auto done = co_await (std::move(greeting) || std::move(patience));
  const auto* answered = std::get_if<0>(&done);
  co_return answered != nullptr ? *answered : make_error_code(StoreErrc::ConnectTimedOut);
}

/// Waits until the server has had its time to answer. A server that has begun the TLS handshake has
/// come to this client, so it gets as much time once more.
asio::awaitable<void> StoreExchange::wait_for_answer(Instant until) {
  const Duration length = until - now();
  for (bool again : {true, false}) {
    deadline_.expires_at(to_steady(until));
    if (auto [ec] = co_await deadline_.async_wait(kNoThrow); ec) co_return;
    if (!again || !secured_.status || !secured_.status->has_received()) co_return;
    until = std::min(later(until, length), options_.give_up_at);
  }
}

StoreExchange::Awaitable StoreExchange::greet() {
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
  if (ours) co_return error_code();
  constexpr std::array<unsigned char, 4> kHttp{'H', 'T', 'T', 'P'};
  co_return make_error_code(nonce == kHttp ? StoreErrc::SpeaksHttp : StoreErrc::UnexpectedReply);
}

/// Looks up the name, and tries its addresses once. Remembered addresses that do not work are
/// looked up again: the server may have moved.
StoreExchange::Awaitable StoreExchange::connect_by_name(Instant deadline) {
  close();
  secured_ = {};
  accepted_ = false;
  const Instant most = options_.retry ? deadline : later(now(), options_.resolve_timeout);
  const NameLookup found = co_await resolve(std::min<Duration>(most - now(), kMaxName));
  if (found.error) co_return found.error;
  error_code ec =
      co_await connect_once(endpoints_of(found.addresses, options_.port), try_until(deadline));
  if (!ec || !found.stale) co_return ec;
  std::string name = options_.host;
  const NameLookup anew =
      co_await look_up_anew(std::move(name), std::min<Duration>(most - now(), kMaxAnew));
  const bool confirmed = !anew.stale && !anew.error;
  if (confirmed && anew.addresses != found.addresses)
    co_return co_await connect_once(endpoints_of(anew.addresses, options_.port),
                                    try_until(deadline));
  // Nobody knows whether the server is still there, so that its machine refuses says nothing.
  if (!confirmed && ec == boost::system::errc::connection_refused) co_return found.stale;
  co_return ec;
}

/// The end of a try that begins now. With several tries there is a limit for each. The time of the
/// look-up does not count for the only one.
Instant StoreExchange::try_until(Instant deadline) const {
  const Instant until =
      options_.retry ? std::min(deadline, now() + kMaxTry) : later(now(), options_.timeout);
  return std::min(until, options_.give_up_at);
}

StoreExchange::Awaitable StoreExchange::connect() {
  const Instant deadline = later(now(), options_.timeout);
  Duration pause = kRetryFirst;
  machine_has_family(false);  // Remembers which addresses this machine has while all is well.
  for (;;) {
    const error_code ec = co_await connect_by_name(deadline);
    if (!ec) co_return ec;
    close();
    const bool final_no = ec == StoreErrc::UnexpectedReply || ec == StoreErrc::SpeaksHttp ||
                          tls_failure().kind == TlsFailure::Kind::Refused;
    if (!options_.retry || final_no) co_return ec;
    if (now() + pause >= deadline) co_return ec;  // This error says more than ConnectTimedOut.
    deadline_.expires_after(pause);
    co_await deadline_.async_wait(kNoThrow);
    pause = std::min(2 * pause, kMaxRetry);
  }
}

void StoreExchange::set_lost_after(Duration time) {
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(time);
  if (secured_.status) return secured_.status->set_lost_after(whole);
  const auto ms = static_cast<unsigned>(whole.count());
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

tcp::endpoint StoreExchange::local_endpoint() const {
  error_code ec;
  return secured_.status ? secured_.local : socket_.local_endpoint(ec);
}

tcp::endpoint StoreExchange::remote_endpoint() const {
  error_code ec;
  return secured_.status ? secured_.remote : socket_.remote_endpoint(ec);
}

asio::ip::address StoreExchange::local_address() const {
  return unmapped(local_endpoint().address());
}

asio::ip::address StoreExchange::remote_address() const {
  return unmapped(remote_endpoint().address());
}

std::string StoreExchange::local_end() const {
  return end_text(local_endpoint());
}

std::string StoreExchange::remote_end() const {
  return end_text(remote_endpoint());
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
