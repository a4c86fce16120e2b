// The current rules of --tls-allow. A reload replaces them while connections are served.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/access/tls_allow.h"

namespace muster {

/// May be used on any thread.
class TlsRules {
 public:
  explicit TlsRules(TlsAllow allow) { set(std::move(allow)); }

  void set(TlsAllow allow) {
    auto next = std::make_shared<const TlsAllow>(std::move(allow));
    const std::lock_guard lock(mutex_);
    allow_ = std::move(next);
  }
  /// Calls TlsAllow::scope_of() of the current rules.
  RunScope scope_of(const std::vector<std::string>& names) const {
    std::unique_lock lock(mutex_);
    const auto allow = allow_;
    lock.unlock();
    return allow->scope_of(names);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const TlsAllow> allow_;
};

/// Null: every client that is let in may join all runs.
using SharedTlsRules = std::shared_ptr<TlsRules>;

}  // namespace muster
