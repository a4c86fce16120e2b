// Many clients against one table, through the codec: random requests in random pieces, randomly
// interleaved, with disconnects. After every step each client must have got exactly the bytes that
// the plain model sends. A failure prints its seed. MUSTER_SEED=<seed> runs that seed again.

#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/store/store_table.h"
#include "tests/simulation/store_model.h"
#include "tests/support/prng.h"
#include "tests/support/seeds.h"
#include "tests/support/trace.h"

namespace muster {
namespace {

/// One request that owns its memory.
struct OwnedRequest {
  Query query = Query::Ping;
  std::string key, value, expected;
  std::int64_t number = 0;
  std::vector<std::string> keys, values;
  std::vector<std::string_view> key_views, value_views;

  Request view() {
    key_views.assign(keys.begin(), keys.end());
    value_views.assign(values.begin(), values.end());
    return {query, key, value, expected, number, key_views, value_views};
  }
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed)
      : prng(seed),
        names_(2 + prng.below(6)),
        large_(prng.chance(10)),
        queues_(prng.chance(70)),
        waits_(5 + static_cast<int>(prng.below(50))) {}

  OwnedRequest request() {
    OwnedRequest request;
    request.query = query();
    request.key = name();
    request.value = value();
    request.expected = prng.chance(40) ? "" : value();
    request.number = number(request.query);
    const bool has_list = request.query == Query::Check || request.query == Query::Wait ||
                          request.query == Query::MultiGet || request.query == Query::MultiSet;
    const std::size_t count = has_list ? prng.below(4) : 0;
    for (std::size_t i = 0; i < count; ++i) {
      request.keys.push_back(name());
      if (request.query == Query::MultiSet) request.values.push_back(value());
    }
    if (request.query == Query::Wait && count > 0 && prng.chance(30))
      request.keys.resize(70, request.keys.back());  // So long that abandon() does not end it.
    return request;
  }

  testing::Prng prng;

 private:
  Query query() {
    if (prng.chance(waits_)) return prng.chance(70) ? Query::Wait : Query::CancelWait;
    for (;;) {
      const auto query = static_cast<Query>(1 + prng.below(kQueryCount - 1));
      const bool queue =
          query == Query::QueuePush || query == Query::QueuePop || query == Query::QueueLen;
      if (!queue || queues_) return query;
    }
  }
  std::string name() {
    const std::uint64_t i = prng.below(names_);
    return i == 0 ? "" : "/key" + std::string(1, static_cast<char>(i));
  }
  std::string value() {
    if (large_ && prng.chance(10)) return std::string(20'000 + prng.below(30'000), 'L');
    switch (prng.below(6)) {
      case 0:
        return "";
      case 1:
        return "text";
      case 2:
        return std::string(prng.below(80), '\0');
      default:
        return std::to_string(static_cast<std::int64_t>(prng.below(20)) - 10);
    }
  }
  std::int64_t number(Query query) {
    if (query == Query::Ping) return static_cast<std::int64_t>(prng.below(1ULL << 32));
    if (query == Query::Barrier) return static_cast<std::int64_t>(prng.below(6)) - 1;
    return prng.chance(5) ? static_cast<std::int64_t>(prng.next())
                          : static_cast<std::int64_t>(prng.below(9)) - 4;
  }

  std::uint64_t names_;
  bool large_;
  bool queues_;
  int waits_;
};

/// The real code: a decoder and an input buffer for each client, one table, and the reply bytes.
class Server {
 public:
  explicit Server(const CodecLimits& limits) : limits_(limits) {}

  void connect(std::uint32_t who) {
    if (who >= clients_.size()) clients_.resize(who + std::size_t{1});
    table.disconnect(ConnectionId{who});
    clients_[who] = std::make_unique<Client>(limits_);
  }
  void receive(std::uint32_t who, std::string_view bytes) {
    Client& client = *clients_[who];
    client.input.append(bytes);
    for (;;) {
      const auto complete = client.decoder.scan(client.input.view());
      REQUIRE(complete.has_value());
      if (!*complete) return;
      Request request = client.decoder.request(client.input.view(), scratch_);
      request.buffer = &client.input;
      const Reply reply = table.apply(ConnectionId{who}, request);
      for (const ConnectionId released : table.released())
        clients_[released.value]->output.add_byte(kStopWaiting.value);
      if (std::holds_alternative<Refusal>(reply)) return disconnect(who);
      encode_reply(reply, client.output);
      client.input.erase_front(client.decoder.size());
      client.decoder.next();
    }
  }
  void disconnect(std::uint32_t who) {
    table.abandon(ConnectionId{who});  // disconnect() comes some steps later, in connect().
    clients_[who]->closed = true;
  }
  /// The bytes sent to the client since the last call.
  std::string take(std::uint32_t who) {
    std::string bytes;
    std::array<std::string_view, 1> piece;
    while (clients_[who]->output.gather(piece) > 0) {
      bytes.append(piece[0]);
      clients_[who]->output.consume(piece[0].size());
    }
    return bytes;
  }
  bool closed(std::uint32_t who) const { return clients_[who]->closed; }

