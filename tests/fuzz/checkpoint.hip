// sequential::load(), which steps 5.6, 5.7, 5.8, 6.4 and 7.7 go on from: a file that is refused
// leaves the model as it was, and a training that is read and saved again is the same. The file is
// a checkpoint as it is; the model is a small one.
#include <cstring>

#include "common/device_buffer.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace {

using gpu::DeviceBuffer;
using sequential::NamedTensor;
using sequential::TrainingState;

// What load() and save() ask of a model: Sequential{Linear(2, 1)} without its kernels.
class Model {
 public:
  Model() : memory_(4 * kFloats) {
    float* const w = memory_.data();
    const auto tensor = [&](const char* name, const std::vector<size_t>& shape, size_t begin,
                            size_t n) {
      float* const at = w + begin;
      tensors_.push_back({name, shape, at, at + kFloats, at + 2 * kFloats, at + 3 * kFloats, n});
    };
    tensor("0.weight", {1, 2}, 0, 2);
    tensor("0.bias", {1}, 4, 1);
    arena_ = {w, w + kFloats, w + 2 * kFloats, w + 3 * kFloats, kFloats};
    restart();
  }

  std::string description() const { return "Sequential{Linear(2, 1)}"; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const optimizers::ParameterArena& arena() const { return arena_; }

  void restart() { HIP_CHECK(hipMemset(memory_.data(), 0x3f, memory_.bytes())); }
  std::vector<float> values() const { return memory_.to_host(); }

 private:
  static constexpr size_t kFloats = 8;  // each tensor begins at 16 bytes
  DeviceBuffer<float> memory_;          // w, gradients, m, v
  std::vector<NamedTensor> tensors_;
  optimizers::ParameterArena arena_;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::MemoryFile file;
  static const fuzz::Folder folder;
  static Model model, again;
  static const std::vector<float> first = model.values();
  file.fill(fuzz::text_of(data, size));
  const auto state =
      fuzz::read_or_refused(file.path(), [] { return sequential::load(file.path(), model); });
  if (!state) {
    fuzz::expect(same(model.values(), first), "a file that is refused changes nothing");
    return 0;
  }

  fuzz::expect(sequential::all_finite(model.values()), "every value is finite");
  for (const auto& [key, text] : state->more)  // as a training of another kind refuses it
    if (text != "wanted")
      fuzz::read_or_refused(file.path(), [&text = text] {
        sequential::require_same(file.path(), "source", text, "wanted");
        return true;
      });
  const std::string path = folder.file("again");
  sequential::save(path, model, &*state);
  const TrainingState got = sequential::load(path, again);
  fuzz::expect(got.steps == state->steps && got.epochs == state->epochs &&
                   got.seed == state->seed && got.optimizer == state->optimizer &&
                   got.more == state->more,
               "what is said of the training comes back");
  fuzz::expect(same(again.values(), model.values()), "the parameters and m and v come back");
  model.restart(), again.restart();
  return 0;
}
