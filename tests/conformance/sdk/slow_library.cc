// A library whose loading takes longer than anybody waits.
#include <unistd.h>

namespace {

[[gnu::constructor]] void sleep_while_loading() {
  ::sleep(120);
}

}  // namespace
