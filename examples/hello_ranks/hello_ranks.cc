// Each process prints its rank and the variables that the launcher has set. Needs no LibTorch.
#include <cstdlib>
#include <iostream>
#include <string>

#include "muster/environment.h"
#include "muster/record.h"

namespace {

constexpr const char* kNames[] = {
    "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE",           "MASTER_ADDR", "NODE_RANK", "RANK",
    "ROLE_NAME",  "ROLE_RANK",  "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE"};

// Returns the variables in the form in which Python prints a dict.
std::string environment_text() {
  std::string text;
  for (const char* name : kNames)
    if (const char* value = std::getenv(name))
      text += (text.empty() ? "'" : ", '") + std::string(name) + "': '" + value + "'";
  return "{" + text + "}";
}

// Returns N from the argument "--name N" or "--name=N", or `otherwise` without such an argument.
int option(int argc, char** argv, const std::string& name, int otherwise) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == name && i + 1 < argc) return std::stoi(argv[i + 1]);
    if (word.starts_with(name + "=")) return std::stoi(word.substr(name.size() + 1));
  }
  return otherwise;
}

int hello(int argc, char** argv) {
  const muster::Environment environment = muster::read_environment(argc, argv);
  // "--devices N" gives the number of GPUs of each node. The node's processes divide these GPUs.
  const int local_size = option(argc, argv, "--local_world_size", environment.local_world_size);
  const int share = option(argc, argv, "--devices", 0) / local_size;
  std::string devices;
  for (int i = environment.local_rank * share; i < (environment.local_rank + 1) * share; ++i)
    devices += (devices.empty() ? "" : ", ") + std::to_string(i);
  const std::string start = "rank " + std::to_string(environment.rank) + ": ";
  // Each line is one write, so the lines of several processes do not mix.
  std::cout << start + environment_text() + "\n" << std::flush;
  std::cout << start + "devices [" + devices + "]\n" << std::flush;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return muster::record([&] { return hello(argc, argv); });
}
