// The state codec as a filter, for state_against_torch.py. One line in, one line out:
// it turns a JSON twin into the text of a state, and a text into its twin or "refused: …".

#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "rendezvous/torchrun/state_codec.h"
#include "tests/support/state_twin.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty() && line[0] == '{') {
      std::cout << muster::encode_state(muster::testing::state_of_twin(nlohmann::json::parse(line)))
                << '\n'
                << std::flush;
      continue;
    }
    const auto state = muster::decode_state(line);
    if (!state)
      std::cout << "refused: " << muster::describe(state.error()) << '\n' << std::flush;
    else if (!state->has_value())
      std::cout << "null\n" << std::flush;
    else
      std::cout << muster::testing::twin_of(**state).dump() << '\n' << std::flush;
  }
}
