// What a run service wants done, in this order: messages, held answers, keys, lines in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/shared_bytes.h"
#include "rendezvous/core/store_request.h"
#include "rendezvous/wire/native_codec.h"

namespace muster {

struct SendNative {
  ConnectionId to;
  NativeMessage message;
  /// To rank 0, with its round: torchrun nodes, to which it is to say where the store is.
  std::vector<ConnectionId> readers = {};
};
/// The reply of a compare-and-set that was held back.
struct AnswerHeld {
  ConnectionId to;
  SharedBytes text;
};
/// The store is to have a value under `state_key`, for those who ask only whether it is there.
struct ShowState {
  std::string state_key;
};
/// Remove `state_key`.ROUND/... from the store; with_state: the key itself, too.
struct ForgetRun {
  std::string state_key;
  bool with_state = false;
};
/// A torchrun rank 0 says where its workers meet in its first round only, and newcomers wait for it
/// for ever. If nobody has said it for `round`, repeat what was said last with this address.
struct RepeatMaster {
  std::string state_key;
  std::int64_t round = 0;
  std::string addr;  // Rank 0's.
};
struct RunNote {
  enum class Level { Debug, Info, Warning, Error };
  Level level = Level::Info;
  std::string line;
};
/// Those who wait for `key` need not any more.
struct OpenBarrier {
  std::string key;
};
/// For who has asked a node by RunService::ask().
struct QuestionAnswered {
  NodeAnswered answer;
};
/// For who has asked by RunService::operate(): it is done, and durable where runs are recorded.
struct OperatorAnswered {
  std::uint64_t number = 0;
  std::string text;  // What follows from it, as sentences; may be empty.
};
using RunEffect = std::variant<SendNative, AnswerHeld, ShowState, OpenBarrier, ForgetRun,
                               RepeatMaster, RunNote, QuestionAnswered, OperatorAnswered>;

/// Whom it is for; nothing if it is for the store or the log.
std::optional<ConnectionId> recipient_of(const RunEffect& effect);

}  // namespace muster
