// StoreServer: passes people's questions to the nodes of a run, and the answers back.

#include "rendezvous/server/store_server_impl.h"

namespace muster {

std::optional<std::string> StoreServer::Impl::ask(const std::string& run_id, int rank,
                                                  NodeAsked question,
                                                  std::function<void(NodeAnswered)> done) {
  if (!shared_.runs || !set_.is_open()) return std::nullopt;
  read_clock();
  const std::uint64_t number = question.number;
  auto objection = shared_.runs->ask(run_id, rank, question, {now_, wall_now()});
  if (objection && objection->empty()) shared_.question_callbacks.emplace(number, std::move(done));
  apply_run_effects();
  return objection;
}

void StoreServer::Impl::forget_question(std::uint64_t number) {
  shared_.question_callbacks.erase(number);
  if (shared_.runs) shared_.runs->forget_question(number);
}

std::optional<std::string> StoreServer::ask(const std::string& run_id, int rank, NodeAsked question,
                                            std::function<void(NodeAnswered)> done) {
  return impl_->ask(run_id, rank, question, std::move(done));
}

void StoreServer::forget_question(std::uint64_t number) {
  impl_->forget_question(number);
}

}  // namespace muster
