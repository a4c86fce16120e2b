#include "agent/sessions/round_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "agent/core/rank_messages.h"
#include "base/printable_text.h"
#include "base/seconds_text.h"
#include "base/system/clock.h"
#include "base/whole_number.h"
#include "rendezvous/torchrun/exit_barrier.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr std::string_view kMasterAddr = "MASTER_ADDR";
constexpr std::string_view kMasterPort = "MASTER_PORT";
constexpr std::string_view kRoleInfo = "torchelastic/role_info";
constexpr std::string_view kAssignedRanks = "torchelastic/assigned_ranks";
constexpr std::string_view kNodesClaim = "muster/nnodes";
constexpr std::string_view kRefusal = "muster/refusal";
constexpr std::string_view kRankClaim = "muster/node_rank";
constexpr std::string_view kRankTwice = "muster/node_rank_twice";
constexpr std::string_view kIgnored = "<val_ignored>";  // As torch.

// How often a waiting node checks which nodes are missing: the interval doubles up to the maximum.
constexpr Duration kCheckFirst = std::chrono::seconds(2);
constexpr Duration kMaxCheck = std::chrono::seconds(15);
constexpr std::size_t kMissingChecked = 256;
constexpr std::size_t kMissingShown = 8;
constexpr std::size_t kRefusalBytesMax = 1024;  // What is shown of another node's text.
// Earlier rounds are searched after this time: a rank 0 that publishes in this round does so at
// once.
constexpr Duration kEarlierRoundsAfter = std::chrono::seconds(2);
constexpr Duration kProbeWithin = std::chrono::seconds(3);

std::string nodes_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "node rank " : "node ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMissingShown); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kMissingShown)
    text += " and " + std::to_string(ranks.size() - kMissingShown) + " more";
  return text;
}

std::string claim_text(const NodesClaim& claim) {
  return "node rank " + std::to_string(claim.group_rank.value) + " (" + printable_text(claim.host) +
         ") was started with --nnodes=" + std::to_string(claim.nodes);
}

ExchangeError failed(const std::string& doing, const boost::system::error_code& error) {
  return {doing + ": " + error.message()};
}

}  // namespace

RoundExchange::RoundExchange(std::shared_ptr<StoreClient> client, RoundExchangeOptions options,
                             Waiting waiting)
    : client_(std::move(client)), options_(std::move(options)), waiting_(std::move(waiting)) {}

std::string RoundExchange::key(std::string_view name, int rank) const {
  return key(name) + "/" + std::to_string(rank);
}

void RoundExchange::report_waiting(const std::string& text) {
  if (!waiting_) return;
  reminder_.begin(now());
  const bool is_due = reminder_.due(now()).has_value();
  std::string whole = text + options_.waiting_where;
  if (!rank_twice_.empty()) whole += "; but " + rank_twice_;
  if (whole == std::exchange(reported_, whole) && !is_due) return;
  waiting_(whole);
}

asio::awaitable<ExchangeResult<void>> RoundExchange::claim_rank(std::string who) {
  const std::string claim_key = key(kRankClaim, options_.group_rank.value);
  const auto first = co_await client_->compare_set(claim_key, "", who);
  if (!first) co_return failed("claiming the node rank", first.error());
  if (*first == who) co_return ExchangeResult<void>();
  // An agent that was started again is another one, too, so this is said in a wait only.
  const std::string twice = "node rank " + std::to_string(options_.group_rank.value) +
                            " has come twice, from " + *first + " and from " + who +
                            ": if both run, give one of them another --node-rank";
  const auto told = co_await client_->set(key(kRankTwice), twice);
  if (!told) co_return failed("claiming the node rank", told.error());
  co_return ExchangeResult<void>();
}

/// Reads what a node with the rank of another one has left. Waiting nodes ask, as for a refusal.
asio::awaitable<ExchangeResult<void>> RoundExchange::check_rank_twice() {
  const std::string twice_key = key(kRankTwice);
  std::vector<std::string> keys{twice_key};
  const auto there = co_await client_->check(std::move(keys));
  if (!there) co_return failed("looking for a node rank that came twice", there.error());
  if (!*there) co_return ExchangeResult<void>();
  const auto text = co_await client_->get(twice_key);
  if (!text) co_return failed("reading which node rank came twice", text.error());
  rank_twice_ = printable_text(*text, kRefusalBytesMax);
  co_return ExchangeResult<void>();
}

