// The text of --rdzv-run-tokens' file: tokens of single runs.
//
// Pure. docs/security.md says what they are good for.
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

/// By run id.
using RunTokenTexts = std::map<std::string, std::string, std::less<>>;

/// Which line it is, what is wrong, what to do; never a token.
struct RunTokensError {
  std::string reason;
};

/// Each line is a run id, white space, and the token, which is one word. Empty lines and lines that
/// begin with '#' say nothing. `complaint`: what is wrong with a token; empty: nothing.
boost::system::result<RunTokenTexts, RunTokensError> parse_run_tokens(
    std::string_view text, const std::function<std::string(std::string_view)>& complaint);

}  // namespace muster
