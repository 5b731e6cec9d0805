// The trainings of train_sales: every version against the reference in double and NumPy's losses,
// what a model reaches, and checkpoints that go on bit for bit.
#include "stage5_training/07_train_sales/train_sales.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/program.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage3_ml_ops/03_losses/reference.h"
#include "stage5_training/06_train_toy/epochs.h"
#include "stage5_training/07_train_sales/checkpoint.h"
#include "stage5_training/07_train_sales/detail/slots.h"
#include "stage5_training/07_train_sales/reference.h"

namespace {

using namespace train_sales;

Sales make_sales(size_t rows, std::uint64_t seed = 3) {
  return sales::parse(sales::make(rows, seed));
}

// Rows on the device that need no file.
std::vector<float4> random_rows(size_t count) {
  std::vector<float4> rows(count * kParts);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto number = [&](std::uint32_t k) { return random_numbers::uniform(5, k, i) + 0.1f; };
    const bool last = i % kParts == kFeatureParts;  // the target, and zeros
    rows[i] = last ? make_float4(number(0), 0, 0, 0)
                   : make_float4(number(0), number(1), number(2), number(3));
  }
  return rows;
}

std::vector<float> next_losses(Training& t, Launch launch, size_t steps) {
  return train_toy::next_losses(
      t, [&](size_t count) { launch(t, count); }, steps);
}

// NumPy's losses of 20 steps at a small rate: as far off as a hundred roundings of the loss.
Comparison compare_with_numpy(const std::vector<float>& got, const std::vector<double>& want) {
  return compare(
      want.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return 1e-5 * want[i]; });
}

// A file that is gone at the end of the test.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& name) : path(name + std::to_string(::getpid())) {}
  ~TemporaryFile() { std::remove(path.c_str()); }
  std::string path;
};

}  // namespace

// ---- Training ---------------------------------------------------------------------------------

TEST_CASE("losses are NumPy's, for every version", "[numpy]") {
  const auto values = [](const std::string& name) {
    return read_npy(reference_path("train_sales_" + name + ".npy")).values;
  };
  const std::vector<double> x = values("x"), target = values("target");
  std::vector<float> floats(target.size() * 4 * kParts);
  for (size_t row = 0; row < target.size(); ++row) {
    for (size_t k = 0; k < kFeatures; ++k)
      floats[row * 4 * kParts + k] = static_cast<float>(x[row * kFeatures + k]);
    floats[row * 4 * kParts + kFeatures] = static_cast<float>(target[row]);
  }
  std::vector<float4> rows(target.size() * kParts);
  std::memcpy(static_cast<void*>(rows.data()), floats.data(), floats.size() * sizeof(float));
  const DeviceBuffer<float4> d_rows(rows);

  for (const Kind kind : {Kind::Sgd, Kind::Adam}) {
    Settings settings;
    settings.kind = kind, settings.batch = 64, settings.seed = 7;
    settings.hyper.learning_rate = kind == Kind::Sgd ? 0.01f : 0.005f;
    for (const auto& version : testing::chosen(kVersions)) {
      if (!missing(version.needs).empty()) continue;
      // ThreadSanitizer takes long for every launch; the other rules are in the next test case.
      if (kind == Kind::Sgd && version.launch != run_operations) continue;
      Training t(d_rows.data(), target.size(), settings);
      const char* names[] = {"w1", "b1", "w2", "b2"};
      for (size_t k = 0; k < 4; ++k) {
        const std::vector<double> wide = values(names[k]);
        const std::vector<float> start(wide.begin(), wide.end());
        HIP_CHECK(hipMemcpy(t.model.tensors()[k].w, start.data(), start.size() * sizeof(float),
                            hipMemcpyHostToDevice));
      }
      std::vector<double> want = values(std::string(optimizers::name(kind)) + "_losses");
#if defined(COURSE_SANITIZE_THREAD)  // which takes seconds for each step
      want.resize(4);
#endif
      CAPTURE(version.name, optimizers::name(kind));
      REQUIRE_OK(compare_with_numpy(next_losses(t, version.launch, want.size()), want));
    }
  }
}

TEST_CASE("every version takes the reference's steps, at awkward batches, by every rule") {
  constexpr size_t kRows = 1200;
  const std::vector<float4> rows = random_rows(kRows);
  const DeviceBuffer<float4> d_rows(rows);
  for (const size_t batch : {1u, 31u, 32u, 33u, 100u, 577u, 1200u}) {
    for (const Kind kind : optimizers::kKinds) {
      if (kind != Kind::Adam && batch != 100) continue;
      Settings settings;
      settings.kind = kind, settings.batch = batch, settings.seed = 11;
      settings.hyper.learning_rate = 0.01f;
      const size_t steps = batch > 100 ? 3 : 8;  // an epoch of the last is one step
      for (const auto& version : testing::chosen(kVersions)) {
        if (!missing(version.needs).empty()) continue;
        Training t(d_rows.data(), kRows, settings);
        const Trajectory want =
            trajectory_cpu(t.model, t.parameters(), rows, t.sampler, settings, steps);
        CAPTURE(version.name, batch, optimizers::name(kind));
        REQUIRE_OK(compare_losses(next_losses(t, version.launch, steps), want));
        REQUIRE(t.schedule.to_host()[0].step == steps);
        REQUIRE(want.losses.size() == steps);
        REQUIRE(t.steps == steps);
      }
    }
  }
}

