// Views for who asks over HTTP: taken from the store's loop by messages, seldom, and shared.
//
// The loop that serves jobs does one small task for each view, and never waits for HTTP. However
// many ask, and however often: a view is taken at most every kGap, and the same one is used for
// kFresh.
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

#include "rendezvous/core/run_view.h"
#include "rendezvous/core/tls_allow.h"
#include "rendezvous/http/answer_waiter.h"
#include "rendezvous/http/http_metrics.h"

namespace muster::http {

struct ViewRequest {
  enum class What { Runs, Run, Figures };
  What what = What::Figures;
  std::string run = {};
  std::size_t offset = 0;
  std::size_t limit = 0;
  RunScope scope = {};  // Of the list of runs: only these are in it.
  auto operator<=>(const ViewRequest&) const = default;
};
struct UnknownRun {};
/// There are no runs here: another musterd leads.
struct StandingBy {
  std::string why;  // "standing by: ...", for people.
};
using View = std::variant<UnknownRun, StandingBy, RunsView, RunView, AllFigures>;
using SharedView = std::shared_ptr<const View>;

/// Takes the view on the loop that has the runs, and calls `done` there.
using TakeView = std::function<void(ViewRequest request, std::function<void(SharedView)> done)>;

/// Lives on one io_context, and all members are called there.
class ViewSource : public std::enable_shared_from_this<ViewSource> {
 public:
  static constexpr Duration kFresh = std::chrono::milliseconds(250);
  static constexpr Duration kGap = std::chrono::milliseconds(20);
  /// The loop is stuck if it does not answer for so long.
  static constexpr Duration kAnswerWithin = std::chrono::seconds(5);

  ViewSource(boost::asio::io_context& loop, TakeView take)
      : loop_(loop), take_(std::move(take)), next_(loop) {}

  /// Null if the runs' loop does not answer in time.
  boost::asio::awaitable<SharedView> get(ViewRequest request);

 private:
  using Waiter = AnswerWaiter<SharedView>;
  struct Cached {
    SharedView view;
    Instant taken{};
  };
  void take_next();
  void taken(const ViewRequest& request, const SharedView& view);

  boost::asio::io_context& loop_;
  TakeView take_;
  boost::asio::steady_timer next_;
  std::map<ViewRequest, Cached> cache_;  // Fresh ones only.
  std::map<ViewRequest, std::vector<std::shared_ptr<Waiter>>> waiting_;
  std::deque<ViewRequest> queue_;  // Those of waiting_ that were not asked for yet.
  bool busy_ = false;              // One view is being taken, or it is too soon for the next.
};

}  // namespace muster::http
