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
  static Model model, again;
  static const std::vector<float> first = model.values();
  const std::string_view bytes = fuzz::bytes_of(data, size);
  const auto file =
      fuzz::read_or_refused(fuzz::kName, [&] { return safetensors::parse(fuzz::kName, bytes); });
  if (!file) return 0;
  const auto state = fuzz::read_or_refused(
      fuzz::kName, [&] { return sequential::load(fuzz::kName, *file, model); });
  if (!state) {
    fuzz::expect(same(model.values(), first), "a file that is refused changes nothing");
    return 0;
  }

  const std::vector<float> values = model.values();
  fuzz::expect(sequential::all_finite(values), "every value is finite");
  for (const auto& [key, text] : state->more)  // as a training of another kind refuses it
    if (text != "wanted")
      fuzz::read_or_refused(fuzz::kName, [&text = text] {
        sequential::require_same(fuzz::kName, "source", text, "wanted");
        return true;
      });
  const auto expect_again = [&](const TrainingState& got) {
    fuzz::expect(got.steps == state->steps && got.epochs == state->epochs &&
                     got.seed == state->seed && got.optimizer == state->optimizer &&
                     got.more == state->more,
                 "what is said of the training comes back");
    fuzz::expect(same(again.values(), values), "the parameters and m and v come back");
  };
  expect_again(sequential::load(fuzz::kName, sequential::file_of(model, &*state), again));
  if (fuzz::is_chosen(bytes)) {
    static const fuzz::Folder folder;
    const std::string path = folder.file("again");
    sequential::save(path, model, &*state);
    again.restart();
    expect_again(sequential::load(path, again));
  }
  model.restart(), again.restart();
  return 0;
}
