// Every version trains alike: against NumPy, against double, and against itself after a resume. And
// the program: what it refuses, what it saves, how it stops.
#include "stage5_training/08_train_mnist/train_mnist.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/testing.h"
#include "common/tests/programs.h"

using namespace train_mnist;

namespace {

namespace fs = std::filesystem;
using tests::big_endian;
using tests::Folder;
using tests::read_file;
using tests::write_file;

// The losses of `steps` steps, epoch by epoch.
std::vector<float> losses_of(Training& training, const Launch& version, size_t steps) {
  const size_t per_epoch = training.course().steps_per_epoch();
  std::vector<float> losses;
  while (steps > 0) {
    const size_t first = training.steps % per_epoch, part = std::min(steps, per_epoch - first);
    train(training, version, part);
    const std::vector<float> curve = epoch_losses(training);
    losses.insert(losses.end(), curve.begin() + static_cast<std::ptrdiff_t>(first),
                  curve.begin() + static_cast<std::ptrdiff_t>(first + part));
    steps -= part;
  }
  return losses;
}

using testing::same_bits;

void write_digits(const std::string& folder, const std::string& part, const mnist::Digits& digits) {
  tests::write_digits(folder, part, digits.pixels, digits.labels);
}

Outcome run_shell(const std::string& command) { return tests::run_shell("train_mnist", command); }
Outcome run_program_with(const std::string& arguments) {
  return run_shell("\"$PROGRAM\" " + arguments);
}

// The one line of a refusal.
void require_refusal(const Outcome& outcome, const std::string& words) {
  CAPTURE(outcome.text);
  REQUIRE(tests::is_refusal("train_mnist", outcome, words));
}

}  // namespace

TEST_CASE("the losses of 20 steps agree with NumPy's", "[numpy]") {
  const NpyArray pixels = read_npy(reference_path("train_mnist_pixels.npy"));
  const NpyArray labels = read_npy(reference_path("train_mnist_labels.npy"));
  std::vector<double> want = read_npy(reference_path("train_mnist_losses.npy")).values;
  REQUIRE(want.size() == 20);
#if defined(COURSE_SANITIZE_THREAD)  // which makes a thread of every thread, seconds for each step
  want.resize(2);
#endif
  const mnist::Digits digits{{pixels.values.begin(), pixels.values.end()},
                             {labels.values.begin(), labels.values.end()}};
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 8, settings.batch = 20, settings.seed = (std::uint64_t{1} << 33) + 5;
  Training training(settings, images.samples());
  const Trajectory host = trajectory_cpu(settings, digits, parameters_of(training), want.size());
  REQUIRE(host.losses.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::fabs(host.losses[i] - want[i]) <= 1e-6 * want[i]);  // its gradients are floats
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (!version.launch.obstacle(training).empty()) continue;
    training.restart();
    REQUIRE_OK(
        compare_losses(losses_of(training, version.launch, want.size()), {want, host.bounds}));
  }
}

TEST_CASE("every version trains every shape as the reference does") {
  struct Shape {
    size_t hidden, batch, images, steps;
  };
  constexpr Shape kShapes[] = {{1, 1, 3, 7},   {3, 33, 70, 5},   {5, 64, 130, 5}, {8, 7, 50, 9},
                               {8, 64, 64, 3}, {21, 63, 200, 4}, {135, 64, 70, 2}};
  for (const Shape& shape : kShapes) {
    const mnist::Digits digits = mnist::draw(shape.images, 3);
    const DeviceDigits images(digits);
    Settings settings;
    settings.hidden = shape.hidden, settings.batch = shape.batch, settings.seed = 17;
    Training training(settings, images.samples());
    const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), shape.steps);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, shape.hidden, shape.batch, shape.images);
      if (const std::string why = version.launch.obstacle(training); !why.empty()) {
        REQUIRE((shape.hidden > kMostUnits && contains_text(why, "blocks do not fit")));
        continue;
      }
      training.restart();
      REQUIRE_OK(compare_losses(losses_of(training, version.launch, shape.steps), want));
    }
  }
}

