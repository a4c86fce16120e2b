#include "named_gloo.h"

#include "named_errors.h"

namespace muster {
namespace {

// Gloo's work. The errors of its future and of wait() have the operation's name.
class NamedWork : public c10d::Work {
 public:
  NamedWork(c10::intrusive_ptr<c10d::Work> work, std::string text)
      : Work(-1, work->retrieveOpType()), work_(std::move(work)), text_(std::move(text)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override {
    return with_named_errors([this] { return text_; }, [&] { return work_->wait(timeout); });
  }
  void abort() override { work_->abort(); }
  float getDuration() const override { return work_->getDuration(); }
  std::uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const auto future = work_->getFuture();
    const auto named = [text = text_](c10::ivalue::Future& done) {
      return with_named_errors([&text] { return text; }, [&done] { return done.value(); });
    };
    return future->then(named, future->elementType());
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::string text_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> NamedGloo::allreduce(std::vector<at::Tensor>& tensors,
                                                    const c10d::AllreduceOptions& options) {
  auto work = ProcessGroupGloo::allreduce(tensors, options);
  std::string text = operation_text("all_reduce", getGroupUid(), getRank(), getSize());
  return c10::make_intrusive<NamedWork>(std::move(work), std::move(text));
}

}  // namespace muster
