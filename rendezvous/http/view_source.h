// Views of the runs for HTTP clients. They are fetched from the store's loop by messages, and
// shared.
//
// The loop that serves the jobs does one small task for each view, and never waits for HTTP.
// However many clients ask, and however often, a view is fetched at most once every kGap, and each
// view of a known run is reused for kFresh.
#pragma once

#include <compare>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/access/tls_allow.h"
#include "rendezvous/http/answer_waiter.h"
#include "rendezvous/http/http_metrics.h"
#include "rendezvous/rounds/run_view.h"

namespace muster::http {

struct ViewRequest {
  enum class What { Runs, Run, Figures };
  What what = What::Figures;
  std::string run = {};
  std::size_t offset = 0;
  std::size_t limit = 0;
  RunScope scope = {};  // For the list of runs: only runs in this scope are listed.
  auto operator<=>(const ViewRequest&) const = default;
};
struct UnknownRun {};
/// There are no runs here, because another musterd leads.
struct StandingBy {
  std::string why;  // "standing by: ...", for people.
};
using View = std::variant<UnknownRun, StandingBy, RunsView, RunView, AllFigures>;
using SharedView = std::shared_ptr<const View>;

/// Creates the view on the loop that has the runs, and calls `done` there.
using FetchView = std::function<void(ViewRequest request, std::function<void(SharedView)> done)>;

/// Belongs to one io_context. All members must be called on its thread.
class ViewSource : public std::enable_shared_from_this<ViewSource> {
 public:
  static constexpr Duration kFresh = std::chrono::milliseconds(250);
  static constexpr Duration kGap = std::chrono::milliseconds(20);
  /// If the loop of the runs does not answer for so long, it hangs.
  static constexpr Duration kAnswerWithin = std::chrono::seconds(5);

  ViewSource(boost::asio::io_context& loop, FetchView fetch)
      : loop_(loop), fetch_(std::move(fetch)), next_(loop) {}

  /// Null if the runs' loop does not answer in time.
  boost::asio::awaitable<SharedView> get(ViewRequest request);
  /// Somebody has just changed a run, and expects to see that.
  void forget() { cache_.clear(); }

 private:
  using Waiter = AnswerWaiter<SharedView>;
  struct Cached {
    SharedView view;
    Instant fetched_at{};
  };
  void fetch_next();
  void on_fetched(const ViewRequest& request, const SharedView& view);

  boost::asio::io_context& loop_;
  FetchView fetch_;
  boost::asio::steady_timer next_;
  std::map<ViewRequest, Cached> cache_;  // Fresh views only.
  std::map<ViewRequest, std::vector<std::shared_ptr<Waiter>>> waiting_;
  std::deque<ViewRequest> queue_;  // The requests in waiting_ that were not sent yet.
  /// A view is being fetched, or kGap after the last one is not over. The loop of the runs may lose
  /// a request when it has no memory, so no fetch lasts longer than kAnswerWithin.
  Instant busy_until_{};
};

}  // namespace muster::http
