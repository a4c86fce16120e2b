#include "rendezvous/http/view_source.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "rendezvous/net/clock.h"

namespace muster::http {

namespace asio = boost::asio;

asio::awaitable<SharedView> ViewSource::get(ViewRequest request) {
  const auto self = shared_from_this();
  std::erase_if(cache_,
                [at = now()](const auto& entry) { return at - entry.second.taken > kFresh; });
  if (const auto known = cache_.find(request); known != cache_.end()) co_return known->second.view;
  const auto waiter = std::make_shared<Waiter>(loop_.get_executor());
  const auto [waiters, is_new] = waiting_.try_emplace(request);
  if (is_new) queue_.push_back(request);
  waiters->second.push_back(waiter);
  take_next();
  const auto view = co_await waiter->wait(kAnswerWithin);
  if (const auto late = waiting_.find(request); !view && late != waiting_.end())
    std::erase(late->second, waiter);
  co_return view.value_or(nullptr);
}

void ViewSource::take_next() {
  if (busy_ || queue_.empty()) return;
  busy_ = true;
  ViewRequest request = std::move(queue_.front());
  queue_.pop_front();
  // The other loop holds no part of this one: it may end later.
  take_(request, [weak = weak_from_this(), &loop = loop_, request](SharedView view) {
    asio::post(loop, [weak, request, view = std::move(view)] {
      if (const auto self = weak.lock()) self->taken(request, view);
    });
  });
}

void ViewSource::taken(const ViewRequest& request, const SharedView& view) {
  cache_[request] = {view, now()};
  auto waiters = waiting_.extract(request);
  if (!waiters.empty())
    for (const auto& waiter : waiters.mapped())
      waiter->tell(view);
  next_.expires_after(kGap);
  next_.async_wait([weak = weak_from_this()](const boost::system::error_code& ec) {
    const auto self = weak.lock();
    if (ec || !self) return;
    self->busy_ = false;
    self->take_next();
  });
}

}  // namespace muster::http
