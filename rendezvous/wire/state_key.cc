#include "rendezvous/wire/state_key.h"

#include <algorithm>

#include "rendezvous/wire/base64.h"
#include "rendezvous/wire/state_codec.h"

namespace muster {
namespace {

// CPython 3.14, Modules/_pickle.c: the opcodes of all protocols. The unpickler stops at any other
// byte.
constexpr std::string_view kOpcodesBelow128 = "().012BCFGIJKLMNPQRSTUVX]abcdeghijlopqrstu}";
constexpr unsigned char kFirstOpcodeFrom128 = 0x80;  // PROTO
constexpr unsigned char kLastOpcode = 0x98;          // READONLY_BUFFER

bool is_opcode(unsigned char byte) {
  if (byte < 0x80) return kOpcodesBelow128.find(static_cast<char>(byte)) != std::string_view::npos;
  return byte >= kFirstOpcodeFrom128 && byte <= kLastOpcode;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

bool is_state_key(std::string_view key) {
  if (!key.starts_with(kStateKeyPrefix)) return false;
  key.remove_prefix(kStateKeyPrefix.size());
  // In a key RUN.ROUND/…, there are digits before a slash, and a dot before the digits.
  for (std::size_t slash = key.find('/'); slash != std::string_view::npos;
       slash = key.find('/', slash + 1)) {
    std::size_t digits = slash;
    while (digits > 0 && is_digit(key[digits - 1]))
      --digits;
    if (digits < slash && digits > 0 && key[digits - 1] == '.') return false;
  }
  return true;
}

bool cannot_be_pickle(std::string_view text) {
  // Python's b64decode() skips all characters outside of the alphabet, and '=' before the second
  // digit. The first two digits make the first byte.
  std::string digits;
  for (std::size_t i = 0; i < text.size() && digits.size() < 2; ++i)
    if (is_base64_digit(text[i])) digits += text[i];
  if (digits.empty()) return true;
  const auto begins_none = [&](std::string_view rest) {
    const auto first = base64_decode(std::string(digits).append(rest));
    return first && !is_opcode(static_cast<unsigned char>(first->front()));
  };
  if (digits.size() == 2) return begins_none("AA");
  // A client may still append the second digit; its upper two bits belong to the first byte.
  return begins_none("AAA") && begins_none("QAA") && begins_none("gAA") && begins_none("wAA");
}

std::optional<std::string> refuse_planted_pickle(const Request& request) {
  const auto planted = [](std::string_view key, std::string_view text) {
    return is_state_key(key) && text != kNoStateText && !cannot_be_pickle(text);
  };
  const auto refusal = [](std::string_view key) {
    return "a value that Python could unpickle is written under " + std::string(key) +
           ", where no run is known";
  };
  switch (request.query) {
    case Query::Set:
    case Query::CompareSet:
    case Query::Append:
      if (planted(request.key, request.value)) return refusal(request.key);
      return std::nullopt;
    case Query::MultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i)
        if (planted(request.keys[i], request.values[i])) return refusal(request.keys[i]);
      return std::nullopt;
    default:
      return std::nullopt;  // ADD writes digits, and no client reads a state from a queue.
  }
}

}  // namespace muster