TEST_CASE("what the checks above must catch", "[harness]") {
  constexpr size_t kRows = 300;
  const std::vector<float4> rows = random_rows(kRows);
  const DeviceBuffer<float4> d_rows(rows);
  Settings settings;
  settings.batch = 100;
  Training t(d_rows.data(), kRows, settings);
  const std::vector<float> start = t.parameters();
  const std::vector<float> got = next_losses(t, run_operations, 8);
  const auto accepted = [&](const std::vector<float>& parameters, const Sampler& sampler,
                            const Settings& wanted) {
    return compare_losses(got, trajectory_cpu(t.model, parameters, rows, sampler, wanted, 8)).ok;
  };
  REQUIRE(accepted(start, t.sampler, settings));
  const auto with = [&](auto change) {
    Settings changed = settings;
    change(changed);
    return changed;
  };
  // A rate one percent off, the optimizer next to it, a step number that stays where it is.
  REQUIRE_FALSE(
      accepted(start, t.sampler, with([](Settings& s) { s.hyper.learning_rate *= 1.01f; })));
  REQUIRE_FALSE(accepted(start, t.sampler, with([](Settings& s) { s.kind = Kind::AdamW; })));
  REQUIRE_FALSE(accepted(start, t.sampler, with([](Settings& s) { s.kind = Kind::Sgd; })));
  // The same batch again, a sample too few, a row too few.
  REQUIRE_FALSE(accepted(start, {kRows, 100, settings.seed + 1}, settings));
  REQUIRE_FALSE(accepted(start, {kRows, 99, settings.seed}, settings));
  REQUIRE_FALSE(accepted(start, {kRows - 1, 100, settings.seed}, settings));
  // One weight of 833 off by a thousandth.
  std::vector<float> changed = start;
  changed[17] += 1e-3f;
  REQUIRE_FALSE(accepted(changed, t.sampler, settings));
}

TEST_CASE("every parameter has one slot, and the slots behind the last parameter have none") {
  const Sequential model = make_model();
  const Places places = places_of(model);
  std::set<size_t> taken;
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    CAPTURE(slot);
    const size_t at = place(places, slot);
    if (slot > kOutBias) {
      REQUIRE(at == kNowhere);
    } else {
      REQUIRE(at < model.arena().n);
      REQUIRE(taken.insert(at).second);
    }
  }
  size_t parameters = 0;
  for (const auto& tensor : model.tensors()) {
    const auto first = static_cast<size_t>(tensor.w - model.arena().w);
    for (size_t i = 0; i < tensor.n; ++i) REQUIRE(taken.count(first + i) == 1);
    parameters += tensor.n;
  }
  REQUIRE(taken.size() == parameters);
}

TEST_CASE("an epoch takes every row once, and each epoch in another order") {
  const Sampler sampler{1000, 30, 5};
  std::set<size_t> rows;
  for (size_t step = 0; step < sampler.steps_per_epoch(); ++step)
    for (size_t sample = 0; sample < sampler.batch; ++sample)
      rows.insert(sampler.row(step, sample));
  REQUIRE(rows.size() == 990);  // ten do not fill a batch
  REQUIRE(*rows.rbegin() < 1000);
  size_t same = 0;
  for (size_t sample = 0; sample < 30; ++sample)
    same += sampler.row(0, sample) == sampler.row(sampler.steps_per_epoch(), sample);
  REQUIRE(same < 5);
}

TEST_CASE("the model learns what discounts do, as was promised, from three seeds", "[long]") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  const DataSet data(make_sales(6000), seed);
  Settings settings;
  settings.seed = seed;
  settings.batch = 128, settings.hyper.learning_rate = 0.01f;
  const double of_mean = error_of_mean(data), of_median = error_of_median(data);
  REQUIRE(of_median < of_mean);  // as for every distribution
  const auto train = [&](Launch launch) {
    Training t(data.train_rows(), data.train(), settings);
    for (int epoch = 0; epoch < 6; ++epoch) launch(t, t.steps_per_epoch());
    return error_of(predict(t.model, data.test_rows(), data.test()), data);
  };
  for (const Launch launch : {run_operations, run_persistent}) {
    const double of_model = train(launch);
    CAPTURE(of_model, of_mean);
    REQUIRE(of_model < kPromisedShare * of_mean);
  }
}

TEST_CASE("batches that cannot be are refused", "[harness]") {
  const DeviceBuffer<float4> rows(random_rows(10));
  Settings settings;
  for (const size_t batch : {0u, 11u}) {
    settings.batch = batch;
    REQUIRE_THROWS_AS(Training(rows.data(), 10, settings), std::invalid_argument);
  }
}

// ---- Checkpoints ------------------------------------------------------------------------------

