#include "base/net/name_lookup.h"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/net/bounded_work.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/net/unmapped.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// A caller that has earlier addresses waits for so long for newer ones.
constexpr Duration kFreshWithin = std::chrono::milliseconds(250);
// An answer is used for so long without asking again.
constexpr Duration kFreshFor = std::chrono::seconds(2);
// A look-up that has not returned after this time is given up: another one may begin.
constexpr Duration kMaxLookUp = std::chrono::seconds(60);

// The destructor of Boost's error_category is not virtual, because categories are never deleted
// through their base class.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
class NameCategory final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "muster.name"; }
  std::string message(int) const override { return "no name server has answered in time"; }
};
#pragma GCC diagnostic pop

/// The answer of the resolver. Until the look-up is done, only its thread uses it.
struct Answer {
  Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (found != nullptr) ::freeaddrinfo(found);
  }

  int code = 0;
  addrinfo* found = nullptr;
};

void ask(const std::string& name, Answer& answer) {
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  answer.code = ::getaddrinfo(name.c_str(), nullptr, &hints, &answer.found);
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

/// The address of the entry. Empty if its address family is unknown.
std::string address_of(const addrinfo& entry) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(entry.ai_addr, entry.ai_addrlen, text.data(), text.size(),
                                   nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? normal_address(text.data()) : std::string();
}

NameLookup result_of(const Answer& answer) {
  NameLookup result;
  result.error = to_error(answer.code);
  if (result.error) return result;
  for (const addrinfo* entry = answer.found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_canonname != nullptr) result.canonical = entry->ai_canonname;
    const std::string address = address_of(*entry);
    auto& known = result.addresses;
    if (!address.empty() && std::find(known.begin(), known.end(), address) == known.end())
      known.push_back(address);
  }
  if (result.addresses.empty()) result.error = asio::error::no_data;
  return result;
}

/// What is known of one name.
struct NamePage {
  NameLookup latest;                   // The latest answer with addresses.
  std::optional<Instant> answered_at;  // When it came.
  error_code failure;                  // Of the latest look-up that has ended. None: it has worked.
  std::uint64_t ended = 0;             // The number of look-ups that have ended.
  std::uint64_t running = 0;           // The number of the look-up that is under way. 0: none.
  std::uint64_t begun = 0;
};

/// Everything that an io_context remembers. Shared with its look-ups and their callers.
struct NamePages {
  std::map<std::string, NamePage> names;
  std::list<asio::steady_timer*> waiting;  // Cancelled when a look-up ends.

  /// The page of the name. It stays valid until the next call with another name.
  NamePage& page(const std::string& name) {
    const auto known = names.find(name);
    if (known != names.end()) return known->second;
    // The names come from options and from rounds, so there are few. An old one may be forgotten.
    for (auto old = names.begin(); old != names.end() && names.size() >= kMaxNames;)
      old = old->second.running == 0 ? names.erase(old) : std::next(old);
    return names[name];
  }
};
using NamePagesPtr = std::shared_ptr<NamePages>;

class NameBook final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;
  explicit NameBook(asio::execution_context& context) : service(context) {}
  const NamePagesPtr& pages() const { return pages_; }

 private:
  void shutdown() noexcept override {}
  NamePagesPtr pages_ = std::make_shared<NamePages>();
};

NamePagesPtr pages_of(const asio::any_io_executor& executor) {
  return asio::use_service<NameBook>(asio::query(executor, asio::execution::context)).pages();
}

/// The right to have one more thread in the resolver. The thread gives it back.
std::shared_ptr<void> claim_thread() {
  static std::atomic<int> threads{0};
  if (threads.fetch_add(1) >= kMaxLookUps) {
    threads.fetch_sub(1);
    return nullptr;
  }
  return {&threads, [](void*) { threads.fetch_sub(1); }};
}

/// Ends the look-up of a name, also if its coroutine is destroyed.
class RunningLookUp {
 public:
  RunningLookUp(NamePagesPtr pages, std::string name, std::uint64_t number)
      : pages_(std::move(pages)), name_(std::move(name)), number_(number) {}
  RunningLookUp(const RunningLookUp&) = delete;
  RunningLookUp& operator=(const RunningLookUp&) = delete;
  ~RunningLookUp() {
    const auto known = pages_->names.find(name_);
    if (known != pages_->names.end() && known->second.running == number_) known->second.running = 0;
  }
  const std::string& name() const { return name_; }

  void end(NameLookup result) {
    NamePage& page = pages_->page(name_);
    page.failure = result.error;
    ++page.ended;
    if (!result.error) {
      page.latest = std::move(result);
      page.answered_at = now();
    }
    for (asio::steady_timer* timer : pages_->waiting)
      timer->cancel();
  }

