#include "rendezvous/access/run_tokens.h"

#include <algorithm>
#include <utility>

#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t end = text.find_last_not_of(kBlanks) + 1;
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

}  // namespace

boost::system::result<RunTokenTexts, RunTokensError> parse_run_tokens(
    std::string_view text, const std::function<std::string(std::string_view)>& complaint) {
  RunTokenTexts tokens;
  // The mark (U+FEFF) would become part of the first run id.
  if (text.starts_with("\xef\xbb\xbf"))
    return RunTokensError{
        "line 1: it begins with a byte order mark (BOM); save the file without it"};
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = trimmed(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (line.empty() || line.front() == '#') continue;
    const auto refuse = [number](const std::string& why) {
      return RunTokensError{"line " + std::to_string(number) + ": " + why};
    };
    const std::size_t blank = line.find_last_of(kBlanks);
    if (blank == std::string_view::npos)
      return refuse("it has one word only; a line is a run id, white space, and the run's token");
    const std::string run(trimmed(line.substr(0, blank)));
    const std::string_view token = line.substr(blank + 1);
    if (run.size() > kMaxRunIdBytes)
      return refuse("its run id is longer than " + std::to_string(kMaxRunIdBytes) + " bytes");
    if (const std::string why = complaint(token); !why.empty()) return refuse(why);
    if (!tokens.emplace(run, token).second)
      return refuse("run '" + run + "' has a token already, in a line above");
    if (tokens.size() > kMaxRunTokens)
      return refuse("no more than " + std::to_string(kMaxRunTokens) +
                    " runs may have tokens of their own");
  }
  return {boost::system::in_place_value, std::move(tokens)};
}

}  // namespace muster
