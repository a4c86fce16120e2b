#include "rendezvous/client/store_client.h"

#include <utility>

#include "rendezvous/client/store_exchange.h"
#include "rendezvous/store/c10d_codec.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::string_view kPrefix = "/";  // torch's TCPStore puts it before every key.

std::string prefixed(std::string_view key) {
  std::string name;
  name.reserve(kPrefix.size() + key.size());
  name.append(kPrefix);
  name.append(key);
  return name;
}

std::vector<std::string> prefixed(std::vector<std::string> keys) {
  for (std::string& key : keys)
    key = prefixed(std::string_view(key));
  return keys;
}

Duration wait_limit(const StoreClientOptions& options) {
  return options.wait_timeout.value_or(options.timeout);
}

std::string keys_request(Query query, const std::vector<std::string>& keys,
                         const std::vector<std::string>& values = {}) {
  const std::vector<std::string_view> key_views(keys.begin(), keys.end());
  const std::vector<std::string_view> value_views(values.begin(), values.end());
  std::string bytes;
  encode_request({.query = query, .keys = key_views, .values = value_views}, bytes);
  return bytes;
}

}  // namespace

StoreClient::StoreClient(const asio::any_io_executor& executor, StoreClientOptions options)
    : impl_(std::make_unique<StoreExchange>(executor, std::move(options))) {}
StoreClient::~StoreClient() = default;

void StoreClient::close() {
  impl_->close();
}
bool StoreClient::connected() const {
  return impl_->connected();
}
std::string StoreClient::local_address() const {
  return impl_->connected() ? impl_->local_address().to_string() : std::string();
}

namespace {

Result<void> done(const error_code& ec) {
  if (ec) return ec;
  return {};
}

template <typename T>
Result<T> done(const error_code& ec, T value) {
  // The tag is needed, because an error_code could also be converted to a bool.
  if (ec) return Result<T>(boost::system::in_place_error, ec);
  return Result<T>(boost::system::in_place_value, std::move(value));
}

}  // namespace

StoreClient::Awaitable<void> StoreClient::connect() {
  co_return done(co_await impl_->connect());
}

StoreClient::Awaitable<void> StoreClient::set(std::string_view key, std::string_view value) {
  const std::string name = prefixed(key);
  std::string bytes = bytes_of({.query = Query::Set, .key = name, .value = value});
  co_return done(co_await impl_->send(std::move(bytes)));
}

StoreClient::Awaitable<void> StoreClient::append(std::string_view key, std::string_view value) {
  const std::string name = prefixed(key);
  std::string bytes = bytes_of({.query = Query::Append, .key = name, .value = value});
  co_return done(co_await impl_->send(std::move(bytes)));
}

StoreClient::Awaitable<std::string> StoreClient::get(std::string_view key) {
  const std::string name = prefixed(key);
  const std::vector<std::string> names{name};
  std::string waiting = keys_request(Query::Wait, names);
  error_code ec = co_await impl_->wait(std::move(waiting), wait_limit(impl_->options()));
  std::string value;
  if (!ec) {
    std::string bytes = bytes_of({.query = Query::Get, .key = name});
    auto reply = impl_->read_text(value);
    ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  }
  co_return done(ec, std::move(value));
}

StoreClient::Awaitable<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta) {
  const std::string name = prefixed(key);
  std::string bytes = bytes_of({.query = Query::Add, .key = name, .number = delta});
  std::int64_t number = 0;
  auto reply = impl_->read_number(number);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, number);
}

StoreClient::Awaitable<std::int64_t> StoreClient::announce_worker() {
  std::string bytes = bytes_of({.query = Query::Add, .key = "init/", .number = 1});
  std::int64_t number = 0;
  auto reply = impl_->read_number(number);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, number);
}

StoreClient::Awaitable<bool> StoreClient::check(std::vector<std::string> keys) {
  std::string bytes = keys_request(Query::Check, prefixed(std::move(keys)));
  std::uint8_t answer = 0;
  auto reply = impl_->read_byte(answer);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, answer == kReady.value);
}

StoreClient::Awaitable<void> StoreClient::wait(std::vector<std::string> keys, Duration timeout) {
  std::string bytes = keys_request(Query::Wait, prefixed(std::move(keys)));
  co_return done(co_await impl_->wait(std::move(bytes), timeout));
}

StoreClient::Awaitable<void> StoreClient::wait(std::vector<std::string> keys) {
  return wait(std::move(keys), wait_limit(impl_->options()));
}

