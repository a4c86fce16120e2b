#include "rendezvous/net/name_lookup.h"

#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/net/listener.h"
#include "rendezvous/net/no_throw.h"
#include "rendezvous/net/store_client.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using boost::system::error_code;

namespace {

/// Both the coroutine and the thread have a share: whichever is done last ends it.
struct Pending {
  explicit Pending(std::string of) : name(std::move(of)), answered(::eventfd(0, EFD_CLOEXEC)) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() {
    if (found != nullptr) ::freeaddrinfo(found);
  }

  const std::string name;
  OwnedFd answered;               // Readable when there is an answer.
  std::atomic<bool> done{false};  // The two below are the thread's until then.
  int code = 0;
  addrinfo* found = nullptr;
};

void ask(Pending& pending) {
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  pending.code = ::getaddrinfo(pending.name.c_str(), nullptr, &hints, &pending.found);
  pending.done.store(true, std::memory_order_release);
  ::eventfd_write(pending.answered.get(), 1);
}

/// True if it has begun. Signals are for the threads that know what to do with them.
bool begin(const std::shared_ptr<Pending>& pending) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool begun = true;
  try {
    std::thread([pending] { ask(*pending); }).detach();
  } catch (const std::system_error&) {
    begun = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return begun;
}

error_code last_errno() {
  return {errno, boost::system::system_category()};
}

error_code to_error(int code) {
  switch (code) {
    case 0:
      return {};
    case EAI_AGAIN:
      return asio::error::host_not_found_try_again;
    case EAI_NONAME:
    case EAI_NODATA:
    case EAI_ADDRFAMILY:
      return asio::error::host_not_found;
    case EAI_MEMORY:
      return asio::error::no_memory;
    default:
      return asio::error::no_recovery;
  }
}

/// Empty if it has no family that we know.
std::string address_of(const addrinfo& entry) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(entry.ai_addr, entry.ai_addrlen, text.data(), text.size(),
                                   nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? normal_address(text.data()) : std::string();
}

NameLookup result_of(const Pending& pending) {
  NameLookup result;
  result.error = to_error(pending.code);
  if (result.error) return result;
  for (const addrinfo* entry = pending.found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_canonname != nullptr) result.canonical = entry->ai_canonname;
    const std::string address = address_of(*entry);
    auto& known = result.addresses;
    if (!address.empty() && std::find(known.begin(), known.end(), address) == known.end())
      known.push_back(address);
  }
  if (result.addresses.empty()) result.error = asio::error::no_data;
  return result;
}

}  // namespace

std::string normal_address(const std::string& text) {
  error_code no_address;
  const auto address = asio::ip::make_address(text, no_address);
  return no_address ? std::string() : unmapped(address).to_string();
}

bool is_loopback_address(const std::string& text) {
  error_code no_address;
  const auto address = asio::ip::make_address(text, no_address);
  return !no_address && unmapped(address).is_loopback();
}

asio::awaitable<NameLookup> look_up(std::string name, Duration limit) {
  NameLookup result;
  if (const std::string address = normal_address(name); !address.empty()) {
    result.addresses.push_back(address);
    co_return result;
  }
  const auto executor = co_await asio::this_coro::executor;
  const auto pending = std::make_shared<Pending>(std::move(name));
  const int readable = ::dup(pending->answered.get());
  if (readable < 0 || !begin(pending)) {
    result.error = readable < 0 ? last_errno() : error_code(asio::error::host_not_found_try_again);
    if (readable >= 0) ::close(readable);
    co_return result;
  }
  asio::posix::stream_descriptor answered(executor, readable);
  asio::steady_timer timer(executor);
  timer.expires_after(limit);
  const auto wait = asio::posix::stream_descriptor::wait_read;
  const auto done = co_await (answered.async_wait(wait, kNoThrow) || timer.async_wait(kNoThrow));
  const auto* ready = std::get_if<0>(&done);
  if (ready == nullptr)
    result.error = make_error_code(StoreErrc::ResolveTimedOut);
  else if (const error_code cancelled = std::get<0>(*ready); cancelled)
    result.error = cancelled;
  else if (pending->done.load(std::memory_order_acquire))
    result = result_of(*pending);
  co_return result;
}

}  // namespace muster
