// Collectives on Gloo: all_gather, scatter, gather and all_reduce. The output is rank by rank.
#include "muster/collectives.h"

#include <string>

#include "muster/print.h"
#include "muster/process_group.h"
#include "muster/record.h"

namespace {

std::string text_of(const torch::Tensor& tensor) {
  std::string text;
  for (const torch::Tensor& value : tensor.flatten().unbind())
    text += (text.empty() ? "" : " ") + std::to_string(value.item<std::int64_t>());
  return text;
}

int run() {
  const muster::ProcessGroupScope job("gloo");
  const int rank = muster::get_rank();
  const int size = muster::get_world_size();
  const std::string start = "rank " + std::to_string(rank) + ": ";
  const torch::Tensor mine = torch::arange(2, torch::kInt64) + 2 * rank;
  muster::print_in_order(start + "mine " + text_of(mine));

  const torch::Tensor whole = torch::cat(muster::all_gather(mine));
  muster::print_in_order(start + "all_gather and cat " + text_of(whole));

  // Rank 0 scatters a tensor in chunks, each rank changes its chunk, and rank 0 gathers them.
  torch::Tensor share = torch::empty({2}, torch::kInt64);
  std::vector<torch::Tensor> chunks;
  if (rank == 0) chunks = (whole * 10).chunk(size);
  muster::scatter(share, chunks, 0);
  muster::print_in_order(start + "scatter of chunks " + text_of(share));
  const auto gathered = muster::gather(share + 1, 0);
  muster::print_in_order(start + "gather " + (rank == 0 ? text_of(torch::cat(gathered)) : "-"));

  torch::Tensor total = mine.clone();
  muster::all_reduce(total);
  muster::print_in_order(start + "all_reduce " + text_of(total));
  return 0;
}

}  // namespace

int main() {
  return muster::record(run);
}
