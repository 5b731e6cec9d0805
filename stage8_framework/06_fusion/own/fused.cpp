// Fused operations of the plug-in `own`: a program that comes across the table, and who runs it.
#include "common/runtime_code.h"
#include "stage8_framework/02_backends/own/own.h"
#include "stage8_framework/06_fusion/compiled_work.h"
#include "stage8_framework/06_fusion/program.h"
#include "stage8_framework/06_fusion/work.h"

namespace own {
namespace {

enum Kernel : std::int32_t { kBest, kInterpreted, kCompiled };  // as CourseBackend::fuse has them

class FusedProgram : public Fused {
 public:
  explicit FusedProgram(std::unique_ptr<fusion::ReadyWork> work)
      : work_(std::move(work)), note_(work_->note()) {}

  void run(const CourseCall& call, hipStream_t stream) const override {
    fusion::FusedArrays arrays;
    for (std::int32_t i = 0; i < call.input_count; ++i) arrays.in[i] = call.inputs[i].data;
    for (std::int32_t i = 0; i < call.output_count; ++i) arrays.out[i] = call.outputs[i].data;
    arrays.workspace = call.workspace;
    work_->run(arrays, stream);
  }
  size_t workspace() const override { return work_->workspace_bytes(); }
  const char* note() const override { return note_.c_str(); }

 private:
  std::unique_ptr<fusion::ReadyWork> work_;
  std::string note_;
};

}  // namespace

std::unique_ptr<Fused> fuse(const CourseProgram& program, const CourseTensor* inputs,
                            std::int32_t kernel) {
  const fusion::Program from = fusion::from_c(program, inputs);
  return std::make_unique<FusedProgram>(kernel == kInterpreted ? fusion::interpreted(from)
                                        : kernel == kCompiled  ? fusion::compiled(from)
                                                               : fusion::best(from));
}

FusedPrograms fuse_together(const CourseProgram* programs, const CourseTensor* const* inputs,
                            size_t count, std::int32_t kernel) {
  if (kernel == kInterpreted) return {};
  std::vector<fusion::Program> all;
  for (size_t i = 0; i < count; ++i) all.push_back(fusion::from_c(programs[i], inputs[i]));
  FusedPrograms fused;
  for (std::unique_ptr<fusion::ReadyWork>& work :
       fusion::compiled_together(all, runtime_code::texts_at_once()))
    fused.push_back(std::make_unique<FusedProgram>(std::move(work)));
  return fused;
}

}  // namespace own