// Exponentials of these logits overflow, or are all 0, unless the largest logit is taken away.
TEST_CASE("logits of any size make finite losses and gradients") {
  const mnist::Digits digits = mnist::draw(40, 10);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 5, settings.batch = 20;
  std::vector<float> biases;  // of the classes
  for (size_t c = 0; c < kClasses; ++c) biases.push_back(c % 2 == 0 ? 1e4f : -1e4f);
  Training training(settings, images.samples());
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (!version.launch.obstacle(training).empty()) continue;
    training.restart();
    HIP_CHECK(hipMemcpy(training.model.tensors()[3].w, biases.data(), kClasses * sizeof(float),
                        hipMemcpyHostToDevice));
    const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), 4);
    REQUIRE_OK(compare_losses(losses_of(training, version.launch, 4), want));
  }
}

TEST_CASE("the versions agree on the parameters, by every optimizer") {
  const DeviceDigits images(mnist::draw(150, 4));
  for (const optimizers::Kind kind : optimizers::kKinds) {
    Settings settings;
    settings.hidden = 7, settings.batch = 24, settings.optimizer = kind;
    settings.learning_rate = kind == optimizers::Kind::Adam ? 1e-3f : 1e-2f;
    Training training(settings, images.samples());
    std::vector<std::vector<float>> want;
    for (const auto& version : kVersions) {
      CAPTURE(version.name, optimizers::name(kind));
      if (!version.launch.obstacle(training).empty()) continue;
      training.restart();
      train(training, version.launch, 8);
      const auto got = parameters_of(training);
      if (want.empty()) want = got;
      // Adam makes a full step even of a gradient that is nothing but rounding.
      size_t count = 0, apart = 0;
      for (size_t k = 0; k < want.size(); ++k)
        for (size_t i = 0; i < want[k].size(); ++i, ++count)
          if (!(std::fabs(got[k][i] - want[k][i]) <= 2e-5f)) ++apart;
      REQUIRE(apart <= (optimizers::states(kind) == 2 ? count / 200 : 0));
      training.restart();
      train(training, version.launch, 8);
      REQUIRE(same_bits(parameters_of(training), got));  // deterministic
    }
  }
}

TEST_CASE("a resumed training goes on with the same bits") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const DeviceDigits images(mnist::draw(100, 5));
  Settings settings;
  settings.hidden = 6, settings.batch = 16;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Training whole(settings, images.samples());
    if (!version.launch.obstacle(whole).empty()) continue;
    train(whole, version.launch, 9);  // an epoch has 6 steps
    whole.save(path);
    train(whole, version.launch, 8);
    Training resumed(settings, images.samples());
    train(resumed, version.launch, 3);  // what is resumed must not depend on what was before
    resumed.resume(path);
    REQUIRE(resumed.steps == 9);
    train(resumed, version.launch, 8);
    REQUIRE(same_bits(parameters_of(resumed), parameters_of(whole)));
    resumed.save(path);
    const std::string saved = read_file(path);
    whole.save(path);
    REQUIRE(saved == read_file(path));
  }
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors", damaged = folder / "damaged";
  const DeviceDigits images(mnist::draw(40, 6)), fewer(mnist::draw(30, 6));
  Settings settings;
  settings.hidden = 4, settings.batch = 8;
  Training training(settings, images.samples());
  train(training, kVersions[0].launch, 3);
  training.save(path);
  train(training, kVersions[0].launch, 1);
  const auto before = parameters_of(training);

  const auto refuses = [&](Training& to, const std::string& file, const std::string& words) {
    const auto parameters = parameters_of(to);
    const std::uint64_t steps = to.steps;
    try {
      to.resume(file);
      FAIL("resumed from " + file);
    } catch (const std::runtime_error& error) {
      REQUIRE(contains_text(error.what(), words));
      REQUIRE(contains_text(error.what(), file));
    }
    REQUIRE(to.steps == steps);
    REQUIRE(same_bits(parameters_of(to), parameters));
  };
  const auto refuses_with = [&](Settings other, const Samples& samples, const std::string& words) {
    Training to(other, samples);
    refuses(to, path, words);
  };
  Settings other = settings;
  other.seed = 2;
  refuses_with(other, images.samples(), "seed 1, not 2");
  other = settings, other.batch = 5;
  refuses_with(other, images.samples(), "batch 8, not 5");
  other = settings, other.optimizer = optimizers::Kind::Sgd;
  refuses_with(other, images.samples(), "optimizer adam, not sgd");
  other = settings, other.hidden = 5;
  refuses_with(other, images.samples(), "Linear(784, 5)");
  refuses_with(settings, fewer.samples(), "images 40, not 30");

  refuses(training, folder / "missing", "");
  const std::string whole = read_file(path);
  for (size_t length = 0; length < whole.size(); length += 1 + length / 16) {
    write_file(damaged, whole.substr(0, length));
    refuses(training, damaged, "");
  }
  REQUIRE(same_bits(parameters_of(training), before));
}

