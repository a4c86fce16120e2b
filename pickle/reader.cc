#include "pickle/reader.h"

#include <algorithm>

#include "pickle/machine.h"
#include "pickle/opcodes.h"
#include "pickle/utf8.h"

namespace muster::pickle {
namespace {

// Up to this protocol, CPython renames the modules of Python 2 when it imports a name.
constexpr std::uint64_t kLastRenamingProtocol = 2;
constexpr std::int64_t kMadeByCall = 1;  // The `number` of a dict that a call has made.
constexpr const char* kLargeInteger = "an integer of more than 64 bits";

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxShownBytes = 80;
  std::string shown(text.substr(0, kMaxShownBytes));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c == 0x7f; }, '?');
  return shown;
}

class Reader : Machine {
 public:
  struct Setup {
    const Rules& rules;
    const PickleLimits& limits;
  };
  Reader(std::string_view bytes, Graph& graph, const Setup& setup)
      : Machine(bytes, graph, setup.limits), rules_(setup.rules) {}

  PickleResult<Ref> read() {
    if (bytes_.size() > limits_.bytes) return PickleError{0, "longer than a pickle may be"};
    while (!failed_ && !stopped_) {
      at_ = position_;
      const auto opcode = static_cast<Opcode>(number(1));
      if (!failed_ && at_ == 0 && opcode != Opcode::Proto) fail("no protocol at the beginning");
      if (!failed_) run(opcode);
    }
    if (failed_) return *std::move(failed_);
    return stack_.front();
  }

