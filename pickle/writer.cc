#include "pickle/writer.h"

#include <limits>
#include <optional>

#include "pickle/opcodes.h"

namespace muster::pickle {
namespace {

// CPython 3.11, Modules/_pickle.c.
constexpr std::size_t kFrameHeaderBytes = 9;
constexpr std::size_t kFrameTargetBytes = std::size_t{64} * 1024;
constexpr std::size_t kFrameMinBytes = 4;
constexpr std::size_t kBatchItems = 1000;

class Writer {
 public:
  Writer(const Graph& graph, int max_depth)
      : graph_(graph), max_depth_(max_depth), memo_(graph.values.size(), 0) {}

  PickleResult<std::string> write(Ref root) {
    out_ += static_cast<char>(Opcode::Proto);
    out_ += '\4';
    save(root, 0);
    if (failed_) return *std::move(failed_);
    put(Opcode::Stop);
    close_frame();
    return std::move(out_);
  }

 private:
  void open_frame() {
    if (frame_start_ || !framing_) return;
    frame_start_ = out_.size();
    out_.append(kFrameHeaderBytes, '\0');
  }
  void close_frame() {
    if (!frame_start_) return;
    const std::size_t length = out_.size() - *frame_start_ - kFrameHeaderBytes;
    if (length < kFrameMinBytes) {
      out_.erase(*frame_start_, kFrameHeaderBytes);
    } else {
      out_[*frame_start_] = static_cast<char>(Opcode::Frame);
      for (std::size_t i = 0; i < 8; ++i)
        out_[*frame_start_ + 1 + i] = static_cast<char>(length >> (8 * i) & 0xff);
    }
    frame_start_.reset();
  }
  void put(Opcode opcode) {
    open_frame();
    out_ += static_cast<char>(opcode);
  }
  void put_number(std::uint64_t value, std::size_t width) {
    open_frame();
    for (std::size_t i = 0; i < width; ++i)
      out_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  void put(Opcode opcode, std::uint64_t value, std::size_t width) {
    put(opcode);
    put_number(value, width);
  }

  void save(Ref ref, int depth) {
    if (failed_) return;
    // Python checks before each value whether the frame is full.
    if (frame_start_ && out_.size() - *frame_start_ - kFrameHeaderBytes >= kFrameTargetBytes)
      close_frame();
    if (memo_[ref] != 0) return get(memo_[ref] - 1);
    const Value& value = graph_.at(ref);
    if (depth > max_depth_) {
      failed_ = PickleError{value.offset, "nested too deeply"};
      return;
    }
    switch (value.kind) {
      case Kind::None:
        return put(Opcode::None);
      case Kind::Bool:
        return put(value.number != 0 ? Opcode::NewTrue : Opcode::NewFalse);
      case Kind::Integer:
        return save_integer(value.number);
      case Kind::Real:
        put(Opcode::BinFloat);
        for (int shift = 56; shift >= 0; shift -= 8)
          put_number(static_cast<std::uint64_t>(value.number) >> shift & 0xff, 1);
        return;
      case Kind::Text:
        save_string(value.text, Opcode::ShortBinUnicode, Opcode::BinUnicode, Opcode::BinUnicode8);
        return memoize(ref);
      case Kind::Bytes:
        save_string(value.text, Opcode::ShortBinBytes, Opcode::BinBytes, Opcode::BinBytes8);
        return memoize(ref);
      case Kind::Tuple:
        return save_tuple(ref, value, depth);
      case Kind::List:
        return save_list(ref, value, depth);
      case Kind::Set:
        put(Opcode::EmptySet);
        memoize(ref);
        return save_batches(value, {.opcode = Opcode::AddItems, .step = 1, .depth = depth});
      case Kind::Dict:
        return save_dict(ref, value, depth);
      case Kind::Class:
        save(value.items[0], depth + 1);
        save(value.items[1], depth + 1);
        put(Opcode::StackGlobal);
        return memoize(ref);
      case Kind::Call:
        save(value.items[0], depth + 1);
        save(value.items[1], depth + 1);
        put(Opcode::Reduce);
        return memoize(ref);
      case Kind::Instance:
        save(value.items[0], depth + 1);
        put(Opcode::EmptyTuple);
        put(Opcode::NewObj);
        memoize(ref);
        if (value.items.size() < 2) return;
        save(value.items[1], depth + 1);
        return put(Opcode::Build);
      case Kind::Persistent:
      case Kind::Moved:
        failed_ = PickleError{value.offset, "a value that cannot be written"};
        return;
    }
  }

  void save_integer(std::int64_t value) {
    if (value >= 0 && value <= 0xff)
      return put(Opcode::BinInt1, static_cast<std::uint64_t>(value), 1);
    if (value >= 0 && value <= 0xffff)
      return put(Opcode::BinInt2, static_cast<std::uint64_t>(value), 2);
    if (value >= std::numeric_limits<std::int32_t>::min() &&
        value <= std::numeric_limits<std::int32_t>::max())
      return put(Opcode::BinInt, static_cast<std::uint64_t>(value), 4);
    // The smallest width that has room for the sign bit.
    std::size_t width = 5;
    while (width < 8 && value >> (8 * width - 1) != 0 && value >> (8 * width - 1) != -1)
      ++width;
    put(Opcode::Long1, width, 1);
    put_number(static_cast<std::uint64_t>(value), width);
  }
  void save_string(std::string_view text, Opcode small, Opcode medium, Opcode large) {
    const bool framed = text.size() < kFrameTargetBytes;
    if (!framed) close_frame();
    framing_ = framed;
    if (text.size() <= 0xff)
      put(small, text.size(), 1);
    else if (text.size() <= 0xffffffff)
      put(medium, text.size(), 4);
    else
      put(large, text.size(), 8);
    out_ += text;
    framing_ = true;
  }
  void save_tuple(Ref ref, const Value& value, int depth) {
    if (value.items.empty()) return put(Opcode::EmptyTuple);
    if (value.items.size() > 3) put(Opcode::Mark);
    for (const Ref item : value.items)
      save(item, depth + 1);
    switch (value.items.size()) {
      case 1:
        put(Opcode::Tuple1);
        break;
      case 2:
        put(Opcode::Tuple2);
        break;
      case 3:
        put(Opcode::Tuple3);
        break;
      default:
        put(Opcode::Tuple);
        break;
    }
    memoize(ref);
  }
  void save_list(Ref ref, const Value& value, int depth) {
    put(Opcode::EmptyList);
    memoize(ref);
    if (value.items.size() == 1) {
      save(value.items[0], depth + 1);
      return put(Opcode::Append);
    }
    for (std::size_t i = 0; i < value.items.size();) {
      put(Opcode::Mark);
      for (std::size_t n = 0; n < kBatchItems && i < value.items.size(); ++n)
        save(value.items[i++], depth + 1);
      put(Opcode::Appends);
    }
  }
  void save_dict(Ref ref, const Value& value, int depth) {
    put(Opcode::EmptyDict);
    memoize(ref);
    if (value.items.size() == 2) {
      save(value.items[0], depth + 1);
      save(value.items[1], depth + 1);
      return put(Opcode::SetItem);
    }
    save_batches(value, {.opcode = Opcode::SetItems, .step = 2, .depth = depth});
  }
  struct Batches {
    Opcode opcode;
    std::size_t step;  // References for each item.
    int depth;
  };
  void save_batches(const Value& value, const Batches& batches) {
    if (value.items.empty()) return;
    std::size_t i = 0;
    std::size_t count = 0;
    do {  // If the last batch is full, Python adds an empty one.
      put(Opcode::Mark);
      for (count = 0; count < kBatchItems && i < value.items.size(); ++count)
        for (std::size_t n = 0; n < batches.step; ++n)
          save(value.items[i++], batches.depth + 1);
      put(batches.opcode);
    } while (count == kBatchItems);
  }

  void memoize(Ref ref) {
    memo_[ref] = ++memoized_;
    put(Opcode::Memoize);
  }
  void get(std::uint32_t index) {
    if (index <= 0xff)
      put(Opcode::BinGet, index, 1);
    else
      put(Opcode::LongBinGet, index, 4);
  }

  const Graph& graph_;
  int max_depth_;
  std::vector<std::uint32_t> memo_;  // By Ref: 1 + the memo index; 0: not in the memo.
  std::uint32_t memoized_ = 0;
  std::string out_;
  std::optional<std::size_t> frame_start_;
  bool framing_ = true;  // False while a long text is written.
  std::optional<PickleError> failed_;
};

}  // namespace

PickleResult<std::string> write_pickle(const Graph& graph, Ref root, int max_depth) {
  return Writer(graph, max_depth).write(root);
}

}  // namespace muster::pickle