TEST_CASE("batches that can't be are refused", "[harness]") {
  const DeviceDigits images(mnist::draw(10, 7));
  Settings settings;
  settings.hidden = 2, settings.batch = 0;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
  settings.batch = 11;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
  settings.batch = 10;
  Training training(settings, images.samples());
  REQUIRE(training.course().steps_per_epoch() == 1);
}

TEST_CASE("an epoch takes every image at most once, and every epoch in another order") {
  constexpr Course kCourse{1003, 64, 9};
  std::vector<size_t> first;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> taken(kCourse.samples);
    std::vector<size_t> order;
    for (size_t i = 0; i < kCourse.steps_per_epoch(); ++i) {
      const std::uint64_t step = epoch * kCourse.steps_per_epoch() + i;
      for (size_t sample = 0; sample < kCourse.batch; ++sample)
        order.push_back(kCourse.order(step)(kCourse.place(step, sample)));
    }
    REQUIRE(order.size() == 15 * 64);
    for (const size_t row : order) REQUIRE(++taken.at(row) == 1);
    if (epoch == 0) first = order;
    REQUIRE((epoch == 0) == (order == first));
  }
}

TEST_CASE("what a model says to images, in whole batches and parts of them") {
  const mnist::Digits digits = mnist::draw(kEvaluationBatch + 77, 8);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 32, settings.learning_rate = 3e-3f;
  Training training(settings, images.samples());
  train(training, kVersions[0].launch, 96);
  const std::vector<Guess> guesses = guess(training.model, images.samples(), digits.labels);
  REQUIRE(guesses.size() == digits.count());
  REQUIRE(accuracy(guesses) > 0.9);
  for (size_t i = 0; i < guesses.size(); ++i) {
    REQUIRE(guesses[i].label == digits.labels[i]);
    REQUIRE((guesses[i].confidence > 0.1 && guesses[i].confidence <= 1));
  }
  // The same images from another place.
  mnist::Digits last{{digits.pixels.end() - 77 * kPixels, digits.pixels.end()},
                     {digits.labels.end() - 77, digits.labels.end()}};
  const DeviceDigits some(last);
  const std::vector<Guess> again = guess(training.model, some.samples(), last.labels);
  for (size_t i = 0; i < again.size(); ++i)
    REQUIRE(again[i].prediction == guesses[kEvaluationBatch + i].prediction);
}

TEST_CASE("the drawn digits are the same in any number, and unlike each other", "[harness]") {
  const mnist::Digits few = mnist::draw(20, 1), many = mnist::draw(200, 1),
                      other = mnist::draw(20, 2);
  REQUIRE(std::equal(few.pixels.begin(), few.pixels.end(), many.pixels.begin()));
  REQUIRE(std::equal(few.labels.begin(), few.labels.end(), many.labels.begin()));
  REQUIRE(few.pixels != other.pixels);
  std::vector<int> counts(kClasses);
  for (const std::uint8_t label : many.labels) ++counts.at(label);
  for (const int count : counts) REQUIRE(count > 5);
  for (size_t i = 0; i < many.count(); ++i) {
    const auto image = many.pixels.begin() + static_cast<std::ptrdiff_t>(i * kPixels);
    const auto ink = std::count_if(image, image + kPixels, [](std::uint8_t p) { return p > 127; });
    REQUIRE((ink > 15 && ink < 300));
  }
}