 private:
  NamePagesPtr pages_;
  std::string name_;
  std::uint64_t number_;
};

asio::awaitable<void> run_look_up(std::shared_ptr<RunningLookUp> running) {
  NameLookup result;
  std::shared_ptr<void> thread = claim_thread();
  if (!thread) {
    result.error = asio::error::host_not_found_try_again;
    co_return running->end(std::move(result));
  }
  const auto answer = std::make_shared<Answer>();
  std::function<void()> work = [answer, name = running->name(), thread = std::move(thread)] {
    ask(name, *answer);
  };
  const error_code failed = co_await run_in_time(std::move(work), kMaxLookUp);
  if (failed == boost::system::errc::timed_out)
    result.error = make_error_code(NameErrc::TimedOut);
  else if (failed == boost::system::errc::resource_unavailable_try_again)
    result.error = asio::error::host_not_found_try_again;
  else if (failed)
    result.error = failed;
  else
    result = result_of(*answer);
  running->end(std::move(result));
}

/// Waits until a look-up has ended, whichever it is, or until the deadline.
asio::awaitable<void> wait_for_answer(NamePagesPtr pages, Instant deadline) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_at(to_steady(deadline));
  struct Waiting {
    NamePages& pages;
    std::list<asio::steady_timer*>::iterator at;
    ~Waiting() { pages.waiting.erase(at); }
  };
  const Waiting waiting{*pages, pages->waiting.insert(pages->waiting.end(), &timer)};
  co_await timer.async_wait(kNoThrow);
}

bool is_fresh(const NamePage& page) {
  return page.answered_at && !page.failure && now() - *page.answered_at < kFreshFor;
}

/// Begins a look-up unless one is under way.
void begin(const asio::any_io_executor& executor, const NamePagesPtr& pages,
           const std::string& name) {
  NamePage& page = pages->page(name);
  if (page.running != 0) return;
  page.running = ++page.begun;
  spawn_task(executor, "look_up",
             run_look_up(std::make_shared<RunningLookUp>(pages, name, page.running)));
}

/// The remembered addresses, or the error if there are none.
NameLookup remembered(const NamePage& page, const error_code& why) {
  NameLookup result = page.latest;
  (result.addresses.empty() ? result.error : result.stale) = why;
  return result;
}

/// `patience`: how long a caller that has earlier addresses waits for newer ones.
asio::awaitable<NameLookup> look_up_in_book(std::string name, Duration limit, Duration patience) {
  if (const std::string address = normal_address(name); !address.empty()) {
    NameLookup literal;
    literal.addresses.push_back(address);
    co_return literal;
  }
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const NamePagesPtr pages = pages_of(executor);
  const bool is_known = !pages->page(name).latest.addresses.empty();
  if (is_fresh(pages->page(name))) co_return pages->page(name).latest;
  const Instant deadline = later(now(), is_known ? std::min(limit, patience) : limit);
  begin(executor, pages, name);
  const std::uint64_t before = pages->page(name).ended;
  while (pages->page(name).ended == before && now() < deadline)
    co_await wait_for_answer(pages, deadline);
  const NamePage& page = pages->page(name);
  if (page.ended == before) co_return remembered(page, make_error_code(NameErrc::TimedOut));
  if (page.failure) co_return remembered(page, page.failure);
  co_return page.latest;
}

}  // namespace

const boost::system::error_category& name_category() {
  static const NameCategory category;
  return category;
}

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
  return look_up_in_book(std::move(name), limit, kFreshWithin);
}

asio::awaitable<NameLookup> look_up_anew(std::string name, Duration limit) {
  return look_up_in_book(std::move(name), limit, limit);
}

void begin_look_up(const asio::any_io_executor& executor, const std::string& name) {
  if (!normal_address(name).empty()) return;
  const NamePagesPtr pages = pages_of(executor);
  if (!is_fresh(pages->page(name))) begin(executor, pages, name);
}

asio::awaitable<std::size_t> first_known(std::vector<std::string> names, Duration limit) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const NamePagesPtr pages = pages_of(executor);
  for (const std::string& name : names)
    begin_look_up(executor, name);
  const Instant deadline = later(now(), limit);
  for (;;) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!normal_address(names[i]).empty() || !pages->page(names[i]).latest.addresses.empty())
        co_return i;
    const auto fails = [&](const std::string& name) { return pages->page(name).running == 0; };
    if (now() >= deadline || std::all_of(names.begin(), names.end(), fails)) co_return 0;
    co_await wait_for_answer(pages, deadline);
  }
}

}  // namespace muster
