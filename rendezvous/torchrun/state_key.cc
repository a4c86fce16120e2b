#include "rendezvous/torchrun/state_key.h"

#include <algorithm>

#include "base/base64.h"
#include "pickle/dry_run.h"
#include "rendezvous/torchrun/state_codec.h"

namespace muster {
namespace {

constexpr char kProto = '\x80';
// A text is checked each time that something is appended, so this bounds the work.
constexpr std::size_t kMaxAppendedText = 65'536;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

struct Decoded {
  std::string bytes;  // Python's b64decode() decodes these, whatever is appended to the text.
  bool has_base64 = false;
  char only_digit = '\0';  // The text has only this digit. 0: it has none, or several.
  bool goes_on = false;    // Digits follow the padding: it depends on the Python if it reads them.
};

/// Python's b64decode() skips all characters outside of the alphabet, and '=' before the second
/// digit of a group.
Decoded decode_as_python(std::string_view text) {
  Decoded decoded;
  std::string digits;
  bool padded = false;
  for (const char c : text) {
    if (c == '=' && digits.size() % 4 >= 2) padded = true;
    if (!is_base64_digit(c)) continue;
    if (padded) {
      decoded.goes_on = true;
      break;
    }
    digits += c;
  }
  decoded.has_base64 = !digits.empty();
  if (digits.size() == 1) decoded.only_digit = digits.front();
  const std::size_t whole_bytes = digits.size() * 6 / 8;
  digits.append((4 - digits.size() % 4) % 4, 'A');  // Zero bits.
  if (auto bytes = base64_decode(digits)) decoded.bytes = *std::move(bytes);
  decoded.bytes.resize(std::min(whole_bytes, decoded.bytes.size()));
  return decoded;
}

pickle::DryRun dry_run(const Decoded& decoded) {
  if (!decoded.only_digit) return pickle::dry_run(decoded.bytes);
  // A client may still append the second digit. Its upper two bits belong to the first byte.
  for (const char* rest : {"AAA", "QAA", "gAA", "wAA"}) {
    const auto bytes = base64_decode(decoded.only_digit + std::string(rest));
    if (bytes && pickle::dry_run(std::string_view(*bytes).substr(0, 1)) != pickle::DryRun::Fails)
      return pickle::DryRun::EndsEarly;
  }
  return pickle::DryRun::Fails;
}

/// Whether Python's unpickler may read the text, or a longer one that begins with it. A text
/// without base64 is no beginning, unless there is more of it (`is_cut`).
bool may_become_pickle(std::string_view text, bool is_cut = false) {
  const Decoded decoded = decode_as_python(text);
  if (decoded.bytes.starts_with(kProto)) return true;
  return (decoded.has_base64 || is_cut) && dry_run(decoded) != pickle::DryRun::Fails;
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

bool may_be_pickle(std::string_view text) {
  const Decoded decoded = decode_as_python(text);
  // Any word may begin as a pickle of protocol 0, but only pickles begin so: also a broken one is
  // no value of somebody's own.
  if (decoded.bytes.starts_with(kProto)) return true;
  switch (dry_run(decoded)) {
    case pickle::DryRun::Fails:
      return false;
    case pickle::DryRun::EndsEarly:
      return decoded.goes_on || (decoded.has_base64 && decoded.bytes.empty());
    case pickle::DryRun::MayRead:
      break;
  }
  return true;
}

std::optional<std::string> refuse_planted_pickle(const Request& request, const StoredText& stored) {
  const auto planted = [](std::string_view key, std::string_view text) {
    return is_state_key(key) && text != kNoStateText && may_become_pickle(text);
  };
  const auto refusal = [](std::string_view key) {
    return "a value that Python could unpickle is written under " + std::string(key) +
           ", where no run is known";
  };
  switch (request.query) {
    case Query::CompareSet:
      if (is_state_key(request.key) && request.value != kNoStateText &&
          may_be_pickle(request.value))
        return refusal(request.key);
      return std::nullopt;
    case Query::Set:
      if (planted(request.key, request.value)) return refusal(request.key);
      return std::nullopt;
    case Query::Append: {
      if (!is_state_key(request.key)) return std::nullopt;
      const std::string_view before = stored(request.key);
      std::string begin(before.substr(0, kMaxAppendedText));
      begin.append(request.value.substr(0, kMaxAppendedText - begin.size()));
      if (may_become_pickle(begin, begin.size() < before.size() + request.value.size()))
        return refusal(request.key);
      return std::nullopt;
    }
    case Query::MultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i)
        if (planted(request.keys[i], request.values[i])) return refusal(request.keys[i]);
      return std::nullopt;
    default:
      return std::nullopt;  // ADD writes digits, and no client reads a state from a queue.
  }
}

}  // namespace muster
