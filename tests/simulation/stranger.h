// A simulated stranger at a host: it sends correct, wrong, torn and replayed requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/simulation/c10d_door.h"

namespace muster::testing {

/// The options of a host that strangers can reach: it has at most `most` runs and forgets them
/// soon.
inline RunServiceOptions host_of_runs(std::size_t most) {
  RunServiceOptions options;
  options.only_nodes_close = true;
  options.runs = most;
  options.runs_per_connection = 2;
  options.forget_after = std::chrono::seconds(5);
  return options;
}

/// A client from outside, with one connection to the c10d door and one to the native door.
class Stranger {
 public:
  Stranger(Cluster& cluster, C10dDoor& door, std::uint64_t seed)
      : cluster_(cluster), door_(door), dice_(seed), native_(cluster.new_connection()) {}

  void act(const std::string& text_of_the_job) {
    if (!store_ || !door_.is_open(*store_)) store_ = door_.connect();
    switch (dice_.below(9)) {
      case 0:
        return native(NativeHello{kNativeProtocolVersion, "9.9", own_run()});
      case 1: {
        NodeJoined joined;
        joined.name = {"stranger", static_cast<std::int64_t>(dice_.below(3)), 0};
        joined.instance = "s" + std::to_string(dice_.below(3));
        joined.run.min_nodes = joined.run.max_nodes = 1 + static_cast<int>(dice_.below(2));
        joined.muster_version = "x";
        return native(joined);
      }
      case 2:
        return native(StoreReady{{}, static_cast<std::int64_t>(dice_.below(3)), "10.0.0.9", 1});
      case 3:
        return native_gone();
      case 4:
        return write(std::string(kStateKeyPrefix) + own_run(), encode_state(some_state()));
      case 5: {  // The job's own text, or that text with one wrong bit.
        std::string text = text_of_the_job;
        if (!text.empty() && dice_.chance(50)) text[dice_.below(text.size())] ^= 1;
        return write(std::string(kStateKeyPrefix) + "job", text);
      }
      case 6: {  // Closes the job.
        const auto state = decode_state(text_of_the_job);
        if (!state || !*state) return;
        RendezvousState closed = **state;
        closed.closed = true;
        return write(std::string(kStateKeyPrefix) + "job", encode_state(closed), text_of_the_job);
      }
      case 7: {  // Waits for the key for which the job's nodes wait.
        const std::string key =
            std::string(kStateKeyPrefix) + "job.0" + std::string(kExitBarrierKey);
        const std::string_view keys[]{key};
        return send({.query = Query::Wait, .keys = keys});
      }
      default:
        return door_.cut(*store_);
    }
  }

  /// Closes both connections for good.
  void leave() {
    native_gone();
    if (store_) door_.cut(*store_);
  }

 private:
  bool host_listens() const { return cluster_.is_up() && cluster_.now >= cluster_.stopped_until; }
  std::string own_run() { return dice_.chance(50) ? "a" : "b"; }
  RendezvousState some_state() {
    RendezvousState state;
    const NodeName name{"stranger", static_cast<std::int64_t>(dice_.below(3)), 0};
    state.participants.set(name, 0);
    state.last_heartbeats.set(name, cluster_.time().wall);
    state.complete = dice_.chance(50);
    return state;
  }
  void native(const NativeRequest& request) {
    if (!host_listens()) return;
    const std::string frame = encode(request);
    const auto answer =
        cluster_.service->receive({native_}, std::string_view(frame).substr(1 + kNativeLengthBytes),
                                  "10.9.9.9", cluster_.time());
    if (!answer.close.empty()) native_gone();
    cluster_.apply_effects();
  }
  void native_gone() {
    if (!host_listens()) return;
    cluster_.service->disconnect({native_}, cluster_.time());
    native_ = cluster_.new_connection();
    cluster_.apply_effects();
  }
  void write(const std::string& key, const std::string& desired, const std::string& expected = {}) {
    send({.query = Query::CompareSet, .key = key, .value = desired, .expected = expected});
  }
  /// Sends the whole request, or only its beginning and then closes the connection.
  void send(const Request& request) {
    std::string bytes;
    encode_request(request, bytes);
    const bool torn = dice_.chance(20);
    if (torn) bytes.resize(dice_.below(bytes.size()));
    door_.send(*store_, std::move(bytes));
    if (torn) door_.cut(*store_);
  }

  Cluster& cluster_;
  C10dDoor& door_;
  Prng dice_;
  std::optional<std::uint32_t> store_;
  std::uint32_t native_;
};

}  // namespace muster::testing
