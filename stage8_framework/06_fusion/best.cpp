// Who runs a program: whatever is compiled, and where there is no compiler the interpreter.
#include <stdexcept>
#include <utility>

#include "stage8_framework/06_fusion/work.h"

namespace fusion {
namespace {

// The interpreted program, and why it is that one.
class InsteadOfCompiled : public ReadyWork {
 public:
  InsteadOfCompiled(std::unique_ptr<ReadyWork> work, const std::string& reason)
      : work_(std::move(work)), note_(work_->note() + ": " + reason) {}

  void run(const FusedArrays& arrays, hipStream_t stream) const override {
    work_->run(arrays, stream);
  }
  size_t workspace_bytes() const override { return work_->workspace_bytes(); }
  std::string note() const override { return note_; }

 private:
  std::unique_ptr<ReadyWork> work_;
  std::string note_;
};

}  // namespace

std::unique_ptr<ReadyWork> best(const Program& program) {
  try {
    return compiled(program);
  } catch (const std::runtime_error& failed) {
    return std::make_unique<InsteadOfCompiled>(interpreted(program), failed.what());
  }
}

}  // namespace fusion
