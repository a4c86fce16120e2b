#include "tests/conformance/sdk/ranks.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdlib>

#include "muster/checkpoint.h"
#include "muster/process_group.h"
#include "muster/record.h"

namespace muster::testing {
namespace {

void save(const Table& table, const std::string& path) {
  c10::Dict<std::string, torch::Tensor> dict;
  for (const auto& [name, tensor] : table)
    dict.insert(name, tensor);
  save_file(path, dict);
}

// ranks TEST VARIANT FOLDER
int run(int argc, char** argv) {
  if (argc != 4) throw Error("usage: ranks TEST VARIANT FOLDER");
  const std::string test = argv[1];
  at::set_num_threads(1);
  ProcessGroupOptions options;
  if (const char* limit = std::getenv("MUSTER_TEST_TIMEOUT_MS"))
    options.timeout = std::chrono::milliseconds(std::stoi(limit));
  const ProcessGroupScope job("gloo", options);
  Table table;
  if (test == "collectives")
    table = run_collectives();
  else if (test == "complex")
    table = run_complex();
  else if (test == "views")
    table = run_views();
  else if (test == "ddp")
    table = run_ddp(argv[2]);
  else if (test == "ddp_tied")
    table = run_ddp_tied();
  else if (test == "checkpoint")
    table = run_checkpoint(argv[2]);
  else if (test == "checkpoint_memory")
    table = run_checkpoint_memory(argv[2]);
  else if (test == "checkpoint_misfit")
    table = run_checkpoint_misfit(argv[2]);
  else if (test == "checkpoint_foreign")
    table = run_checkpoint_foreign(argv[2]);
  else if (test == "checkpoint_wait")
    table = run_checkpoint_wait(argv[2]);
  else if (test == "checkpoint_store_lost")
    table = run_checkpoint_store_lost(argv[2]);
  else if (test == "extra")
    table = run_extra();
  else if (test == "foreign_objects")
    table = run_foreign_objects();
  else if (test == "wrong_calls")
    table = run_wrong_calls();
  else if (test == "lost_peer")
    table = run_lost_peer(argv[2]);
  else if (test == "unused_error")
    table = run_unused_error();
  else if (test == "subgroup_checkpoint")
    table = run_subgroup_checkpoint(argv[2]);
  else
    throw Error("no test " + test);
  save(table, std::string(argv[3]) + "/" + std::to_string(get_rank()) + ".pt");
  return 0;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  return muster::record([&] { return muster::testing::run(argc, argv); });
}