asio::awaitable<ExchangeResult<void>> RoundExchange::compare_nodes(std::string host) {
  compares_nodes_ = true;
  const NodesClaim own{options_.group_world_size, options_.group_rank, std::move(host)};
  const std::string own_text = encode_nodes_claim(own);
  const std::string claim_key = key(kNodesClaim);
  const auto first = co_await client_->compare_set(claim_key, "", own_text);
  if (!first) co_return failed("comparing --nnodes", first.error());
  const auto claim = decode_nodes_claim(*first);
  if (!claim || claim->nodes == own.nodes) co_return ExchangeResult<void>();
  if (claim->group_rank == own.group_rank) {
    // This node was refused before, and was started again with the right number.
    const auto replaced = co_await client_->set(claim_key, own_text);
    if (!replaced) co_return failed("comparing --nnodes", replaced.error());
    (void)co_await client_->delete_key(key(kRefusal));
    co_return ExchangeResult<void>();
  }
  ExchangeError refusal{"the nodes differ in --nnodes: " + claim_text(*claim) + ", " +
                            claim_text(own) + "; give all nodes the same",
                        true};
  (void)co_await client_->set(key(kRefusal), refusal.reason);
  co_return refusal;
}

/// Whether a node has found that the nodes differ. Waiting nodes ask when they report a wait.
asio::awaitable<ExchangeResult<void>> RoundExchange::check_refusal() {
  const auto checked = co_await check_rank_twice();
  if (!checked) co_return checked.error();
  const std::string refusal_key = key(kRefusal);
  std::vector<std::string> keys{refusal_key};
  const auto there = co_await client_->check(std::move(keys));
  if (!there) co_return failed("looking for a refusal", there.error());
  if (!*there) co_return ExchangeResult<void>();
  const auto text = co_await client_->get(refusal_key);
  if (!text) co_return failed("reading a refusal", text.error());
  ExchangeError refusal{printable_text(*text, kRefusalBytesMax), true};
  co_return refusal;
}

asio::awaitable<ExchangeResult<void>> RoundExchange::publish_role() {
  if (options_.identical) co_return ExchangeResult<void>();
  const RoleInfo info{options_.group_rank, options_.role, options_.local_world_size};
  const std::string text = encode_role_info(info);
  const std::string own_key = key(kRoleInfo, options_.group_rank.value);
  const auto published = co_await client_->set(own_key, text);
  if (!published) co_return failed("publishing role_info", published.error());
  co_return ExchangeResult<void>();
}

asio::awaitable<ExchangeResult<void>> RoundExchange::publish_master(MasterAddress master) {
  const std::vector<std::string> keys{key(kMasterAddr), key(kMasterPort)};
  const std::string port = std::to_string(master.port);
  // Two requests, the port after the address, as in torch 2.13's RendezvousStoreInfo.build().
  const auto addr_set = co_await client_->set(keys[0], master.addr);
  if (!addr_set) co_return failed("publishing MASTER_ADDR", addr_set.error());
  const auto port_set = co_await client_->set(keys[1], port);
  if (!port_set) co_return failed("publishing MASTER_PORT", port_set.error());
  co_return ExchangeResult<void>();
}

asio::awaitable<ExchangeResult<MasterAddress>> RoundExchange::read_master(std::string prefix) {
  std::vector<std::string> keys{prefix + "/" + std::string(kMasterAddr),
                                prefix + "/" + std::string(kMasterPort)};
  const auto values = co_await client_->multi_get(keys);
  if (!values) co_return failed("reading MASTER_ADDR", values.error());
  const std::string& port = (*values)[1];
  MasterAddress master{(*values)[0], whole_number<std::uint16_t>(port).value_or(0)};
  if (master.port == 0 || master.addr.empty()) {
    ExchangeError invalid{"rank 0 has published no address: \"" + master.addr + "\" port \"" +
                          port + "\""};
    co_return invalid;
  }
  co_return master;
}

