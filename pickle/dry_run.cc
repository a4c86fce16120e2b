#include "pickle/dry_run.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace muster::pickle {
namespace {

constexpr std::uint64_t kMaxMemoIndex = 4'095;  // Python's memo has a place for each lower number.
constexpr std::uint64_t kHighestProtocol = 15;  // Three times that of CPython 3.14.
constexpr std::uint64_t kMaxAllocation = std::uint64_t{4} << 30;  // Not touched if it is too much.
constexpr int kMaxSteps =
    1'000;  // Many small values could take Python hours to hash, or its stack.
// Python 3.10 takes hours for an integer of 8 MiB.
constexpr std::size_t kMaxTextLineBytes = 1'000;
constexpr unsigned char kProto = 0x80;

/// The stack holds plain data only, so only its depth matters. Where Python may fail for another
/// reason (text that is no UTF-8, a key that cannot be hashed), the dry run goes on: its own answer
/// is then about bytes that Python does not reach.
class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}

  DryRun run() {
    for (int steps = 0; !answer_ && steps < kMaxSteps; ++steps) {
      const std::string_view opcode = take(1);
      if (!answer_) step(static_cast<unsigned char>(opcode.front()));
    }
    return answer_.value_or(DryRun::MayRead);
  }

 private:
  void step(unsigned char opcode) {
    if (opcode >= kProto) return step_of_protocol_2(opcode);
    switch (static_cast<char>(opcode)) {
      case '(':
        return marks_.push_back(std::exchange(depth_, 0));
      case ')':
      case ']':
      case '}':
      case 'N':
        return push();
      case 'K':
        return push_after(1);
      case 'M':
        return push_after(2);
      case 'J':
        return push_after(4);
      case 'G':
        return push_after(8);
      case 'C':
      case 'U':
        return push_counted(1);
      case 'B':
      case 'T':
      case 'X':
        return push_counted(4);
      case 'F':
      case 'I':
      case 'L':
      case 'S':
      case 'V':
        if (take_line()) push();
        return;
      case '0':
        return pop_one();
      case '1':
        return pop_mark(0, 0);
      case '2':
        return need(1, 1);
      case 'l':
      case 't':
        return pop_mark(0, 1);
      case 'a':
        return need(2, -1);
      case 's':
        return needs_then(3, DryRun::MayRead);  // It hashes a key.
      case 'e':
        return pop_mark(1, 0);
      case 'q':
        return put(take_number(1));
      case 'r':
        return put(take_number(4));
      case 'h':
        return get(take_number(1));
      case 'j':
        return get(take_number(4));
      case 'g':  // The number is text, whose forms are many.
        return answer(memo_.empty() ? DryRun::Fails : DryRun::MayRead);
      case 'p':
        return needs_then(1, DryRun::MayRead);
      case 'R':  // A call of plain data.
      case 'P':  // pickle.loads() has no persistent ids.
      case 'Q':
        return answer(DryRun::Fails);
      case 'b':
        return needs_then(2, DryRun::MayRead);
      case 'c':  // Two lines. At the end of the bytes, Python also takes a line without its end.
        if (take_line()) answer(DryRun::MayRead);
        return;
      case 'd':
      case 'i':
      case 'o':
      case 'u':
        return answer(marks_.empty() ? DryRun::Fails : DryRun::MayRead);
      case '.':
        return needs_then(1, DryRun::MayRead);
      default:
        return answer(DryRun::Fails);  // No opcode.
    }
  }
  void step_of_protocol_2(unsigned char opcode) {
    switch (opcode) {
      case kProto:
        if (take_number(1) > kHighestProtocol) answer(DryRun::Fails);
        return;
      case 0x81:  // NEWOBJ
      case 0x93:  // STACK_GLOBAL
        return needs_then(2, DryRun::MayRead);
      case 0x92:  // NEWOBJ_EX
        return needs_then(3, DryRun::MayRead);
      case 0x85:  // TUPLE1, 2, 3
      case 0x86:
      case 0x87:
        return need(opcode - 0x84, 0x85 - opcode);
      case 0x88:  // NEWTRUE, NEWFALSE, EMPTY_SET
      case 0x89:
      case 0x8f:
        return push();
      case 0x8a:  // LONG1
      case 0x8c:  // SHORT_BINUNICODE
        return push_counted(1);
      case 0x8b:  // LONG4
        return push_counted(4);
      case 0x8d:  // BINUNICODE8, BINBYTES8
      case 0x8e:
        return push_counted(8);
      case 0x90:  // ADDITEMS, FROZENSET
      case 0x91:
        return answer(marks_.empty() ? DryRun::Fails : DryRun::MayRead);
      case 0x94:  // MEMOIZE
        return put(memo_.size());
      case 0x95: {  // FRAME: its bytes must be there, and are read as any others.
        const std::uint64_t bytes = take_number(8);
        if (bytes > bytes_.size()) answer(DryRun::EndsEarly);
        return;
      }
      case 0x98:  // READONLY_BUFFER
        return needs_then(1, DryRun::MayRead);
      case 0x82:  // EXT1, 2, 4 and NEXT_BUFFER depend on what the program has registered.
      case 0x83:
      case 0x84:
      case 0x96:  // BYTEARRAY8: CPython 3.11 releases a truncated one wrongly.
      case 0x97:
        return answer(DryRun::MayRead);
      default:
        return answer(DryRun::Fails);
    }
  }

  void answer(DryRun is) {
    if (!answer_) answer_ = is;
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) {
      answer(DryRun::EndsEarly);
      return {};
    }
    const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(count));
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  std::uint64_t take_number(std::size_t width) {
    std::uint64_t value = 0;
    const std::string_view taken = take(width);
    for (std::size_t i = 0; i < taken.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return value;
  }
  bool take_line() {
    const std::size_t end = bytes_.substr(0, kMaxTextLineBytes).find('\n');
    if (end != std::string_view::npos)
      take(end + 1);
    else
      answer(bytes_.size() < kMaxTextLineBytes ? DryRun::EndsEarly : DryRun::MayRead);
    return !answer_;
  }

  void push() {
    if (!answer_) ++depth_;
  }
  void push_after(std::size_t bytes) {
    take(bytes);
    push();
  }
  void push_counted(std::size_t width) {
    const std::uint64_t count = take_number(width);
    // Python allocates the bytes before it reads them.
    if (count > kMaxAllocation) answer(DryRun::MayRead);
    take(count);
    push();
  }
  /// Python fails unless `count` values are on the stack above the last mark.
  void need(std::size_t count, int change) {
    if (depth_ < count) return answer(DryRun::Fails);
    depth_ = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(depth_) + change);
  }
  void needs_then(std::size_t count, DryRun then) { answer(depth_ < count ? DryRun::Fails : then); }
  void pop_one() {
    if (depth_ > 0)
      --depth_;
    else
      pop_mark(0, 0);
  }
  /// Drops what is above the last mark, and the mark. Python fails unless there is a mark, and
  /// `count` values below it. Then pushes `pushed` values.
  void pop_mark(std::size_t count, std::size_t pushed) {
    if (marks_.empty()) return answer(DryRun::Fails);
    depth_ = marks_.back();
    marks_.pop_back();
    if (depth_ < count) return answer(DryRun::Fails);
    depth_ += pushed;
  }
  void put(std::uint64_t index) {
    if (answer_) return;
    if (depth_ == 0) return answer(DryRun::Fails);
    if (index > kMaxMemoIndex) return answer(DryRun::MayRead);
    memo_.insert(index);
  }
  void get(std::uint64_t index) {
    if (answer_) return;
    if (!memo_.contains(index)) return answer(DryRun::Fails);
    push();
  }

  std::string_view bytes_;          // The bytes that are left.
  std::size_t depth_ = 0;           // The values above the last mark.
  std::vector<std::size_t> marks_;  // For each mark, the values between it and the mark before.
  std::set<std::uint64_t> memo_;
  std::optional<DryRun> answer_;
};

}  // namespace

DryRun dry_run(std::string_view bytes) {
  return Unpickler(bytes).run();
}

}  // namespace muster::pickle
