// What the agents of one round tell each other through a store before their workers start, and
// after they have ended: torchrun 2.13's keys and values, so that its nodes may be among them.
//
// Nothing here depends on how the round came about. The member functions are coroutines; one at a
// time. Closing the client makes the one that waits fail at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/system/result.hpp>

#include "agent/core/ranks.h"
#include "rendezvous/net/store_client.h"

namespace muster {

struct RoundExchangeOptions {
  std::string prefix = {};  // c10d: "torch.rendezvous.RUN.ROUND"; static: the run id.
  GroupRank group_rank = {};
  int group_world_size = 1;
  std::string role = {};
  int local_world_size = 1;
  /// TORCH_ELASTIC_WORKER_IDENTICAL=1, on all nodes: nothing is exchanged to number the workers.
  bool identical = false;
  Duration timeout = std::chrono::seconds(60);  // Of each member function but exit_barrier().
  std::string timeout_option = "--rdzv-conf read_timeout";  // What errors call it.
};

struct MasterAddress {
  std::string addr;
  std::uint16_t port = 0;
};

/// A round of which a member has died, or says nothing, is complete but comes to nothing. Another
/// one is tried; after so many in a row a node gives up.
inline constexpr int kFruitlessRounds = 3;

/// How long an agent waits for the others at the end: torchrun's default.
inline constexpr Duration kExitBarrier = std::chrono::seconds(300);

/// A sentence without its end.
struct ExchangeError {
  std::string reason;
};
template <typename T>
using ExchangeResult = boost::system::result<T, ExchangeError>;

/// Where to look for the address of a rank 0 that does not publish it again.
struct EarlierRounds {
  std::vector<std::string> prefixes = {};  // The newest first.
  std::string rank0_addr = {};             // The node name's address of rank 0 now.
};

class RoundExchange {
 public:
  /// `waiting` is told, when it changes, for whom this node waits: "the role of node ranks 1, 3".
  using Waiting = std::function<void(const std::string&)>;
  RoundExchange(std::shared_ptr<StoreClient> client, RoundExchangeOptions options,
                Waiting waiting = {});

  /// All, and first: says how many workers this node has. Torchrun nodes wait for nothing else of
  /// it, and so for nothing at all if it finds no rank 0 and gives the round up.
  boost::asio::awaitable<ExchangeResult<void>> publish_role();
  /// Rank 0, in every round: nodes that are new in it know no other. Before that the workers' store
  /// must be up and empty, as nothing holds workers of other nodes back after ranks().
  boost::asio::awaitable<ExchangeResult<void>> publish_master(MasterAddress master);
  /// The others. A torchrun rank 0 publishes only once in its life: so earlier rounds, too.
  boost::asio::awaitable<ExchangeResult<MasterAddress>> find_master(EarlierRounds earlier);
  /// All, after publish_role(): learns the ranks of its workers, which rank 0 computes.
  boost::asio::awaitable<ExchangeResult<AssignedRanks>> ranks();
  /// All whose workers have succeeded: until every node of the round is here, or `limit` is over.
  boost::asio::awaitable<ExchangeResult<void>> exit_barrier(Duration limit);

 private:
  std::string key(std::string_view name) const { return options_.prefix + "/" + std::string(name); }
  std::string key(std::string_view name, int rank) const;
  boost::asio::awaitable<ExchangeResult<void>> wait_for_ranks(std::string name, Instant deadline,
                                                              std::vector<int> ranks);
  boost::asio::awaitable<ExchangeResult<void>> keep_missing(std::string name,
                                                            std::vector<int>& ranks);
  boost::asio::awaitable<ExchangeResult<void>> assign_all();
  boost::asio::awaitable<ExchangeResult<MasterAddress>> read_master(std::string prefix);
  boost::asio::awaitable<bool> earlier_master(const EarlierRounds& earlier, MasterAddress& found);
  void tell(const std::string& text);

  std::shared_ptr<StoreClient> client_;
  RoundExchangeOptions options_;
  Waiting waiting_;
  std::string told_;
};

}  // namespace muster
