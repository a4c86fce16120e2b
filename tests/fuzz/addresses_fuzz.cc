// libFuzzer: short texts of users and of other programs: addresses of etcd, the file of
// --rdzv-run-tokens, base64, and percent-encoding.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/base64.h"
#include "base/percent.h"
#include "rendezvous/access/run_tokens.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/state/etcd/etcd_address.h"

namespace {

using namespace muster;

void check_address(std::string_view text) {
  const auto address = parse_etcd_address(text);
  if (!address) {
    if (address.error().reason.empty()) std::abort();
    return;
  }
  if (address->members.empty() || address->members.size() > kMaxEtcdMembers) std::abort();
  if (address->prefix.size() > kMaxEtcdPrefixBytes || !address->prefix.starts_with('/') ||
      address->prefix.ends_with('/'))
    std::abort();
  std::string written = "etcd://";
  for (const EtcdMember& member : address->members)
    written += to_text(member) + (&member == &address->members.back() ? "" : ",");
  const auto again = parse_etcd_address(written + address->prefix);
  if (!again || again->members != address->members || again->prefix != address->prefix)
    std::abort();
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void check_tokens(std::string_view text) {
  const auto tokens = parse_run_tokens(text, [](std::string_view token) {
    return std::string(token.size() < 4 ? "it is too short" : "");
  });
  if (!tokens) {
    if (tokens.error().reason.empty()) std::abort();
    return;
  }
  if (tokens->size() > kMaxRunTokens) std::abort();
  for (const auto& [run, token] : *tokens)
    // A run id may have blanks inside, but not at its ends.
    if (run.empty() || run.size() > kMaxRunIdBytes || is_blank(run.front()) ||
        is_blank(run.back()) || token.size() < 4 ||
        std::any_of(token.begin(), token.end(), is_blank))
      std::abort();
}

void check_base64(std::string_view text) {
  const auto bytes = base64_decode(text);
  if (bytes && base64_encode(*bytes) != text) std::abort();
  if (!bytes && bytes.error().offset > text.size()) std::abort();
  const auto again = base64_decode(base64_encode(text));
  if (!again || *again != text) std::abort();
}

void check_percent(std::string_view text) {
  const auto plain = [](char c) { return c >= 'a' && c <= 'z'; };
  if (percent_decode(percent_encode(text, plain)) != text) std::abort();
  const auto decoded = percent_decode(text);
  if (decoded && decoded->size() > text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_address(text);
  check_tokens(text);
  check_base64(text);
  check_percent(text);
  return 0;
}
