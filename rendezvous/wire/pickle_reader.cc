#include "rendezvous/wire/pickle_reader.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "rendezvous/wire/pickle_opcodes.h"
#include "rendezvous/wire/utf8.h"

namespace muster::pickle {
namespace {

constexpr Ref kMark = 0xffffffff;  // On the stack only.
constexpr std::size_t kMaxLineBytes = 128;

struct AllowedName {
  std::string_view module, name;
  AllowedClass which;
};
constexpr std::array kAllowed{
    AllowedName{kTorchModule, "_RendezvousState", AllowedClass::State},
    AllowedName{kTorchModule, "_NodeDesc", AllowedClass::Node},
    AllowedName{"datetime", "datetime", AllowedClass::Time},
    AllowedName{"datetime", "timezone", AllowedClass::Zone},
    AllowedName{"datetime", "timedelta", AllowedClass::Delta},
    AllowedName{"builtins", "set", AllowedClass::Set},
    AllowedName{"__builtin__", "set", AllowedClass::Set},
    AllowedName{"_codecs", "encode", AllowedClass::EncodeText},
};

class Reader {
 public:
  Reader(std::string_view bytes, Graph& graph, const PickleLimits& limits)
      : bytes_(bytes), graph_(graph), limits_(limits) {}

  PickleResult<Ref> read() {
    if (bytes_.size() > limits_.bytes) return PickleError{0, "longer than a state may be"};
    while (!failed_ && !stopped_) {
      at_ = position_;
      const auto opcode = static_cast<Opcode>(number(1));
      if (!failed_) run(opcode);
    }
    if (failed_) return *std::move(failed_);
    return {boost::system::in_place_value, stack_.front()};
  }

 private:
  void run(Opcode opcode);
  bool run_data(Opcode opcode);
  bool run_container(Opcode opcode);
  bool run_memo(Opcode opcode);

