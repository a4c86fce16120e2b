// StoreServer: statistics, changes of limits and tokens, and the operations of an operator.

#include "rendezvous/server/store_server_impl.h"

namespace muster {

StoreServerStats StoreServer::Impl::stats() const {
  const StoreTable& table = shared_.table;
  const std::size_t runs = shared_.runs ? shared_.runs->runs() : 0;
  return {open_,
          table.waiting(),
          table.num_keys(),
          table.bytes(),
          shared_.unread_bytes(),
          accepted_,
          shared_.traffic,
          runs,
          refused_,
          shared_.runs ? shared_.runs->state_problem() : std::string(),
          drained_by_.has_value(),
          closed_};
}

StoreServerStats StoreServer::stats() const {
  return impl_->stats();
}
const RunService* StoreServer::runs() const {
  return impl_->runs();
}

void StoreServer::Impl::set_limits(const StoreServerLimits& limits) {
  const CodecLimits before = shared_.codec;
  shared_.codec = limits.codec;
  shared_.codec.native_door = before.native_door;
  shared_.codec.short_native_messages = before.short_native_messages;
  shared_.table.set_limits(shared_.limits = limits.table);
  options_.limits = shared_.connections = limits.connections;
  shared_.accounts.set_limits(limits.of_a_run);
  unvalidated_.set_after(limits.validate_within);
  stalled_.set_after(limits.stalled_after);
  if (shared_.runs) shared_.runs->set_limits(limits.runs, limits.forget_run_after);
  if (options_.runs) {
    options_.runs->runs = limits.runs;
    options_.runs->forget_after = limits.forget_run_after;
  }
  if (!set_.is_open()) return;
  read_clock();
  arm_timer();
}

void StoreServer::set_limits(const StoreServerLimits& limits) {
  impl_->set_limits(limits);
}

void StoreServer::set_run_tokens(HostTokens::OfRuns tokens) {
  impl_->set_run_tokens(std::move(tokens));
}

std::optional<std::string> StoreServer::Impl::operate(const std::string& run_id,
                                                      const OperatorAsked& asked,
                                                      std::function<void(std::string)> done) {
  if (!shared_.runs || !set_.is_open() || !may_serve()) return std::nullopt;
  read_clock();
  const std::uint64_t number = ++shared_.operations;
  auto objection = shared_.runs->operate(run_id, asked, {now_, wall_now()}, number);
  if (objection && objection->empty()) shared_.operation_callbacks.emplace(number, std::move(done));
  apply_run_effects();
  record_runs();
  return objection;
}

std::optional<std::string> StoreServer::operate(const std::string& run_id,
                                                const OperatorAsked& asked,
                                                std::function<void(std::string)> done) {
  return impl_->operate(run_id, asked, std::move(done));
}

}  // namespace muster
