// What a store server tells of itself, and what a person asks of its runs.

#include "rendezvous/net/store_server_impl.h"

namespace muster {

StoreServerStats StoreServer::Impl::stats() const {
  const StoreTable& table = shared_.table;
  const std::size_t runs = shared_.runs ? shared_.runs->runs() : 0;
  return {open_,
          table.waiting(),
          table.num_keys(),
          table.bytes(),
          shared_.queued_bytes,
          accepted_,
          shared_.requests,
          runs,
          refused_,
          shared_.runs ? shared_.runs->state_problem() : std::string()};
}

StoreServerStats StoreServer::stats() const {
  return impl_->stats();
}
const RunService* StoreServer::runs() const {
  return impl_->runs();
}

std::optional<std::string> StoreServer::Impl::operate(const std::string& run_id,
                                                      OperatorAsked::What what) {
  if (!shared_.runs || !set_.is_open()) return std::nullopt;
  read_clock();
  auto objection = shared_.runs->operate(run_id, what, {now_, wall_now()});
  carry_out_runs();
  record_runs();
  return objection;
}

std::optional<std::string> StoreServer::operate(const std::string& run_id,
                                                OperatorAsked::What what) {
  return impl_->operate(run_id, what);
}

}  // namespace muster