  void fail(std::string reason) {
    if (!failed_) failed_ = PickleError{at_, std::move(reason)};
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - position_) {
      fail("truncated");
      return {};
    }
    const auto taken = bytes_.substr(position_, static_cast<std::size_t>(count));
    position_ += taken.size();
    return taken;
  }
  std::uint64_t number(std::size_t width) {
    std::uint64_t value = 0;
    const auto taken = take(width);
    for (std::size_t i = 0; i < taken.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return value;
  }

  Ref make(Kind kind, std::int64_t number = 0, std::string_view text = {}) {
    if (graph_.values.size() >= limits_.values) {
      fail("more values than a state may hold");
      return 0;
    }
    return graph_.add({.kind = kind,
                       .offset = static_cast<std::uint32_t>(at_),
                       .number = number,
                       .text = text,
                       .items = {}});
  }
  void push(Ref ref) {
    if (stack_.size() >= limits_.stack) return fail("stack deeper than a state needs");
    stack_.push_back(ref);
  }
  void push(Kind kind, std::int64_t number = 0, std::string_view text = {}) {
    const Ref ref = make(kind, number, text);
    if (!failed_) push(ref);
  }
  std::optional<Ref> pop() {
    if (stack_.empty() || stack_.back() == kMark) {
      fail("stack underflow");
      return std::nullopt;
    }
    const Ref ref = stack_.back();
    stack_.pop_back();
    return ref;
  }
  std::optional<std::vector<Ref>> pop_to_mark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), kMark);
    if (mark == stack_.rend()) {
      fail("no mark");
      return std::nullopt;
    }
    std::vector<Ref> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return items;
  }
  Value* top(Kind kind, const char* otherwise) {
    if (stack_.empty() || stack_.back() == kMark || !graph_.is(stack_.back(), kind)) {
      fail(otherwise);
      return nullptr;
    }
    return &graph_.at(stack_.back());
  }

  void stop() {
    if (stack_.size() != 1 || stack_.back() == kMark) return fail("not one value at the end");
    if (position_ != bytes_.size()) return fail("bytes after the end");
    stopped_ = true;
  }
  void text(std::string_view taken) {
    if (failed_) return;
    if (!is_utf8(taken)) return fail("text is not UTF-8");
    push(Kind::Text, 0, taken);
  }
  void data(std::string_view taken) {
    if (!failed_) push(Kind::Bytes, 0, taken);
  }
  void long_integer() {
    const auto taken = take(number(1));
    if (taken.size() > 8) return fail("integer of more than 64 bits");
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < taken.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    if (!taken.empty() && taken.size() < 8 && (taken.back() & 0x80) != 0)
      value |= ~std::uint64_t{0} << (8 * taken.size());
    push(Kind::Integer, static_cast<std::int64_t>(value));
  }
  void tuple(std::vector<Ref> items) {
    // A state has no tuple within a tuple; so no chain of them can grow.
    for (const Ref item : items)
      if (graph_.is(item, Kind::Tuple)) return fail("tuple within a tuple");
    const Ref made = make(Kind::Tuple);
    if (failed_) return;
    graph_.at(made).items = std::move(items);
    push(made);
  }
  void tuple_of(std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i-- > 0;) {
      const auto item = pop();
      if (!item) return;
      items[i] = *item;
    }
    tuple(std::move(items));
  }
  void append(Kind kind, const char* otherwise) {
    const auto items = pop_to_mark();
    if (!items) return;
    if (kind == Kind::Dict && items->size() % 2 != 0) return fail("a key without a value");
    if (Value* into = top(kind, otherwise))
      into->items.insert(into->items.end(), items->begin(), items->end());
  }
  void append_one() {
    const auto item = pop();
    if (!item) return;
    if (Value* into = top(Kind::List, "an item for no list")) into->items.push_back(*item);
  }
  void set_item() {
    const auto value = pop();
    const auto key = value ? pop() : std::nullopt;
    if (!key) return;
    if (Value* into = top(Kind::Dict, "an item for no dict")) {
      into->items.push_back(*key);
      into->items.push_back(*value);
    }
  }

  void memoize(std::uint64_t index) {
    if (failed_) return;
    if (stack_.empty() || stack_.back() == kMark) return fail("nothing to memoize");
    memo_[static_cast<std::uint32_t>(index)] = stack_.back();
  }
  void get(std::uint64_t index) {
    if (failed_) return;
    const auto found = memo_.find(static_cast<std::uint32_t>(index));
    if (found == memo_.end()) return fail("memo " + std::to_string(index) + " was never stored");
    push(found->second);
  }

  std::string_view line() {
    const auto end = bytes_.substr(position_, kMaxLineBytes).find('\n');
    if (end == std::string_view::npos) {
      fail("a name without an end");
      return {};
    }
    const auto taken = take(end);
    position_ += 1;
    return taken;
  }
  void global(Ref module, Ref name) {
    if (!graph_.is(module, Kind::Text) || !graph_.is(name, Kind::Text))
      return fail("a class name that is no text");
    const auto module_text = graph_.at(module).text;
    const auto name_text = graph_.at(name).text;
    for (const AllowedName& allowed : kAllowed) {
      if (allowed.module != module_text || allowed.name != name_text) continue;
      const Ref made = make(Kind::Class, static_cast<std::int64_t>(allowed.which));
      if (failed_) return;
      graph_.at(made).items = {module, name};
      return push(made);
    }
    fail("the name " + printable(module_text) + "." + printable(name_text) + " is not allowed");
  }
  void global_line() {
    const auto module = line();
    const auto name = line();
    if (failed_) return;
    if (!is_utf8(module) || !is_utf8(name)) return fail("text is not UTF-8");
    const Ref module_text = make(Kind::Text, 0, module);
    const Ref name_text = make(Kind::Text, 0, name);
    if (!failed_) global(module_text, name_text);
  }
  void stack_global() {
    const auto name = pop();
    const auto module = name ? pop() : std::nullopt;
    if (module) global(*module, *name);
  }
  void reduce() {
    const auto arguments = pop();
    const auto callee = arguments ? pop() : std::nullopt;
    if (!callee) return;
    if (!graph_.is(*callee, Kind::Class) || !graph_.is(*arguments, Kind::Tuple))
      return fail("a call of something that is no allowed name");
    const auto& items = graph_.at(*arguments).items;
    if (graph_.is_class(*callee, AllowedClass::State) ||
        graph_.is_class(*callee, AllowedClass::Node))
      return fail("a call of a class that is made otherwise");
    if (graph_.is_class(*callee, AllowedClass::Set)) return set_of(items);
    if (graph_.is_class(*callee, AllowedClass::EncodeText)) return encode(items);
    const Ref made = make(Kind::Call);
    if (failed_) return;
    graph_.at(made).items = {*callee, *arguments};
    push(made);
  }
  void set_of(const std::vector<Ref>& arguments) {
    if (arguments.size() != 1 || !graph_.is(arguments[0], Kind::List))
      return fail("a set of something that is no list");
    const Ref made = make(Kind::Set);
    if (failed_) return;
    graph_.at(made).items = graph_.at(arguments[0]).items;
    push(made);
  }
  /// Protocol 2 writes bytes as a text whose code points are the bytes.
  void encode(const std::vector<Ref>& arguments) {
    if (arguments.size() != 2 || !graph_.is(arguments[0], Kind::Text) ||
        !graph_.is(arguments[1], Kind::Text) || graph_.at(arguments[1]).text != "latin1")
      return fail("bytes in an unknown encoding");
    auto bytes = latin1_of_utf8(graph_.at(arguments[0]).text);
    if (!bytes) return fail("bytes beyond 255");
    graph_.owned.push_back(*std::move(bytes));
    push(Kind::Bytes, 0, graph_.owned.back());
  }
  void new_object() {
    const auto arguments = pop();
    const auto of = arguments ? pop() : std::nullopt;
    if (!of) return;
    if (!graph_.is_class(*of, AllowedClass::State) && !graph_.is_class(*of, AllowedClass::Node))
      return fail("an object of something else than a state or a node");
    if (!graph_.is(*arguments, Kind::Tuple) || !graph_.at(*arguments).items.empty())
      return fail("an object made with arguments");
    const Ref made = make(Kind::Instance);
    if (failed_) return;
    graph_.at(made).items = {*of};
    push(made);
  }
  void build() {
    const auto attributes = pop();
    if (!attributes) return;
    Value* object = top(Kind::Instance, "attributes for no object");
    if (object == nullptr) return;
    if (object->items.size() != 1 || !graph_.is(*attributes, Kind::Dict))
      return fail("attributes that are no dict, or given twice");
    object->items.push_back(*attributes);
  }
  void frame() {
    if (number(8) > bytes_.size() - position_) fail("a frame longer than the rest");
  }
  void protocol() {
    const auto version = number(1);
    if (version < 2 || version > 5) fail("protocol " + std::to_string(version));
  }

  static std::string printable(std::string_view text) {
    std::string shown(text.substr(0, 80));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c == 0x7f; }, '?');
    return shown;
  }

  std::string_view bytes_;
  Graph& graph_;
  const PickleLimits& limits_;
  std::size_t position_ = 0;
  std::size_t at_ = 0;  // The opcode that is being carried out.
  std::vector<Ref> stack_;
  std::map<std::uint32_t, Ref> memo_;
  std::uint32_t memoized_ = 0;
  std::optional<PickleError> failed_;
  bool stopped_ = false;
};

