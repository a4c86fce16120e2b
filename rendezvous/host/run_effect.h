// The effects of a run service: messages, held answers, changes of keys, log lines. The shell
// carries them out in their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/messages/native_codec.h"
#include "rendezvous/store/shared_bytes.h"
#include "rendezvous/store/store_request.h"

namespace muster {

struct SendNative {
  ConnectionId to;
  NativeMessage message;
  /// For a RoundComplete to rank 0: the torchrun nodes, for which rank 0 publishes its address. If
  /// the address is a loopback one, the shell replaces it by one that these clients reach.
  std::vector<ConnectionId> readers = {};
};
/// The answer to a compare-and-set that was held back.
struct AnswerHeld {
  ConnectionId to;
  SharedBytes text;
};
/// Put a value under `state_key` into the store, for clients that only check whether the key
/// exists.
struct ShowState {
  std::string state_key;
};
/// Remove the keys `state_key`.ROUND/... from the store. with_state: also the key itself.
struct ForgetRun {
  std::string state_key;
  bool with_state = false;
};
/// A torchrun rank 0 publishes its master address only in its first round, and newcomers would wait
/// for it without an end. If there is none for `round`, publish the newest earlier one that has
/// `addr`.
struct RepeatMaster {
  std::string state_key;
  std::int64_t round = 0;
  std::string addr;  // Rank 0's address.
};
struct LogLine {
  enum class Level { Debug, Info, Warning, Error };
  Level level = Level::Info;
  std::string line;
};
/// Answer the clients that wait for `key`.
struct OpenBarrier {
  std::string key;
};
/// The answer for the caller of RunService::ask().
struct QuestionAnswered {
  NodeAnswered answer;
};
/// The answer for the caller of RunService::operate(): the operation is done, and durable if runs
/// are recorded.
struct OperatorAnswered {
  std::uint64_t number = 0;
  std::string text;  // The consequences, as sentences. May be empty.
};
using RunEffect = std::variant<SendNative, AnswerHeld, ShowState, OpenBarrier, ForgetRun,
                               RepeatMaster, LogLine, QuestionAnswered, OperatorAnswered>;

/// The client that the effect is for. Empty if it is for the store or the log.
std::optional<ConnectionId> recipient_of(const RunEffect& effect);

}  // namespace muster