 private:
  void run(Opcode opcode);
  bool run_data(Opcode opcode);
  bool run_container(Opcode opcode);
  bool run_memo(Opcode opcode);
  void refuse_opcode(Opcode opcode);

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
    const auto taken = consume(number(1));
    if (failed_) return;
    if (taken.size() > 8) return refuse(kLargeInteger);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < taken.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    if (!taken.empty() && taken.size() < 8 && (taken.back() & 0x80) != 0)
      value |= ~std::uint64_t{0} << (8 * taken.size());
    integer(static_cast<std::int64_t>(value));
  }
  void real() {
    const auto taken = consume(8);
    if (failed_) return;
    std::uint64_t bits = 0;
    for (const char byte : taken)
      bits = bits << 8 | static_cast<unsigned char>(byte);
    push(Kind::Real, static_cast<std::int64_t>(bits));
  }
  void tuple(std::vector<Ref> items) {
    if (items.empty()) return push_shared(empty_tuple_, Kind::Tuple);
    std::int64_t depth = 1;
    for (const Ref item : items)
      if (graph_.is(item, Kind::Tuple)) depth = std::max(depth, graph_.at(item).number + 1);
    if (depth > limits_.tuple_depth)
      return refuse(limits_.tuple_depth == 1 ? "a tuple within a tuple"
                                             : "more than " + std::to_string(limits_.tuple_depth) +
                                                   " tuples inside each other");
    const Ref made = make(Kind::Tuple, std::move(items));
    if (failed_) return;
    graph_.at(made).number = depth;
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
    if (items) add(kind, *items, otherwise);
  }
  void append_one() {
    const auto item = pop();
    if (item) add(Kind::List, {*item}, "an item for no list");
  }
  void set_item() {
    const auto value = pop();
    const auto key = value ? pop() : std::nullopt;
    if (key) add(Kind::Dict, {*key, *value}, "an item for no dict");
  }
  void add(Kind kind, const std::vector<Ref>& items, const char* otherwise) {
    if (kind == Kind::Dict && items.size() % 2 != 0) return fail("a key without a value");
    Value* into = top(kind, otherwise);
    if (into == nullptr) return;
    if (into->frozen) return fail("items for a dict that an object's attributes were copied from");
    // Python hashes a key as soon as it is added, not at the end.
    for (std::size_t i = 0; kind != Kind::List && i < items.size(); i += kind == Kind::Dict ? 2 : 1)
      if (auto refusal = rules_.check_key(graph_, items[i]); !refusal.empty())
        return refuse(std::move(refusal));
    into->items.insert(into->items.end(), items.begin(), items.end());
  }

  void global(Ref module, Ref name) {
    if (!graph_.is(module, Kind::Text) || !graph_.is(name, Kind::Text))
      return fail("a class name that is no text");
    const auto module_text = graph_.at(module).text;
    const auto name_text = graph_.at(name).text;
    auto which = builtin(module_text, name_text);
    if (!which) which = rules_.find_name(module_text, name_text);
    if (!which)
      return refuse("the name " + printable(module_text) + "." + printable(name_text) +
                    " is not allowed");
    const Ref made = make(Kind::Class, std::vector<Ref>{module, name});
    if (failed_) return;
    graph_.at(made).number = *which;
    push(made);
  }
  std::optional<std::int64_t> builtin(std::string_view module, std::string_view name) const {
    const bool python2 = module == "__builtin__" && protocol_ <= kLastRenamingProtocol;
    if ((module == "builtins" || python2) && name == "set") return kBuiltinSet;
    if (module == "_codecs" && name == "encode") return kEncodeText;
    return std::nullopt;
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
    if (graph_.is_class(*callee, kBuiltinSet)) return set_of(graph_.at(*arguments).items);
    if (graph_.is_class(*callee, kEncodeText)) return encode(graph_.at(*arguments).items);
    Rules::CallResult result = rules_.check_call(graph_, *callee, *arguments);
    if (!result.refusal.empty()) return refuse(std::move(result.refusal));
    if (result.made == Kind::Dict) return push(Kind::Dict, kMadeByCall);
    const Ref made = make(Kind::Call, {*callee, *arguments});
    if (!failed_) push(made);
  }
  /// Moves the list's items into the set: copies could take the square of the pickle's size.
  /// Python's picklers never use such a list again.
  void set_of(const std::vector<Ref>& arguments) {
    if (arguments.size() != 1 || !graph_.is(arguments[0], Kind::List))
      return fail("a set of something that is no list");
    Value& list = graph_.at(arguments[0]);
    for (const Ref item : list.items)
      if (auto refusal = rules_.check_key(graph_, item); !refusal.empty())
        return refuse(std::move(refusal));
    list.kind = Kind::Moved;
    const Ref made = make(Kind::Set, std::exchange(list.items, {}));
    if (!failed_) push(made);
  }
  /// Makes bytes of a text: protocol 2 writes bytes as a text whose code points are the bytes.
  void encode(const std::vector<Ref>& arguments) {
    if (arguments.size() != 2 || !graph_.is(arguments[0], Kind::Text) ||
        !graph_.is(arguments[1], Kind::Text) || graph_.at(arguments[1]).text != "latin1")
      return fail("bytes in an unknown encoding");
    const std::string_view text = graph_.at(arguments[0]).text;
    copied_ += text.size();
    if (copied_ > bytes_.size()) return fail("one text as bytes again and again");
    auto bytes = latin1_of_utf8(text);
    if (!bytes) return fail("bytes beyond 255");
    graph_.owned.push_back(*std::move(bytes));
    push(Kind::Bytes, 0, graph_.owned.back());
  }
  void new_object() {
    const auto arguments = pop();
    const auto of = arguments ? pop() : std::nullopt;
    if (!of) return;
    if (!graph_.is(*of, Kind::Class) || graph_.at(*of).number < 0 ||
        !graph_.is(*arguments, Kind::Tuple))
      return fail("an object of something that is no allowed class");
    if (auto refusal = rules_.check_object(graph_, *of, *arguments); !refusal.empty())
      return refuse(std::move(refusal));
    const Ref made = make(Kind::Instance, std::vector<Ref>{*of});
    if (!failed_) push(made);
  }
  void build() {
    const auto attributes = pop();
    if (!attributes) return;
    if (rules_.drops_attributes_of_dicts && !stack_.empty() && stack_.back() != kMark &&
        graph_.is(stack_.back(), Kind::Dict) && graph_.at(stack_.back()).number == kMadeByCall &&
        graph_.is(*attributes, Kind::Dict))
      return;
    Value* object = top(Kind::Instance, "attributes for no object");
    if (object == nullptr) return;
    if (object->items.size() != 1 || !graph_.is(*attributes, Kind::Dict))
      return fail("attributes that are no dict, or given twice");
    if (auto refusal = rules_.check_attributes(graph_, stack_.back(), *attributes);
        !refusal.empty())
      return refuse(std::move(refusal));
    graph_.at(*attributes).frozen = true;
    object->items.push_back(*attributes);
  }
  void persistent() {
    const auto id = pop();
    if (!id) return;
    if (auto refusal = rules_.check_persistent(graph_, *id); !refusal.empty())
      return refuse(std::move(refusal));
    const Ref made = make(Kind::Persistent, std::vector<Ref>{*id});
    if (!failed_) push(made);
  }
  void frame() {
    if (number(8) > bytes_.size() - position_) fail("a frame longer than the rest");
  }
  void protocol() {
    protocol_ = number(1);
    if (at_ != 0) return fail("a protocol that is not at the beginning");
    if (protocol_ < 2 || protocol_ > 5) fail("protocol " + std::to_string(protocol_));
  }

  const Rules& rules_;
  std::uint64_t protocol_ = 0;
  bool stopped_ = false;
};

