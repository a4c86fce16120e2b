// A library that takes longer to load than any test waits.
#include <unistd.h>

namespace {

[[gnu::constructor]] void sleep_while_loading() {
  ::sleep(120);
}

}  // namespace