TEST_CASE("a resumed training has the bits of one that was not stopped") {
  const DataSet data(make_sales(700), 4);
  Settings settings;
  settings.batch = 150;  // three batches, and a rest
  const TemporaryFile file("train_sales_test.safetensors.");
  for (const auto& version : testing::chosen(kVersions)) {
    if (!missing(version.needs).empty()) continue;
    CAPTURE(version.name);
    Training whole(data.train_rows(), data.train(), settings);
    version.launch(whole, 4 * whole.sampler.steps_per_epoch());
    Training first(data.train_rows(), data.train(), settings);
    version.launch(first, 2 * first.steps_per_epoch());
    first.save(file.path, texts_of(data.encoding()));
    Training second(data.train_rows(), data.train(), settings);
    version.launch(second, 1);  // whatever it has done before
    second.resume(file.path);
    REQUIRE(second.steps == first.steps);
    version.launch(second, 2 * second.sampler.steps_per_epoch());
    HIP_CHECK(hipDeviceSynchronize());
    REQUIRE(second.parameters() == whole.parameters());
    REQUIRE(second.schedule.to_host()[0].step == whole.schedule.to_host()[0].step);
    REQUIRE(second.curve.to_host() == whole.curve.to_host());
  }
}

TEST_CASE("a checkpoint holds what new sales need, and another training's is refused",
          "[harness]") {
  const DataSet data(make_sales(400), 4);
  Settings settings;
  settings.batch = 100;
  Training t(data.train_rows(), data.train(), settings, "these sales");
  run_fused(t, 5);
  const TemporaryFile file("train_sales_test.checkpoint.");
  t.save(file.path, texts_of(data.encoding()));

  const Checkpoint checkpoint = checkpoint_of(file.path, safetensors::read(file.path));
  REQUIRE(checkpoint.state.steps == 5);
  REQUIRE(checkpoint.encoding.categories == data.encoding().categories);
  for (unsigned which = 0; which < kMeasures; ++which) {
    const Normalization& got = checkpoint.encoding.normalization;
    REQUIRE(got.mean[which] == data.encoding().normalization.mean[which]);
    REQUIRE(got.scale[which] == data.encoding().normalization.scale[which]);
  }
  // The saved model on the same test split.
  Sequential model = make_model();
  sequential::load(file.path, model);
  const DataSet again(make_sales(400), 4, checkpoint.encoding, data.test());
  REQUIRE(predict(model, again.test_rows(), again.test()) ==
          predict(t.model, data.test_rows(), data.test()));

  const auto refused = [&](Settings wanted, const std::string& source) -> std::string {
    Training other(data.train_rows(), data.train(), wanted, source);
    const std::vector<float> before = other.parameters();
    try {
      other.resume(file.path);
    } catch (const std::runtime_error& error) {
      REQUIRE(other.parameters() == before);
      REQUIRE(other.steps == 0);
      return error.what();
    }
    return "";
  };
  CHECK(refused(settings, "these sales").empty());
  CHECK(contains_text(refused(settings, "others"), "source these sales, not others"));
  Settings other = settings;
  other.seed = 9;
  CHECK(contains_text(refused(other, "these sales"), "seed 1, not 9"));
  other = settings, other.batch = 99;
  CHECK(contains_text(refused(other, "these sales"), "batch 100, not 99"));
  other = settings, other.kind = Kind::Sgd;
  CHECK(contains_text(refused(other, "these sales"), "optimizer adam, not sgd"));

  sequential::save(file.path, t.model);  // parameters alone, as from elsewhere
  REQUIRE_THROWS_AS(checkpoint_of(file.path, safetensors::read(file.path)), std::runtime_error);
  auto texts = texts_of(data.encoding());
  texts["scale"] = "1 2 x";
  REQUIRE_THROWS_AS(encoding_of(texts), std::invalid_argument);
  texts["scale"] = "1 2 nan 3";
  REQUIRE_THROWS_AS(encoding_of(texts), std::invalid_argument);
}

TEST_CASE("train_sales: a checkpoint's encoding is what texts_of() writes, or is refused") {
  const std::map<std::string, std::string> right{
      {"categories", "Books\tGarden"}, {"mean", "1 0x1p-3 -2 0"}, {"scale", "1 2 0x1p-100 3"}};
  const Encoding encoding = encoding_of(right);
  CHECK(encoding.categories == std::vector<std::string>{"Books", "Garden"});
  CHECK(encoding_of(texts_of(encoding)).categories == encoding.categories);
  const auto refused = [&](const char* key, const char* text) {
    auto texts = right;
    texts[key] = text;
    CAPTURE(key, text);
    CHECK_THROWS_AS(encoding_of(texts), std::invalid_argument);
  };
  refused("mean", "1 2 3 4 5");
  refused("mean", "1 2 3 4x");
  refused("scale", "1 0 1 1");  // a total would be divided by it
  refused("scale", "1 1 1 -2");
  refused("scale", "1 1 1 0x1p-140");  // its reciprocal is infinite
  refused("categories", "");
  refused("categories", "Books\t");
  refused("categories", "Books\t\tGarden");
}
