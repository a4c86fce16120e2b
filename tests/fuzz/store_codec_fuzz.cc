// libFuzzer: the bytes of one connection go through the decoder and the table, in two different
// fragmentations.
//
// One run gets all bytes at once, the other one gets pieces, whose size the first byte sets. Both
// must give the same replies and the same end. A second client waits and pushes, so that waits end.
// The highest bit of the first byte sets the decoder's limits: usual ones, or 2^64 - 1.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/store/store_table.h"

namespace muster {
namespace {

struct Outcome {
  std::string replies;
  std::optional<ParseFault> fault;
  bool refused = false;
  std::size_t keys = 0;
  std::size_t bytes = 0;
  bool operator==(const Outcome&) const = default;
};

void append_all(ReplyQueue& queue, std::string& out) {
  std::array<std::string_view, 3> pieces;
  while (queue.gather(pieces) > 0) {
    out.append(pieces[0]);
    queue.consume(pieces[0].size());
  }
}

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr CodecLimits kUsual{
    .value_bytes = 1 << 16, .keys_per_request = 1000, .request_bytes = 1 << 20};
constexpr CodecLimits kUnlimited{
    .key_bytes = kMax, .value_bytes = kMax, .keys_per_request = kMax, .request_bytes = kMax};

class Run {
 public:
  explicit Run(const CodecLimits& limits) : limits_(limits) {}

  Outcome run(std::string_view bytes, std::size_t piece) {
    wait(kOther, "/a");
    while (!bytes.empty() && !outcome_.fault && !outcome_.refused) {
      const std::size_t size = std::min(piece, bytes.size());
      input_.append(bytes.substr(0, size));
      bytes.remove_prefix(size);
      serve();
    }
    append_all(queue_, outcome_.replies);
    outcome_.keys = table_.num_keys();
    table_.disconnect(kThis);
    table_.disconnect(kOther);
    MUSTER_CHECK(table_.waiting() == 0);
    table_.clear();
    MUSTER_CHECK(table_.bytes() == 0);
    return outcome_;
  }

 private:
  static constexpr ConnectionId kThis{0};
  static constexpr ConnectionId kOther{1};

  void wait(ConnectionId who, std::string_view key) {
    const std::array<std::string_view, 1> keys{key};
    table_.apply(who, {.query = Query::Wait, .keys = keys});
  }

  void serve() {
    for (;;) {
      const auto complete = decoder_.scan(input_.view());
      if (!complete) {
        outcome_.fault = complete.error().fault;
        return;
      }
      MUSTER_CHECK(decoder_.wanted() <= limits_.request_bytes);
      if (!*complete) {
        MUSTER_CHECK(decoder_.wanted() > input_.size());
        return;
      }
      Request request = decoder_.request(input_.view(), scratch_);
      request.buffer = &input_;
      const Reply reply = table_.apply(kThis, request);
      for (const ConnectionId released : table_.released())
        if (released == kThis) queue_.add_byte(kStopWaiting.value);
      outcome_.refused = std::holds_alternative<Refusal>(reply);
      if (outcome_.refused) return;
      encode_reply(reply, queue_);
      input_.erase_front(decoder_.size());
      decoder_.next();
      if (input_.empty()) return;
    }
  }

  const CodecLimits& limits_;
  RequestDecoder decoder_{limits_};
  RequestScratch scratch_;
  ByteBuffer input_;
  ReplyQueue queue_;
  StoreTable table_{StoreLimits{.keys = 200, .bytes = 1 << 20}};
  Outcome outcome_;
};

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto& limits = (data[0] & 0x80) != 0 ? muster::kUnlimited : muster::kUsual;
  muster::Outcome whole = muster::Run(limits).run(bytes, bytes.size());
  muster::Outcome cut = muster::Run(limits).run(bytes, 1 + data[0] % 16);
  MUSTER_CHECK(whole == cut);
  return 0;
}