bool Reader::run_data(Opcode opcode) {
  switch (opcode) {
    case Opcode::None:
      push(Kind::None);
      break;
    case Opcode::NewTrue:
      push(Kind::Bool, 1);
      break;
    case Opcode::NewFalse:
      push(Kind::Bool, 0);
      break;
    case Opcode::BinInt1:
      push(Kind::Integer, static_cast<std::int64_t>(number(1)));
      break;
    case Opcode::BinInt2:
      push(Kind::Integer, static_cast<std::int64_t>(number(2)));
      break;
    case Opcode::BinInt:
      push(Kind::Integer, static_cast<std::int32_t>(number(4)));
      break;
    case Opcode::Long1:
      long_integer();
      break;
    case Opcode::ShortBinUnicode:
      text(take(number(1)));
      break;
    case Opcode::BinUnicode:
      text(take(number(4)));
      break;
    case Opcode::BinUnicode8:
      text(take(number(8)));
      break;
    case Opcode::ShortBinBytes:
      data(take(number(1)));
      break;
    case Opcode::BinBytes:
      data(take(number(4)));
      break;
    case Opcode::BinBytes8:
      data(take(number(8)));
      break;
    default:
      return false;
  }
  return true;
}

bool Reader::run_container(Opcode opcode) {
  switch (opcode) {
    case Opcode::Mark:
      push(kMark);
      break;
    case Opcode::EmptyTuple:
      push(Kind::Tuple);
      break;
    case Opcode::EmptyDict:
      push(Kind::Dict);
      break;
    case Opcode::EmptyList:
      push(Kind::List);
      break;
    case Opcode::EmptySet:
      push(Kind::Set);
      break;
    case Opcode::Tuple1:
      tuple_of(1);
      break;
    case Opcode::Tuple2:
      tuple_of(2);
      break;
    case Opcode::Tuple3:
      tuple_of(3);
      break;
    case Opcode::Tuple:
      if (auto items = pop_to_mark()) tuple(*std::move(items));
      break;
    case Opcode::SetItem:
      set_item();
      break;
    case Opcode::SetItems:
      append(Kind::Dict, "items for no dict");
      break;
    case Opcode::AddItems:
      append(Kind::Set, "items for no set");
      break;
    case Opcode::Append:
      append_one();
      break;
    case Opcode::Appends:
      append(Kind::List, "items for no list");
      break;
    default:
      return false;
  }
  return true;
}

bool Reader::run_memo(Opcode opcode) {
  switch (opcode) {
    case Opcode::Memoize:
      memoize(memoized_++);
      break;
    case Opcode::BinPut:
      memoize(number(1));
      break;
    case Opcode::LongBinPut:
      memoize(number(4));
      break;
    case Opcode::BinGet:
      get(number(1));
      break;
    case Opcode::LongBinGet:
      get(number(4));
      break;
    default:
      return false;
  }
  return true;
}

void Reader::run(Opcode opcode) {
  if (run_data(opcode) || run_container(opcode) || run_memo(opcode)) return;
  switch (opcode) {
    case Opcode::Proto:
      return protocol();
    case Opcode::Frame:
      return frame();
    case Opcode::Global:
      return global_line();
    case Opcode::StackGlobal:
      return stack_global();
    case Opcode::Reduce:
      return reduce();
    case Opcode::NewObj:
      return new_object();
    case Opcode::Build:
      return build();
    case Opcode::Stop:
      return stop();
    default:
      break;
  }
  fail("opcode " + std::to_string(static_cast<int>(opcode)) + " does not belong in a state");
}

}  // namespace

PickleResult<Ref> read_pickle(std::string_view bytes, Graph& graph, const PickleLimits& limits) {
  return Reader(bytes, graph, limits).read();
}

}  // namespace muster::pickle
