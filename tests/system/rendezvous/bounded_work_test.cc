#include "base/net/bounded_work.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

namespace muster {
namespace {

namespace asio = boost::asio;

/// Storage that does not answer until it is told to.
class Storage {
 public:
  void answer() {
    const std::scoped_lock lock(mutex_);
    answers_ = true;
    changed_.notify_all();
  }
  void read() {
    std::unique_lock lock(mutex_);
    ++reads_;
    changed_.wait(lock, [this] { return answers_; });
  }
  int reads() {
    const std::scoped_lock lock(mutex_);
    return reads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool answers_ = false;
  int reads_ = 0;
};

struct RereadTest {
  bool reread() {
    std::function<void()> read = [storage = storage] { storage->read(); };
    auto result = asio::co_spawn(loop, reread_in_time(reading, std::move(read)), asio::use_future);
    loop.run();
    loop.restart();
    return result.get();
  }
  asio::io_context loop{1};
  std::shared_ptr<Storage> storage = std::make_shared<Storage>();
  std::shared_ptr<std::atomic<bool>> reading = std::make_shared<std::atomic<bool>>(false);
};

TEST_CASE_METHOD(RereadTest,
                 "bounded_work: storage that hangs holds one thread, not one for each try",
                 "[unit][rendezvous]") {
  for (int tries = 0; tries < 3; ++tries) {
    CHECK_FALSE(reread());
    CHECK(storage->reads() == 1);
  }
  storage->answer();
  while (reading->load())
    std::this_thread::yield();
  CHECK(reread());
  CHECK(reread());
  CHECK(storage->reads() == 3);
}

}  // namespace
}  // namespace muster
