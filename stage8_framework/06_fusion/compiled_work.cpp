#include "stage8_framework/06_fusion/compiled_work.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "common/runtime_code.h"
#include "stage8_framework/06_fusion/source.h"
#include "stage8_framework/06_fusion/text.h"

namespace fusion {

namespace {

#if defined(GPU_BACKEND_CUDA)
constexpr Dialect kDialect = Dialect::cuda;
#elif defined(GPU_BACKEND_HIP)
constexpr Dialect kDialect = Dialect::hip;
#else
constexpr Dialect kDialect = Dialect::host;
#endif
constexpr bool kIsHost = kDialect == Dialect::host;

// How many elements an array is behind a multiple of four of them.
size_t past_four(const void* array, size_t element_bytes) {
  return reinterpret_cast<std::uintptr_t>(array) / element_bytes % 4;
}

// A kernel that was compiled in this process, maybe together with others.
struct KnownKernel {
  std::shared_ptr<const runtime_code::LoadedCode> module;
  std::string name;
};
using KernelKey = std::pair<int, std::string>;  // the device, and the text of the program alone

// Never destroyed: at the program's end the device's runtime may be gone before it.
std::map<KernelKey, KnownKernel>& known_kernels() {
  static auto& once = *new std::map<KernelKey, KnownKernel>;
  return once;
}

class CompiledWork : public ReadyWork {
 public:
  CompiledWork(const Program& program, const KnownKernel& kernel, const std::string& note)
      : program_(program),
        access_(access_of(program)),
        module_(kernel.module),
        kernel_(kernel.module->kernel(kernel.name)),
        note_(note) {
    if (program.reduction != Reduction::none) task_ = reduction_task_of(program);
  }

  void run(const FusedArrays& arrays, hipStream_t stream) const override {
    if (program_.reduction == Reduction::none)
      run_elements(arrays, stream);
    else if (task_.results > 0)
      run_reduction(arrays, stream);
  }
  size_t workspace_bytes() const override { return task_.part_bytes(); }
  std::string note() const override { return note_; }

 private:
  runtime_code::KernelArguments arguments_for(const FusedArrays& arrays) const {
    runtime_code::KernelArguments arguments;
    for (size_t i = 0; i < program_.outputs.size(); ++i) arguments.add(arrays.out[i]);
    for (size_t i = 0; i < program_.inputs.size(); ++i) arguments.add(arrays.in[i]);
    return arguments;
  }

  // Elements before the first group of four, and the groups: as 1.1 splits its vectors.
  std::pair<size_t, size_t> groups_of(const FusedArrays& arrays, size_t n) const {
    const size_t past = past_four(arrays.out[0], sizeof(float));
    bool are_alike = access_.is_by_four && (past == 0 || access_.is_flat);
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      are_alike = are_alike && past_four(arrays.out[i], sizeof(float)) == past;
    for (size_t i = 0; i < program_.inputs.size(); ++i)
      if (access_.ways[i].is_wide)
        are_alike = are_alike &&
                    past_four(arrays.in[i], framework::size_of(program_.inputs[i].dtype)) == past;
    if (!are_alike) return {0, 0};
    const size_t head = std::min(n, (4 - past) % 4);
    return {head, (n - head) / 4};
  }

  void run_elements(const FusedArrays& arrays, hipStream_t stream) const {
    const auto n = static_cast<size_t>(program_.elements());
    if (n == 0) return;
    const auto [head, groups] = groups_of(arrays, n);
    runtime_code::KernelArguments arguments = arguments_for(arrays);
    arguments.add(n), arguments.add(head), arguments.add(groups);
    const unsigned blocks = kIsHost ? static_cast<unsigned>(gpu::ceil_div(n, kElementsOfCall))
                                    : vector_add::full_grid(std::max(groups, n - 4 * groups));
    module_->launch(kernel_, blocks, vector_add::kBlock, arguments, stream);
  }

  void run_reduction(const FusedArrays& arrays, hipStream_t stream) const {
    const size_t last = program_.outputs.size() - 1, parts = task_.parts.count;
    const auto kind = reduction_of(program_);
    const bool is_mean = kind == own::Reduction::mean && parts == 1;
    auto* const y = static_cast<float*>(arrays.out[last]);
    FusedArrays to = arrays;
    if (parts > 1) to.out[last] = arrays.workspace;
    runtime_code::KernelArguments arguments = arguments_for(to);
    arguments.add(task_.count), arguments.add(task_.results);
    arguments.add(task_.parts.length), arguments.add(parts);
    arguments.add(is_mean ? task_.count : 1);
    const auto columns = static_cast<unsigned>(gpu::ceil_div(task_.results, task_.columns));
    if (task_.are_columns)
      module_->launch(kernel_, dim3(columns, static_cast<unsigned>(parts)),
                      dim3(task_.columns, task_.rows_at_once()), arguments, stream);
    else
      module_->launch(kernel_, static_cast<unsigned>(task_.results * parts), vector_add::kBlock,
                      arguments, stream);
    if (parts > 1)
      own::launch_last_reduction(kind, task_, y, static_cast<const float*>(arrays.workspace),
                                 stream);
  }

  Program program_;
  Accesses access_;
  std::shared_ptr<const runtime_code::LoadedCode> module_;
  runtime_code::Kernel kernel_;
  std::string note_;
  own::ReductionTask task_;
};

}  // namespace

std::vector<std::unique_ptr<ReadyWork>> compiled_together(const std::vector<Program>& programs,
                                                          size_t texts) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int device = 0;
  HIP_CHECK(hipGetDevice(&device));
  std::map<KernelKey, KnownKernel>& known = known_kernels();
  std::vector<KernelKey> keys, new_keys;
  std::map<KernelKey, std::string> notes;
  std::vector<Program> new_programs;
  for (const Program& program : programs) {
    const KernelKey& key = keys.emplace_back(device, source_of(program, kDialect));
    if (known.count(key) != 0 || !notes.insert({key, ""}).second) continue;
    new_keys.push_back(key), new_programs.push_back(program);
  }
  // Program i is kernel i / parts of text i % parts.
  std::vector<std::vector<Program>> parts(std::min(texts, new_programs.size()));
  for (size_t i = 0; i < new_programs.size(); ++i)
    parts[i % parts.size()].push_back(new_programs[i]);
  std::vector<std::string> sources;
  for (const std::vector<Program>& part : parts) sources.push_back(source_of(part, kDialect));
  std::vector<runtime_code::Compiled> compiled;
  if (!sources.empty()) compiled = runtime_code::compile(sources);
  for (size_t i = 0; i < new_keys.size(); ++i) {
    const size_t part = i % parts.size();
    known[new_keys[i]] = {compiled[part].module, kernel_name(i / parts.size(), parts[part].size())};
    notes[new_keys[i]] = compiled[part].note;
  }
  std::vector<std::unique_ptr<ReadyWork>> works;
  for (size_t i = 0; i < programs.size(); ++i)
    works.push_back(std::make_unique<CompiledWork>(
        programs[i], known[keys[i]], notes.insert({keys[i], "compiled, kept"}).first->second));
  return works;
}

}  // namespace fusion