/// Finds an address in an earlier round that belongs to the present rank 0 and where a store
/// answers.
asio::awaitable<bool> RoundExchange::find_earlier_master(const EarlierRounds& earlier,
                                                         MasterAddress& found) {
  for (const std::string& prefix : earlier.prefixes) {
    std::vector<std::string> keys{prefix + "/" + std::string(kMasterAddr),
                                  prefix + "/" + std::string(kMasterPort)};
    const auto there = co_await client_->check(keys);
    if (!there) co_return false;
    if (!*there) continue;
    const auto master = co_await read_master(prefix);
    if (!master || master->addr != earlier.rank0_addr) continue;
    StoreClientOptions options{
        .host = master->addr, .port = master->port, .timeout = kProbeWithin, .retry = false};
    StoreClient probe(co_await asio::this_coro::executor, std::move(options));
    const auto answers = co_await probe.connect();
    if (!answers) continue;
    found = *master;
    co_return true;
  }
  co_return false;
}

asio::awaitable<ExchangeResult<MasterAddress>> RoundExchange::find_master(EarlierRounds earlier) {
  const Instant start = now();
  const Instant deadline = start + options_.timeout;
  const std::vector<std::string> keys{key(kMasterAddr), key(kMasterPort)};
  for (;;) {
    const Duration slice = std::min<Duration>(kEarlierRoundsAfter, deadline - now());
    if (slice <= Duration::zero()) break;
    std::vector<std::string> names = keys;
    const auto there = co_await client_->wait(std::move(names), slice);
    if (there) {
      std::string prefix = options_.prefix;
      co_return co_await read_master(std::move(prefix));
    }
    if (there.error() != StoreErrc::WaitTimedOut)
      co_return failed("waiting for MASTER_ADDR from node rank 0", there.error());
    report_waiting("MASTER_ADDR from node rank 0");
    MasterAddress master;
    const bool found = co_await find_earlier_master(earlier, master);
    if (found) co_return master;
  }
  ExchangeError late{"node rank 0 (" + earlier.rank0_addr +
                     ") has not published MASTER_ADDR within " + seconds_text(options_.timeout) +
                     " (" + options_.timeout_option + ")"};
  co_return late;
}

asio::awaitable<ExchangeResult<void>> RoundExchange::keep_missing(std::string name,
                                                                  std::vector<int>& ranks) {
  std::vector<int> missing;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    bool there = false;
    if (i < kMissingChecked) {
      std::vector<std::string> keys{key(name, ranks[i])};
      const auto checked = co_await client_->check(std::move(keys));
      if (!checked) co_return failed("looking for " + name, checked.error());
      there = *checked;
    }
    if (!there) missing.push_back(ranks[i]);
  }
  ranks = std::move(missing);
  co_return ExchangeResult<void>();
}

/// Waits until the key `name`/R exists for each R of `ranks`, and reports the missing ones.
asio::awaitable<ExchangeResult<void>> RoundExchange::wait_for_ranks(std::string name,
                                                                    Instant deadline,
                                                                    std::vector<int> ranks) {
  Duration interval = kCheckFirst;
  while (!ranks.empty()) {
    const Duration slice = std::min<Duration>(interval, deadline - now());
    if (slice <= Duration::zero()) {
      ExchangeError late{nodes_text(ranks) + " did not come within " +
                         seconds_text(options_.timeout) + " (" + options_.timeout_option +
                         "): no " + name};
      co_return late;
    }
    std::vector<std::string> keys;
    keys.reserve(ranks.size());
    for (const int rank : ranks)
      keys.push_back(key(name, rank));
    const auto there = co_await client_->wait(std::move(keys), slice);
    if (there) break;
    if (there.error() != StoreErrc::WaitTimedOut)
      co_return failed("waiting for " + name + " of " + nodes_text(ranks), there.error());
    if (compares_nodes_) {
      const auto accepted = co_await check_refusal();
      if (!accepted) co_return accepted.error();
    }
    std::string which = name;
    const auto checked = co_await keep_missing(std::move(which), ranks);
    if (!checked) co_return checked.error();
    if (!ranks.empty()) report_waiting(nodes_text(ranks));
    interval = std::min(2 * interval, kMaxCheck);
  }
  co_return ExchangeResult<void>();
}

