// Plays the rendezvous of one run from lines of text: commands go in, the rendezvous' actions come
// out.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/host/rendezvous.h"
#include "tests/support/torch_model.h"

namespace muster::testing {

/// A line is "SECONDS NODE VERB [KEY=VALUE ...]". Before all others there may be a line "settings
/// KEY=VALUE ...". tests/scenarios/README.md lists the verbs. Nodes send a keep-alive once a
/// second, unless a command makes them silent.
class RendezvousPlay {
 public:
  /// Advances to the command's time, executes it, and returns the output line by line. For a
  /// command that is not valid, the output is the reason.
  std::vector<std::string> command(const std::string& line);

 private:
  using Words = std::vector<std::string>;
  struct Node {
    NodeName name;
    ConnectionId connection;
    bool connected = false;
    bool silent = false;
    std::int64_t told_round = -1;
    std::int64_t round = -1;  // The round of its workers.
    std::unique_ptr<TorchModel> torch;
  };

  void settings(const Words& words);
  void pass_until(Instant end);
  void keep_alive();
  void act(const std::string& name, const Words& words);
  void join(Node& node, const Words& words);
  void torch(const std::string& name, const Words& words);
  void torch_writes(Node& node, TorchModel::Operation operation);
  void step(const RendezvousEvent& event);
  void tell(const RendezvousActions& actions);
  void tell_reason();
  void say(const std::string& text);
  std::string text_of(const RendezvousAction& action);
  Node& at(ConnectionId connection);
  Node& known(const std::string& name);
  WallTime wall() const;

  RunSettings run_;
  RendezvousSetup setup_;
  std::optional<Rendezvous> rendezvous_;
  std::map<std::string, Node> nodes_;
  std::uint32_t connections_ = 0;
  Instant now_{};
  Instant kept_alive_{};
  std::string reason_;
  std::vector<std::string> said_;
};

}  // namespace muster::testing