TEST_CASE("MNIST's files: all there, some missing, not belonging together", "[harness]") {
  const Folder folder;
  const std::string data = folder / "data";
  fs::create_directories(data + "/mnist");
  REQUIRE(mnist::missing_files(data).size() == 4);
  const mnist::Digits train = mnist::draw(12, 1), test = mnist::draw(5, 2);
  write_digits(data, "train", train);
  REQUIRE(mnist::missing_files(data).size() == 2);
  try {
    mnist::read(data);
    FAIL("files are missing");
  } catch (const std::runtime_error& error) {
    REQUIRE(contains_text(error.what(), "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz"));
    REQUIRE(contains_text(error.what(), "scripts/data.py"));
  }
  write_digits(data, "t10k", test);
  REQUIRE(mnist::missing_files(data).empty());
  const mnist::DataSet read = mnist::read(data);
  REQUIRE((read.train.pixels == train.pixels && read.train.labels == train.labels));
  REQUIRE((read.test.pixels == test.pixels && read.test.labels == test.labels));

  write_file(data + "/mnist/t10k-labels-idx1-ubyte",
             big_endian(0x801) + big_endian(4) + "\1\2\3\4");
  try {
    mnist::read(data);
    FAIL("5 images have 4 labels");
  } catch (const std::runtime_error& error) {
    REQUIRE(contains_text(error.what(), "has 5 images, but"));
    REQUIRE(contains_text(error.what(), "has 4 labels"));
  }
  write_file(
      data + "/mnist/t10k-images-idx3-ubyte",
      big_endian(0x803) + big_endian(4) + big_endian(2) + big_endian(3) + std::string(24, 'x'));
  REQUIRE_THROWS_AS(mnist::read(data), std::runtime_error);
}

// ---- The program ------------------------------------------------------------------------------

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  const std::string data = folder / "data";
  fs::create_directories(data + "/mnist");
  require_refusal(run_program_with("--quick --data " + data), "train-images-idx3-ubyte.gz");
  write_digits(data, "train", mnist::draw(80, 1));
  write_digits(data, "t10k", mnist::draw(20, 2));
  const std::string images = data + "/mnist/t10k-images-idx3-ubyte", whole = read_file(images);
  write_file(images, whole.substr(0, whole.size() - 1));
  require_refusal(run_program_with("--quick --data " + data),
                  "t10k-images-idx3-ubyte is truncated");
  write_file(images, whole);
  const std::string with_data = "--quick --data " + data + " ";
  require_refusal(run_program_with(with_data + "--batch 81"), "81 of 80 images");
  write_file(folder / "garbage", "no checkpoint");
  require_refusal(run_program_with(with_data + "--evaluate " + (folder / "garbage")), "garbage");
  require_refusal(run_program_with(with_data + "--resume --checkpoint " + (folder / "garbage")),
                  "garbage");
  require_refusal(run_program_with(with_data + "--size 0x10"), "at least 1");
}

TEST_CASE("the program saves, resumes with the same bits, and evaluates", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common = "--quick --version operations --size 6x200 --batch 32 --seed 3 ";
  const Outcome once = run_program_with(common + "--epochs 3 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("drawn digits"));
  REQUIRE(once.says("epoch 3/3"));
  REQUIRE(run_program_with(common + "--epochs 1 --checkpoint " + parts).exit_code == 0);
  const Outcome rest = run_program_with(common + "--epochs 3 --resume --checkpoint " + parts);
  CAPTURE(rest.text);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(!rest.says("epoch 1/3"));
  if (std::string(gpu::kBackend) == "cpu") REQUIRE(read_file(parts) == read_file(whole));

  const Outcome test = run_program_with("--quick --size 6x200 --evaluate " + whole);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("test accuracy"));
  require_refusal(run_program_with("--quick --size 7x200 --evaluate " + whole), "Linear(784, 6)");
  require_refusal(run_program_with(common + "--epochs 3 --resume --checkpoint " + parts), "epochs");
}

