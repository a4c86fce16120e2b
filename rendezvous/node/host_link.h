// A node's connection to its host: whether it is up, when the host last gave a sign of life, when
// to connect again, and why the last try failed.
//
// Pure: time and chance are arguments.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "rendezvous/messages/native_codec.h"

namespace muster {

/// What a try to connect has found. For people, who must look for the cause in the right place.
enum class HostFound {
  Nobody,   // Nothing answers there.
  NoWay,    // No packet has got there: the name has no address, or there is no route.
  Refusal,  // Something answers there, and refuses this node or is refused by it.
};

class HostLink {
 public:
  struct Options {
    Duration lease;         // This node's own. It counts until the host says its lease.
    std::string host_text;  // "host:port", for people.
    std::uint64_t random = 0;
  };
  explicit HostLink(Options options) : options_(std::move(options)), lease_(options_.lease) {}

  bool is_up() const { return up_; }
  /// The host's lease: it decides when a node is lost. Of an older host: this node's.
  Duration lease() const { return lease_; }
  const NativeWelcome& welcome() const { return welcome_; }  // The latest one.
  /// Whether something between the two has its own connections with both.
  bool is_proxied() const { return proxied_; }
  Instant heard_at() const { return heard_; }  // When the host last sent something.
  /// Since when the host is lost: back() was not called since. Nothing: it is not lost.
  std::optional<Instant> lost_since() const { return lost_since_; }
  const std::string& lost_why() const { return lost_why_; }
  const std::string& last_error() const { return last_error_; }
  HostFound found() const { return found_; }

  // What has happened.
  void connected(const NativeWelcome& welcome, bool proxied, Instant now);
  void heard(Instant now) { heard_ = now; }
  /// The host has answered more than the welcome: this connection works.
  void answered();
  /// The host is there again, and knows this node.
  void back() { lost_since_.reset(); }
  /// The connection is lost. Returns false if the host has been lost for longer already.
  bool lost(const std::string& why, Instant since, Instant now);
  void try_failed(const std::string& text, HostFound found, Instant now);
  /// The host's machine has refused a connection. That is a sign of life only within a lease of an
  /// earlier one: after a longer silence another round may have begun before the host's process
  /// ended.
  void refused(Instant now);
  /// The process was paused for `length`, which counts for no silence: answers of the host may
  /// still wait to be read, and nothing was tried meanwhile.
  void forgive(Duration length, Instant now);

  /// The last sign of life of the host.
  Instant evidence() const { return refused_ ? std::max(heard_, *refused_) : heard_; }
  /// When the host's machine last refused a connection, if that was within the lease.
  std::optional<Instant> refused_lately(Instant now) const;
  /// Whether people should be told of a failed try: it is new, and not one of very many.
  bool take_news(const std::string& text);

  // What is due.
  bool is_silent(Instant now) const { return up_ && welcome_.resumes && now >= heard_ + lease_; }
  /// Whether to send a sign of life now. The next one is due later.
  bool take_keep_alive(Instant now);
  /// Whether to connect now. connected() or try_failed() must follow.
  bool take_connect(Instant now);
  std::optional<Instant> next_deadline(Instant now) const;

  // For people.
  /// The host, and what is the matter with it. `nobody`: the words for one that does not answer.
  std::string host_that(std::string_view nobody) const;
  std::string latest_try() const;

 private:
  static constexpr Duration kPauseFirst = std::chrono::milliseconds(100);

  void pause_before_next_try(Instant now);
  Duration jittered(Duration most);

  Options options_;
  bool up_ = false;
  bool connecting_ = false;
  bool answered_ = false;  // The host has sent more than the welcome on this connection.
  NativeWelcome welcome_;
  bool proxied_ = false;
  Duration lease_;
  std::optional<Instant> next_try_;
  Duration pause_ = kPauseFirst;  // Before the next try, unless that one follows at once.
  Instant keep_alive_at_{};
  Instant heard_{};
  std::optional<Instant> refused_;
  std::optional<Instant> lost_since_;
  std::string lost_why_;
  std::string last_error_;
  HostFound found_ = HostFound::Nobody;  // As last_error_.
  int told_errors_ = 0;  // The reasons that were told since the connection was lost.
};

}  // namespace muster
