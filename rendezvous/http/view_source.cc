#include "rendezvous/http/view_source.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "base/system/clock.h"

namespace muster::http {

namespace asio = boost::asio;

asio::awaitable<SharedView> ViewSource::get(ViewRequest request) {
  const auto self = shared_from_this();
  std::erase_if(cache_,
                [at = now()](const auto& entry) { return at - entry.second.fetched_at > kFresh; });
  if (const auto known = cache_.find(request); known != cache_.end()) co_return known->second.view;
  const auto waiter = std::make_shared<Waiter>(loop_.get_executor());
  if (!waiting_.contains(request)) queue_.push_back(request);
  waiting_[request].push_back(waiter);
  fetch_next();
  const auto view = co_await waiter->wait(kAnswerWithin);
  if (const auto late = waiting_.find(request); !view && late != waiting_.end()) {
    std::erase(late->second, waiter);
    if (late->second.empty()) {  // Its answer may be lost: the next request is sent again.
      std::erase(queue_, request);
      waiting_.erase(late);
    }
  }
  co_return view.value_or(nullptr);
}

void ViewSource::fetch_next() {
  if (now() < busy_until_ || queue_.empty()) return;
  const ViewRequest request = queue_.front();
  // The callback holds only a weak reference, because the other loop may end later than this one.
  fetch_(request, [weak = weak_from_this(), &loop = loop_, request](SharedView view) {
    asio::post(loop, [weak, request, view = std::move(view)] {
      if (const auto self = weak.lock()) self->on_fetched(request, view);
    });
  });
  queue_.pop_front();  // After fetch_(): if that throws for lack of memory, the request stays here.
  busy_until_ = now() + kAnswerWithin;
}

void ViewSource::on_fetched(const ViewRequest& request, const SharedView& view) {
  // The request is removed first: the code below needs memory and may throw, and later requests
  // must be sent all the same.
  const auto waiters = waiting_.extract(request);
  busy_until_ = {};
  if (!waiters.empty())
    for (const auto& waiter : waiters.mapped())
      waiter->deliver(view);
  // Whoever asks for an unknown run again does so because it may have begun: it is not kept.
  if (!std::holds_alternative<UnknownRun>(*view)) cache_[request] = {view, now()};
  next_.expires_after(kGap);
  next_.async_wait([weak = weak_from_this()](const boost::system::error_code& ec) {
    const auto self = weak.lock();
    if (ec || !self) return;
    self->busy_until_ = {};
    self->fetch_next();
  });
  busy_until_ = now() + kGap;
}

}  // namespace muster::http