bool Reader::run_data(Opcode opcode) {
  switch (opcode) {
    case Opcode::None:
      push_shared(none_, Kind::None);
      break;
    case Opcode::NewTrue:
      push_shared(true_, Kind::Bool, 1);
      break;
    case Opcode::NewFalse:
      push_shared(false_, Kind::Bool, 0);
      break;
    case Opcode::BinInt1:
      integer(static_cast<std::int64_t>(number(1)));
      break;
    case Opcode::BinInt2:
      integer(static_cast<std::int64_t>(number(2)));
      break;
    case Opcode::BinInt:
      integer(static_cast<std::int32_t>(number(4)));
      break;
    case Opcode::Long1:
      long_integer();
      break;
    case Opcode::BinFloat:
      if (!rules_.reals) return false;
      real();
      break;
    case Opcode::ShortBinUnicode:
      text(consume(number(1)));
      break;
    case Opcode::BinUnicode:
      text(consume(number(4)));
      break;
    case Opcode::BinUnicode8:
      text(consume(number(8)));
      break;
    case Opcode::ShortBinBytes:
      data(consume(number(1)));
      break;
    case Opcode::BinBytes:
      data(consume(number(4)));
      break;
    case Opcode::BinBytes8:
      data(consume(number(8)));
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
      push_shared(empty_tuple_, Kind::Tuple);
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
      memoize(memo_.size());
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
    case Opcode::BinPersId:
      return persistent();
    case Opcode::Stop:
      return stop();
    default:
      return refuse_opcode(opcode);
  }
}

void Reader::refuse_opcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::Long4:
      return refuse(kLargeInteger);
    case Opcode::FrozenSet:
      return refuse("a frozenset");
    case Opcode::ByteArray8:
      return refuse("a bytearray");
    case Opcode::NewObjEx: {
      const auto keywords = pop();
      const auto arguments = keywords ? pop() : std::nullopt;
      const auto of = arguments ? pop() : std::nullopt;
      if (!of) return;
      return refuse("an object of the class " +
                    (graph_.is(*of, Kind::Class) ? class_name(graph_, *of) : "unknown") +
                    " that was made with keywords");
    }
    default:
      return refuse("the opcode " + std::to_string(static_cast<int>(opcode)) +
                    ", which is not allowed");
  }
}

}  // namespace

std::string class_name(const Graph& graph, Ref of) {
  const auto& parts = graph.at(of).items;
  return printable(graph.at(parts[0]).text) + "." + printable(graph.at(parts[1]).text);
}

std::string Rules::check_persistent(const Graph& /*graph*/, Ref /*id*/) const {
  return "a persistent id";
}

std::string Rules::check_key(const Graph& graph, Ref key) const {
  switch (graph.at(key).kind) {
    case Kind::None:
    case Kind::Bool:
    case Kind::Integer:
    case Kind::Real:
    case Kind::Text:
    case Kind::Bytes:
      return {};
    default:
      return "a key that Python cannot use";
  }
}

PickleResult<Ref> read_pickle(std::string_view bytes, Graph& graph, const Rules& rules,
                              const PickleLimits& limits) {
  return Reader(bytes, graph, {rules, limits}).read();
}

}  // namespace muster::pickle
