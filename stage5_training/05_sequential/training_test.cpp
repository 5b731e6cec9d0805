// A model in training: what its steps keep, graphs of them, and twenty steps against NumPy's.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/graph.h"
#include "common/npy.h"
#include "stage5_training/05_sequential/training_for_tests.h"

using namespace sequential_test;

// ---- Memory and graphs ------------------------------------------------------------------------

TEST_CASE("a fused model keeps one output less for each ReLU") {
  Sequential model{Linear(8, 16), ReLU(), Linear(16, 4)};
  size_t bytes[3], i = 0;
  for (const auto& version : kVersions) {
    model.set_mode(version.launch);
    CHECK(model.step_bytes() == 0);
    model.reserve(10);
    bytes[i++] = model.step_bytes();
  }
  CHECK(bytes[0] == (160 + 160 + 40 + 2 * 160) * sizeof(float));
  CHECK(bytes[1] == bytes[0]);
  CHECK(bytes[2] == bytes[1] - 160 * sizeof(float));
  CHECK(model.parameter_bytes() == 4 * (128 + 16 + 64 + 4) * sizeof(float));
}

// An allocation while a stream captures is an error on every backend, so a step that can be
// captured allocates nothing.
TEST_CASE("a captured step allocates nothing and trains as the plain one, bit for bit", "[graph]") {
  const std::vector<float> x = some_floats(21 * 6, 1);
  const std::vector<int> labels = some_labels(21, 4);
  for (const auto& version : testing::chosen(kVersions)) {
    Sequential plain = make(Linear(6, 10), ReLU(), Linear(10, 4));
    Sequential replayed = make(Linear(6, 10), ReLU(), Linear(10, 4));
    plain.set_mode(version.launch), replayed.set_mode(version.launch);
    Trainer plainly(plain, Kind::AdamW, x, labels, 0.01f);
    Trainer by_graph(replayed, Kind::AdamW, x, labels, 0.01f);
    if (version.launch.keep_memory) replayed.reserve(21);
    const gpu::Stream stream;
    const auto capture = [&] { return gpu::Graph(stream, [&] { by_graph.step(stream); }); };
    CAPTURE(version.name);
    if (!version.launch.keep_memory) {
      CHECK_THROWS_AS(capture(), gpu::Error);
      continue;
    }
    const gpu::Graph graph = capture();
    for (int t = 0; t < 5; ++t) {
      plainly.step();
      graph.launch(stream);
    }
    stream.wait();
    CHECK(same_bits(state(plain), state(replayed)));
    CHECK(plainly.loss() == by_graph.loss());
  }
}

// ---- NumPy ------------------------------------------------------------------------------------

namespace {

std::vector<double> doubles(const std::string& array) {
  return read_npy(reference_path("sequential_" + array + ".npy")).values;
}
std::vector<float> floats(const std::string& array) {
  return read_npy(reference_path("sequential_" + array + ".npy")).floats();
}

// The model of the references, as it begins there.
Sequential numpy_model(const Mode& mode) {
  Sequential model{Linear(5, 7), ReLU(), Linear(7, 3)};
  model.set_mode(mode);
  model.initialize((std::uint64_t{1} << 40) + 7);
  return model;
}

}  // namespace

TEST_CASE("the first numbers are NumPy's, bit for bit", "[numpy]") {
  const Sequential model = numpy_model(kFused);
  CHECK(same_bits(to_host(model.tensors()[0].w, 35), floats("w1")));
  CHECK(same_bits(to_host(model.tensors()[2].w, 21), floats("w2")));
}

TEST_CASE("forward and backward agree with NumPy", "[numpy]") {
  for (const auto& version : testing::chosen(kVersions)) {
    Sequential model = numpy_model(version.launch);
    Step step(model, 37);
    step.x = floats("x"), step.grad_y = floats("grad_y");
    step.want = step_cpu(model, step.x, step.grad_y, step.batch);  // for its bounds
    step.want.y.value = doubles("y");
    for (size_t k = 0; k < model.tensors().size(); ++k)
      step.want.gradients[k].value = doubles("grad_" + model.tensors()[k].name);
    CAPTURE(version.name);
    REQUIRE_OK(run(model, step));
  }
}

TEST_CASE("twenty steps of training agree with NumPy", "[numpy]") {
#if defined(COURSE_SANITIZE_THREAD)
  constexpr size_t kSteps = 2;  // a block takes ThreadSanitizer milliseconds
#else
  constexpr size_t kSteps = 20;
#endif
  const std::vector<double> wide_labels = doubles("labels");
  std::vector<int> labels;
  for (const double label : wide_labels) labels.push_back(static_cast<int>(label));
  for (const auto& version : testing::chosen(kVersions))
    for (const Kind kind : {Kind::Sgd, Kind::Adam}) {
      const std::string name = optimizers::name(kind);
      const std::vector<double> losses = doubles(name + "_loss");
      Sequential model = numpy_model(version.launch);
      Trainer trainer(model, kind, floats("x"), labels, kind == Kind::Sgd ? 0.1f : 0.01f);
      for (size_t t = 0; t < kSteps; ++t) {
        trainer.step();
        CAPTURE(version.name, name, t);
        REQUIRE(std::fabs(trainer.loss() - losses[t]) <= 1e-5 * losses[t]);
      }
      if (kSteps < 20) continue;
      for (const NamedTensor& tensor : model.tensors()) {
        const std::vector<double> want = doubles(name + "_" + tensor.name);
        const std::vector<float> got = to_host(tensor.w, tensor.n);
        CAPTURE(version.name, name, tensor.name);
        REQUIRE_OK(compare(
            got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
            [](size_t) { return 1e-5; }));
      }
    }
}