TEST_CASE("Ctrl-C saves the checkpoint and ends with 130", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model";
  // The signal comes when the first epoch has been saved.
  const Outcome outcome =
      run_shell("\"$PROGRAM\" --quick --version graph --epochs 20000 --checkpoint " + path +
                " & training=$!; while kill -0 $training && [ ! -e " + path +
                " ]; do sleep 0.1; done; kill -INT $training; wait $training");
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 130);
  REQUIRE(outcome.says("saved in " + path));
  REQUIRE(outcome.says("--resume"));
  REQUIRE(run_program_with("--quick --evaluate " + path).exit_code == 0);
}

// ---- The real data ----------------------------------------------------------------------------

TEST_CASE("one epoch of MNIST reads 93 of 100 digits", "[.mnist]") {
  const char* variable = std::getenv("COURSE_DATA");
  const std::string folder = variable != nullptr && *variable != '\0' ? variable : "data";
  if (!mnist::missing_files(folder).empty()) {
    std::printf("skipped: no MNIST in %s/mnist (python3 scripts/data.py gets it)\n",
                folder.c_str());
    return;
  }
  const mnist::DataSet data = mnist::read(folder);
  REQUIRE(data.train.count() == 60000);
  REQUIRE(data.test.count() == 10000);
  const DeviceDigits images(data.train), tests(data.test);
  Training training(Settings{}, images.samples());
  const bool all = std::string(gpu::kBackend) != "cpu";  // there the first is by far the fastest
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (!version.launch.obstacle(training).empty() || (!all && &version != kVersions)) continue;
    training.restart();
    train(training, version.launch, training.course().steps_per_epoch());
    REQUIRE(accuracy(guess(training.model, tests.samples(), data.test.labels)) >= 0.93);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// A graph that begins where another training was.
void run_from_a_wrong_place(Training& t, size_t steps) {
  const std::uint64_t wrong = 1;
  t.position.to_device(&wrong, 1);
  run_captured(t, steps, queue_fused);
}

// The optimizer without its counter.
void run_without_counting(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    queue_operations(t);
    optimizers::Hyperparameters hyper;
    hyper.learning_rate = t.settings.learning_rate;
    Schedule schedule;
    schedule.hyper = hyper, schedule.step = i;
    HIP_CHECK(hipStreamSynchronize(t.stream));
    t.schedule.to_device(&schedule, 1);
  }
}

// b2 of the step before: the blocks' copy is not renewed.
void run_with_old_logits(Training& t, size_t steps) {
  const Network network = network_of(t);
  for (size_t i = 0; i < steps; ++i) {
    run_fused(t, 1);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    HIP_CHECK(hipMemset(network.b2.w, 0, kClasses * sizeof(float)));
  }
}

}  // namespace

TEST_CASE("steps from a wrong place, uncounted ones and a forgotten bias are caught", "[harness]") {
  const mnist::Digits digits = mnist::draw(200, 3);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 8;
  Training training(settings, images.samples());
  const size_t steps = training.course().steps_per_epoch();
  const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), steps);
  for (const auto queue : {run_from_a_wrong_place, run_without_counting, run_with_old_logits}) {
    training.restart();
    queue(training, steps);
    HIP_CHECK(hipDeviceSynchronize());
    REQUIRE(!compare_losses(epoch_losses(training), want).ok);
  }
}

namespace {

// A gradient that is off by a factor, in all tensors (-1) or in one.
float g_factor = 1;
int g_tensor = -1;

static __global__ void multiply(float* values, size_t n, float factor) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= factor;
}

