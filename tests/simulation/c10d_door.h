// The c10d door of a simulated host: requests and replies go to RunService as wire bytes, through
// the codec. Also the members of a run that use this door.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/torchrun/c10d_participant.h"
#include "rendezvous/torchrun/state_codec.h"
#include "tests/simulation/native_cluster.h"
#include "tests/support/torch_model.h"

namespace muster::testing {

class C10dDoor {
 public:
  /// Gets the bytes of a reply. Empty if the connection broke before it.
  using OnReply = std::function<void(std::optional<std::string>)>;

  explicit C10dDoor(Cluster& cluster);

  std::uint32_t connect();
  /// Sends a request. Only one may be open at a time.
  void ask(std::uint32_t id, const Request& request, OnReply on_reply);
  /// Sends any bytes and waits for no reply.
  void send(std::uint32_t id, std::string bytes);
  /// Breaks the connection. Each end notices that independently.
  void cut(std::uint32_t id);
  bool is_open(std::uint32_t id) const { return links_.at(id).open_at_client; }
  /// Sets the key: the clients that wait for it are answered.
  void open(const std::string& key);

  std::vector<std::string> refusals;  // Why connections were closed.

 private:
  struct Link {
    RequestDecoder decoder{kLimits};
    std::string input;
    std::string waits_for;
    bool open_at_host = true, open_at_client = true;
    Instant last_to_host{}, last_to_client{};
    OnReply on_reply;
  };
  static const CodecLimits kLimits;

  void arrive(std::uint32_t id, const std::string& bytes);
  void serve(std::uint32_t id, Link& link, const Request& request);
  void compare_set(std::uint32_t id, const Request& request);
  void reply(std::uint32_t id, const Reply& reply);
  void refuse(std::uint32_t id, std::string why);
  void gone_at_host(std::uint32_t id);
  void broken_at_client(std::uint32_t id);

  Cluster& cluster_;
  std::map<std::uint32_t, Link> links_;
};

/// A node that reads the state, and writes it by compare-and-set.
class C10dMember {
 public:
  C10dMember(C10dDoor& door, Cluster& cluster, std::string key)
      : door_(door), cluster_(cluster), key_(std::move(key)) {}
  virtual ~C10dMember() = default;
  C10dMember(const C10dMember&) = delete;
  C10dMember& operator=(const C10dMember&) = delete;

  void start();
  void cut() {
    if (connection_) door_.cut(*connection_);
  }
  /// Its workers have succeeded: it waits at the exit barrier and reads no state any more.
  void finish() { finished_ = true; }
  bool finished() const { return finished_; }
  bool at_exit_barrier() const { return at_exit_barrier_; }
  /// Its machine fails: it sends nothing any more.
  void die() {
    ended_ = true;
    cut();
  }
  bool alive() const { return !ended_; }
  /// All nodes have reached the exit barrier: this node closes the run and leaves.
  void leave();
  const std::string& last_text() const { return seen_text_; }
  /// The round that its workers are in.
  virtual std::optional<std::int64_t> round() const = 0;
  virtual std::string describe() const = 0;

 protected:
  struct Next {
    std::optional<RendezvousState> write;
    Duration after{};
  };
  virtual Next take(const RendezvousState& seen, Instant now, WallTime wall) = 0;

 private:
  void go_on();
  void took(const std::optional<std::string>& reply);

  C10dDoor& door_;
  Cluster& cluster_;
  std::string key_;
  std::optional<std::uint32_t> connection_;
  bool begun_ = false;  // The first request on this connection was sent.
  std::string seen_text_;
  std::optional<RendezvousState> write_;
  bool finished_ = false;
  bool at_exit_barrier_ = false;
  bool ended_ = false;
};

/// A torchrun node.
class TorchMember final : public C10dMember {
 public:
  TorchMember(C10dDoor& door, Cluster& cluster, std::string key, NodeName name,
              TorchSettings settings)
      : C10dMember(door, cluster, std::move(key)),
        model_(std::move(name), settings),
        deadline_(cluster.now + settings.join_timeout) {}
  std::optional<std::int64_t> round() const override { return round_; }
  std::string describe() const override;

 private:
  Next take(const RendezvousState& seen, Instant now, WallTime wall) override;
  void restart(Instant now);

  TorchModel model_;
  TorchModel::Operation operation_ = TorchModel::Operation::Join;
  Instant deadline_;
  std::optional<std::int64_t> round_;
};

/// A muster node that uses the c10d door, as with a torchrun host.
class MusterMember final : public C10dMember {
 public:
  MusterMember(C10dDoor& door, Cluster& cluster, std::string key, NodeName name,
               RendezvousSettings settings)
      : C10dMember(door, cluster, std::move(key)),
        participant_(std::move(name), std::move(settings)) {
    participant_.join(cluster.now);
  }
  std::optional<std::int64_t> round() const override { return round_; }
  std::string describe() const override;

 private:
  Next take(const RendezvousState& seen, Instant now, WallTime wall) override;

  C10dParticipant participant_;
  std::optional<std::int64_t> round_;
  Instant settles_{};
};

}  // namespace muster::testing
