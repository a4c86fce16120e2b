// Tests what --watch shows on a terminal.
#include "musterctl/screen.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::ctl {
namespace {

TEST_CASE("musterctl --watch: a text that fits is shown whole, without a last line feed",
          "[unit][musterctl]") {
  CHECK(fit_screen("a\n\nb\n", {.rows = 3, .columns = 80}) == "a\n\nb");
  CHECK(fit_screen("a\nb", {.rows = 2, .columns = 80}) == "a\nb");
  CHECK(fit_screen("", {.rows = 2, .columns = 80}).empty());
}

TEST_CASE("musterctl --watch: what does not fit is left out at the end and counted",
          "[unit][musterctl]") {
  CHECK(fit_screen("a\nb\nc\nd\n", {.rows = 3, .columns = 80}) ==
        "a\nb\n(2 more lines: without --watch all are shown)");
  CHECK(fit_screen("a\nb\n", {.rows = 1, .columns = 80}) ==
        "(2 more lines: without --watch all are shown)");
  CHECK(fit_screen("a\nb\n", {.rows = 0, .columns = 0}) ==
        "(2 more lines: without --watch all are shown)");
}

TEST_CASE("musterctl --watch: a line that the terminal wraps takes several rows",
          "[unit][musterctl]") {
  const std::string wide(11, 'x');
  CHECK(fit_screen(wide + "\na\n", {.rows = 4, .columns = 5}) == wide + "\na");
  CHECK(fit_screen(wide + "\na\nb\n", {.rows = 4, .columns = 5}) ==
        wide + "\n(2 more lines: without --watch all are shown)");
  // Five characters of two bytes each.
  CHECK(fit_screen("\u00e9\u00e9\u00e9\u00e9\u00e9\na\n", {.rows = 2, .columns = 5}) ==
        "\u00e9\u00e9\u00e9\u00e9\u00e9\na");
}

}  // namespace
}  // namespace muster::ctl