void run_with_gradient_off(Training& t, size_t steps) {
  const size_t batch = t.settings.batch;
  for (size_t step = 0; step < steps; ++step) {
    mnist::launch_gather(t.x.data(), t.labels.data(), t.samples, batch,
                         mnist::Shuffled{t.course(), t.schedule.data()}, t.stream);
    const float* logits = t.model.forward(t.x.data(), batch, t.stream);
    losses::cross_entropy(t.loss.data(), t.grad_logits.data(), logits,
                          {t.labels.data(), batch, kClasses}, t.loss_buffers.workspace(), t.stream);
    t.model.backward(t.grad_logits.data(), t.stream);
    const ParameterArena& arena = t.model.arena();
    for (size_t k = 0; k < t.model.tensors().size(); ++k) {
      const sequential::NamedTensor& tensor = t.model.tensors()[k];
      if (g_tensor >= 0 && k != static_cast<size_t>(g_tensor)) continue;
      float* grad = const_cast<float*>(arena.grad_w) + (tensor.w - arena.w);
      const unsigned blocks = static_cast<unsigned>(gpu::ceil_div(tensor.n, size_t{256}));
      LAUNCH_ON(t.stream, multiply, blocks, 256, 0, grad, tensor.n, g_factor);
    }
    LAUNCH_ON(t.stream, mnist::record_loss, 1, 1, 0, t.curve.data(), t.loss.data(), t.course(),
              static_cast<const Schedule*>(t.schedule.data()));
    optimizers::step(t.settings.optimizer, arena, t.schedule.data(), t.stream);
  }
}

}  // namespace

TEST_CASE("a large learning rate makes no right version wrong, and hides no wrong gradient",
          "[harness]") {
  const mnist::Digits digits = mnist::draw(200, 3);
  const DeviceDigits images(digits);
  for (const optimizers::Kind kind : optimizers::kKinds)
    for (const float rate : {1e-3f, 0.03f, 0.2f, 10.0f, 1e3f}) {
      Settings settings;
      settings.hidden = 8, settings.batch = 20, settings.optimizer = kind, settings.seed = 11;
      settings.learning_rate = rate;
      Training training(settings, images.samples());
      const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), 10);
      REQUIRE(!want.losses.empty());
      CAPTURE(optimizers::name(kind), rate);
      for (const auto& version : kVersions)
        if (version.launch.obstacle(training).empty())
          REQUIRE_OK(mnist::check_first_steps(training, version.launch, want));
      const auto check = [&](float factor, int tensor) {
        g_factor = factor, g_tensor = tensor;
        return mnist::check_first_steps(training, {run_with_gradient_off, takes_any}, want);
      };
      REQUIRE_OK(check(1, -1));
      for (const float factor : {1.2f, 1.05f, 0.95f, -1.0f})
        for (int tensor = -1; tensor < 4; ++tensor) {
          CAPTURE(factor, tensor);
          REQUIRE_FALSE(check(factor, tensor).ok);
        }
    }
}

TEST_CASE("a version whose first steps are wrong is not trained, and writes no checkpoint",
          "[harness]") {
  const Folder folder;
  const std::string path = folder / "model";
  write_file(path, "an older model");
  const mnist::Data data{{mnist::draw(100, 3), mnist::draw(20, 4)}, "drawn digits"};
  const DeviceDigits images(data.digits.train);
  Settings settings;
  settings.hidden = 8, settings.batch = 20;
  Training training(settings, images.samples());
  const Trajectory want = trajectory_cpu(settings, data.digits.train, parameters_of(training), 5);
  constexpr Version<Launch> wrong[] = {{"wrong", {run_with_gradient_off, takes_any}, "is wrong"}};
  Options options;
  options.training.epochs = 1, options.training.checkpoint = path;
  const auto run = [&](float factor) {
    g_factor = factor, g_tensor = -1;
    Report report({"5.8", "train_mnist", "", {}, {}}, options, describe_device());
    mnist::run_versions(training, wrong, wrong[0], want, data, options, report,
                        [](double) { return Work{}; });
    return report.finish();
  };
  REQUIRE(run(1.05f) == 1);
  REQUIRE(read_file(path) == "an older model");
  if (!kTimes) return;
  REQUIRE(run(1) == 0);
  REQUIRE(read_file(path) != "an older model");
}
