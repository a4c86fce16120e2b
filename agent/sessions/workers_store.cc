#include "agent/sessions/workers_store.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace muster {

void WorkersStore::prepare(const std::function<void(const HostedStoreResult&)>& done) {
  if (store_) {
    return store_->reset([this, done] {
      boost::asio::post(loop_, [this, done] { done(HostedStore{store_->port()}); });
    });
  }
  auto store = StoreThread::start(options_);
  if (!store) return done(store.error());
  store_ = std::move(*store);
  done(HostedStore{store_->port()});
}

}  // namespace muster