  StoreTable table{StoreLimits{}};

 private:
  struct Client {
    explicit Client(const CodecLimits& limits) : decoder(limits) {}
    RequestDecoder decoder;
    ByteBuffer input;
    ReplyQueue output;
    bool closed = false;
  };

  const CodecLimits& limits_;
  RequestScratch scratch_;
  std::vector<std::unique_ptr<Client>> clients_;
};

/// The client's side of a connection: bytes not delivered yet, and where each request ends.
struct Wire {
  struct Pending {
    std::size_t end;  // Its offset from the connection's first byte.
    OwnedRequest request;
  };
  std::string bytes;
  std::size_t delivered = 0;
  std::deque<Pending> pending;
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : generator_(seed), server_(limits_), wires_(1 + generator_.prng.below(8)) {
    for (std::uint32_t who = 0; who < wires_.size(); ++who)
      connect(who);
  }

  void step() {
    testing::Prng& prng = generator_.prng;
    const auto who = static_cast<std::uint32_t>(prng.below(wires_.size()));
    REQUIRE(server_.closed(who) == model_.closed[who]);
    if (model_.closed[who]) {
      if (prng.chance(20)) connect(who);  // A new client gets the same number.
      return;
    }
    if (prng.chance(2)) {
      server_.disconnect(who);
      model_.disconnect(who);
    } else {
      if (wires_[who].bytes.empty() || prng.chance(40)) ask(who);
      const std::size_t size = wires_[who].bytes.size();
      deliver(who, prng.chance(50) ? size : 1 + prng.below(size));
    }
    compare();
  }

 private:
  void connect(std::uint32_t who) {
    server_.connect(who);
    model_.closed[who] = false;
    model_.sent[who].clear();
    wires_[who] = Wire{};
    encode_request({.query = Query::Validate, .number = c10d::kValidationMagic}, wires_[who].bytes);
  }
  void ask(std::uint32_t who) {
    Wire& wire = wires_[who];
    OwnedRequest request = generator_.request();
    encode_request(request.view(), wire.bytes);
    wire.pending.push_back({wire.delivered + wire.bytes.size(), std::move(request)});
  }
  void deliver(std::uint32_t who, std::size_t bytes) {
    Wire& wire = wires_[who];
    server_.receive(who, std::string_view(wire.bytes).substr(0, bytes));
    wire.bytes.erase(0, bytes);
    wire.delivered += bytes;
    while (!wire.pending.empty() && wire.pending.front().end <= wire.delivered) {
      if (!model_.closed[who]) model_.apply(who, wire.pending.front().request.view());
      wire.pending.pop_front();
    }
  }
  void compare() {
    for (std::uint32_t who = 0; who < wires_.size(); ++who) {
      const std::string bytes = server_.take(who);
      testing::Trace::now().add(bytes);
      REQUIRE(bytes == model_.sent[who]);
      model_.sent[who].clear();
    }
    REQUIRE(server_.table.num_keys() == model_.keys());
    REQUIRE(server_.table.waiting() == model_.waiting());
  }

  const CodecLimits limits_;
  Generator generator_;
  Server server_;
  testing::StoreModel model_;
  std::vector<Wire> wires_;
};

void run(std::uint64_t seed) {
  INFO("MUSTER_SEED=" << seed);
  Simulation simulation(seed);
  for (int step = 0; step < 200; ++step)
    simulation.step();
}

TEST_CASE("simulation: the store sends the same bytes as the plain model", "[simulation][store]") {
  testing::run_seeds(2000, run);
}

}  // namespace
}  // namespace muster
