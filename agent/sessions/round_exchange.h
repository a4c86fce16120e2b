// The data that the agents of one round exchange through a store before their workers start and
// after they have ended. Keys and values are torchrun 2.13's, so torchrun nodes can take part.
//
// Nothing here depends on how the round was formed. The member functions are coroutines, of which
// only one may run at a time. Closing the client makes a waiting one fail at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/system/result.hpp>

#include "agent/core/ranks.h"
#include "rendezvous/client/store_client.h"
#include "rendezvous/node/wait_reminder.h"

namespace muster {

struct RoundExchangeOptions {
  std::string prefix = {};  // "torch.rendezvous.RUN.ROUND" with c10d, the run id with static.
  GroupRank group_rank = {};
  int group_world_size = 1;
  std::string role = {};
  int local_world_size = 1;
  /// TORCH_ELASTIC_WORKER_IDENTICAL=1 on all nodes: worker ranks are computed without an exchange.
  bool identical = false;
  /// The timeout of each member function except exit_barrier().
  Duration timeout = std::chrono::seconds(60);
  std::string timeout_option = "--rdzv-conf read_timeout";  // The timeout's name in errors.
  std::string waiting_where = {};  // Follows whom this node waits for: where, and for how long.
};

struct MasterAddress {
  std::string addr;
  std::uint16_t port = 0;
};

/// How long an agent waits for the other agents at the exit barrier: torchrun's default.
inline constexpr Duration kExitBarrier = std::chrono::seconds(300);

/// `reason` is a sentence without its full stop.
struct ExchangeError {
  std::string reason;
  /// The nodes do not fit together. The reason is in the store, for the nodes that wait there.
  bool refuses_all = false;
};
template <typename T>
using ExchangeResult = boost::system::result<T, ExchangeError>;

/// Where to look for the address of a rank 0 that published it only in an earlier round.
struct EarlierRounds {
  std::vector<std::string> prefixes = {};  // The newest round first.
  std::string rank0_addr = {};             // The address in the node name of the present rank 0.
};

class RoundExchange {
 public:
  /// `waiting` is called with what this node waits for, each time that it changes, and again now
  /// and then: "node ranks 1, 3".
  using Waiting = std::function<void(const std::string&)>;
  RoundExchange(std::shared_ptr<StoreClient> client, RoundExchangeOptions options,
                Waiting waiting = {});

  /// With the static backend, where no host compares the nodes' settings: fails if another muster
  /// node was started with another --nnodes, and makes the other nodes' waits fail. `host`: how
  /// people find this node. To be called before publish_role().
  boost::asio::awaitable<ExchangeResult<void>> compare_nodes(std::string host);
  /// With the static backend: if another node has this node's rank, the waits of all nodes name
  /// both. `who`: this node for people, and different for each agent.
  boost::asio::awaitable<ExchangeResult<void>> claim_rank(std::string who);
  /// All nodes call this first: it publishes how many workers this node has. Torchrun nodes wait
  /// for nothing else from this node. So they do not wait if it later finds no rank 0 and leaves
  /// the round.
  boost::asio::awaitable<ExchangeResult<void>> publish_role();
  /// Rank 0 calls this in every round, because new nodes read the address only from this round. The
  /// workers' store must be up and empty before: after ranks() nothing stops the workers of other
  /// nodes from using it.
  boost::asio::awaitable<ExchangeResult<void>> publish_master(MasterAddress master);
  /// All nodes except rank 0 call this. A torchrun rank 0 publishes its address only once in its
  /// life, so earlier rounds are searched, too.
  boost::asio::awaitable<ExchangeResult<MasterAddress>> find_master(EarlierRounds earlier);
  /// All nodes call this after publish_role(): gets the ranks of this node's workers. Rank 0
  /// computes them for all nodes.
  boost::asio::awaitable<ExchangeResult<AssignedRanks>> ranks();
  /// Called by each node whose workers have succeeded. Waits until every node of the round is at
  /// the barrier, for `limit` at most.
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
  boost::asio::awaitable<bool> find_earlier_master(const EarlierRounds& earlier,
                                                   MasterAddress& found);
  boost::asio::awaitable<ExchangeResult<void>> check_refusal();
  boost::asio::awaitable<ExchangeResult<void>> check_rank_twice();
  void report_waiting(const std::string& text);

  std::shared_ptr<StoreClient> client_;
  RoundExchangeOptions options_;
  Waiting waiting_;
  std::string reported_;
  std::string rank_twice_;  // Which node rank has come twice, for people; empty: none.
  WaitReminder reminder_;
  bool compares_nodes_ = false;  // compare_nodes() was called.
};

}  // namespace muster