StoreClient::Awaitable<std::string> StoreClient::compare_set(std::string_view key,
                                                             std::string_view expected,
                                                             std::string_view desired) {
  const std::string name = prefixed(key);
  std::string bytes =
      bytes_of({.query = Query::CompareSet, .key = name, .value = desired, .expected = expected});
  std::string value;
  auto reply = impl_->read_text(value);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, std::move(value));
}

StoreClient::Awaitable<std::vector<std::string>> StoreClient::multi_get(
    std::vector<std::string> keys) {
  const std::vector<std::string> names = prefixed(std::move(keys));
  std::string waiting = keys_request(Query::Wait, names);
  error_code ec = co_await impl_->wait(std::move(waiting), wait_limit(impl_->options()));
  std::vector<std::string> values(names.size());
  if (!ec) {
    std::string bytes = keys_request(Query::MultiGet, names);
    auto reply = impl_->read_texts(values);
    ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  }
  co_return done(ec, std::move(values));
}

StoreClient::Awaitable<void> StoreClient::multi_set(std::vector<std::string> keys,
                                                    std::vector<std::string> values) {
  if (keys.size() != values.size())
    co_return make_error_code(boost::system::errc::invalid_argument);
  std::string bytes = keys_request(Query::MultiSet, prefixed(std::move(keys)), values);
  co_return done(co_await impl_->send(std::move(bytes)));
}

StoreClient::Awaitable<bool> StoreClient::delete_key(std::string_view key) {
  const std::string name = prefixed(key);
  std::string bytes = bytes_of({.query = Query::DeleteKey, .key = name});
  std::int64_t number = 0;
  auto reply = impl_->read_number(number);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, number > 0);
}

StoreClient::Awaitable<std::int64_t> StoreClient::num_keys() {
  std::string bytes = bytes_of({.query = Query::GetNumKeys});
  std::int64_t number = 0;
  auto reply = impl_->read_number(number);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, number);
}

StoreClient::Awaitable<std::vector<std::string>> StoreClient::list_keys() {
  std::string bytes = bytes_of({.query = Query::ListKeys});
  std::vector<std::string> keys;
  auto reply = impl_->read_list(keys);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  std::erase_if(keys, [](const std::string& key) { return !key.starts_with(kPrefix); });
  for (std::string& key : keys)
    key.erase(0, kPrefix.size());
  co_return done(ec, std::move(keys));
}

StoreClient::Awaitable<void> StoreClient::queue_push(std::string_view name,
                                                     std::string_view value) {
  const std::string key = prefixed(name);
  std::string bytes = bytes_of({.query = Query::QueuePush, .key = key, .value = value});
  co_return done(co_await impl_->send(std::move(bytes)));
}

StoreClient::Awaitable<std::string> StoreClient::queue_pop(std::string_view name) {
  const std::vector<std::string> names{prefixed(name)};
  std::string waiting = keys_request(Query::Wait, names);
  const error_code ec = co_await impl_->wait(std::move(waiting), wait_limit(impl_->options()));
  if (ec) co_return ec;
  co_return co_await queue_try_pop(name);
}

StoreClient::Awaitable<std::string> StoreClient::queue_try_pop(std::string_view name) {
  const std::string key = prefixed(name);
  std::string bytes = bytes_of({.query = Query::QueuePop, .key = key});
  std::int64_t length = 0;
  std::string value;
  auto reply = impl_->read_popped(length, value);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  if (!ec && length <= 0) co_return make_error_code(StoreErrc::QueueEmpty);
  co_return done(ec, std::move(value));
}

StoreClient::Awaitable<std::int64_t> StoreClient::queue_len(std::string_view name) {
  const std::string key = prefixed(name);
  std::string bytes = bytes_of({.query = Query::QueueLen, .key = key});
  std::int64_t number = 0;
  auto reply = impl_->read_number(number);
  const error_code ec = co_await impl_->ask(std::move(bytes), std::move(reply));
  co_return done(ec, number);
}

StoreClient::Awaitable<void> StoreClient::barrier(std::string_view key, std::int64_t world_size) {
  const std::string name = prefixed(key);
  std::string bytes = bytes_of({.query = Query::Barrier, .key = name, .number = world_size});
  co_return done(co_await impl_->wait(std::move(bytes), wait_limit(impl_->options())));
}

}  // namespace muster
