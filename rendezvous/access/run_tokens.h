// The text of the file of --rdzv-run-tokens: tokens of single runs.
//
// Pure. docs/security.md describes their use.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

namespace muster {

inline constexpr std::size_t kMaxRunTokens = 10'000;
inline constexpr std::size_t kMaxRunTokensBytes = std::size_t{4} << 20;  // Of the file.

/// Tokens by run id.
using RunTokenTexts = std::map<std::string, std::string, std::less<>>;

/// `reason` has the number of the line, the error and advice; never a token.
struct RunTokensError {
  std::string reason;
};

/// Each line has a run id, white space, and the token, which is one word. Empty lines and lines
/// that begin with '#' are ignored. `complaint` returns why a token is not valid; empty: it is.
boost::system::result<RunTokenTexts, RunTokensError> parse_run_tokens(
    std::string_view text, const std::function<std::string(std::string_view)>& complaint);

}  // namespace muster