/// On rank 0: reads the role_info of all nodes and publishes their assigned_ranks.
asio::awaitable<ExchangeResult<void>> RoundExchange::assign_all() {
  std::vector<int> ranks(static_cast<std::size_t>(options_.group_world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::string> keys;
  std::vector<std::string> answers;
  for (const int rank : ranks) {
    keys.push_back(key(kRoleInfo, rank));
    answers.push_back(key(kAssignedRanks, rank));
  }
  std::string name(kRoleInfo);
  const auto there =
      co_await wait_for_ranks(std::move(name), now() + options_.timeout, std::move(ranks));
  if (!there) co_return there.error();
  const auto texts = co_await client_->multi_get(keys);
  if (!texts) co_return failed("reading role_info", texts.error());
  std::vector<RoleInfo> infos;
  for (std::size_t i = 0; i < texts->size(); ++i) {
    auto info = decode_role_info((*texts)[i]);
    if (!info) {
      ExchangeError invalid{"role_info of node rank " + std::to_string(i) + ": " +
                            info.error().reason};
      co_return invalid;
    }
    infos.push_back(std::move(*info));
  }
  const auto assigned = assign_ranks(std::move(infos));
  if (!assigned) {
    ExchangeError invalid{"role_info: " + std::string(describe(assigned.error()))};
    co_return invalid;
  }
  std::vector<std::string> values;
  for (const AssignedRanks& one : *assigned)
    values.push_back(encode_assigned_ranks(one));
  const auto written = co_await client_->multi_set(std::move(answers), std::move(values));
  if (!written) co_return failed("publishing assigned_ranks", written.error());
  co_return ExchangeResult<void>();
}

asio::awaitable<ExchangeResult<AssignedRanks>> RoundExchange::ranks() {
  if (options_.identical) {
    const int base = options_.group_rank.value * options_.local_world_size;
    const int world = options_.group_world_size * options_.local_world_size;
    const AssignedRanks same{{base}, world, base, world};
    co_return same;
  }
  if (options_.group_rank.value == 0) {
    const auto assigned = co_await assign_all();
    if (!assigned) co_return assigned.error();
  }
  const Instant deadline = now() + options_.timeout;
  const std::string answer_key = key(kAssignedRanks, options_.group_rank.value);
  for (;;) {
    const Duration slice = std::min<Duration>(kCheckFirst, deadline - now());
    if (slice <= Duration::zero()) {
      ExchangeError late{"node rank 0 has assigned no ranks within " +
                         seconds_text(options_.timeout) + " (" + options_.timeout_option +
                         "): another node may be missing"};
      co_return late;
    }
    std::vector<std::string> keys{answer_key};
    const auto there = co_await client_->wait(std::move(keys), slice);
    if (there) break;
    if (there.error() != StoreErrc::WaitTimedOut)
      co_return failed("waiting for the ranks from node rank 0", there.error());
    if (compares_nodes_) {
      const auto accepted = co_await check_refusal();
      if (!accepted) co_return accepted.error();
    }
    report_waiting("node rank 0, which assigns the ranks");
  }
  const auto answer = co_await client_->get(answer_key);
  if (!answer) co_return failed("reading assigned_ranks", answer.error());
  const auto ranks = decode_assigned_ranks(*answer);
  if (!ranks) {
    ExchangeError invalid{"assigned_ranks: " + ranks.error().reason};
    co_return invalid;
  }
  co_return *ranks;
}

asio::awaitable<ExchangeResult<void>> RoundExchange::exit_barrier(Duration limit) {
  const std::string members = options_.prefix + std::string(kExitBarrierCountKey);
  const std::string last = options_.prefix + std::string(kExitBarrierKey);
  const auto arrived = co_await client_->add(members, 1);
  if (!arrived) co_return failed("arriving at the exit barrier", arrived.error());
  if (*arrived == options_.group_world_size) {
    const auto opened = co_await client_->set(last, kIgnored);
    if (!opened) co_return failed("opening the exit barrier", opened.error());
  }
  std::vector<std::string> keys{last};
  const auto open = co_await client_->wait(std::move(keys), limit);
  if (open) co_return ExchangeResult<void>();
  if (open.error() != StoreErrc::WaitTimedOut)
    co_return failed("waiting at the exit barrier", open.error());
  ExchangeError late{"not all " + std::to_string(options_.group_world_size) +
                     " nodes came to the exit barrier within " + seconds_text(limit)};
  co_return late;
}

}  // namespace muster
