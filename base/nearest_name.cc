#include "base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace muster {
namespace {

constexpr std::size_t kMaxComparedBytes = 64;

/// The fewest changes that make one text of the other: a letter more, less or another, or two
/// neighbours exchanged.
std::size_t changes_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string plain(std::string_view word) {
  std::string text(word);
  std::replace(text.begin(), text.end(), '_', '-');
  text.erase(0, std::min(text.find_first_not_of('-'), text.size()));
  return text;
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names) {
  if (word.size() > kMaxComparedBytes) return {};
  const std::string given = plain(word);
  // A third of the letters may differ, and at least two: "max-connection", "prot".
  std::size_t least = std::min(given.size(), std::max<std::size_t>(3, given.size() / 3 + 1));
  std::string_view nearest;
  for (const std::string_view name : names) {
    const std::size_t changes = changes_between(given, plain(name));
    if (changes >= least) continue;
    least = changes;
    nearest = name;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(word, names);
  if (nearest.empty()) return {};
  return " (did you mean " + std::string(nearest) + "?)";
}

}  // namespace muster
