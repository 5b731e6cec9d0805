#include "stage8_framework/04_modules/problem.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "common/device_buffer.h"
#include "common/program.h"
#include "common/sizes.h"
#include "common/training.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/08_train_mnist/reference.h"
#include "stage5_training/08_train_mnist/train_mnist.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"
#include "stage7_transformer/07_train_shakespeare/program.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/tape.h"
#include "stage8_framework/04_modules/models.h"
#include "stage8_framework/04_modules/precision.h"

namespace modules {

namespace {

using framework::Layout;
using framework::NamedTensor;
using framework::Shape;
using framework::StateDict;

// Where the sizes are in Options::sizes. mnist::find_data reads the second one.
enum SizeNumber { kEpochs, kImages, kSteps, kWidth };

std::int64_t number(size_t n) { return static_cast<std::int64_t>(n); }

// ---- Digits -------------------------------------------------------------------------------------

// Pixels as 5.8's kernels make floats of them (count, 784), and labels (count).
std::vector<Tensor> columns_of(const mnist::Digits& digits) {
  Device& host = framework::device("reference");
  std::vector<float> pixels(digits.pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = mnist::kPixelScale * static_cast<float>(digits.pixels[i]);
  const std::vector<std::int32_t> labels(digits.labels.begin(), digits.labels.end());
  const std::int64_t count = number(digits.count());
  return {Tensor::from_host(host, pixels, {count, number(mnist::kPixels)}),
          Tensor::from_host(host, labels, {count})};
}

// Of 5.8's and 6.4's trainings: `promises` of what is read after so many images.
template <size_t kCount>
Training digits_training(const std::string& network, const std::string& file,
                         const mnist::Data& data, const mnist::Training& like,
                         const train_toy::Twins& drift,
                         std::function<std::unique_ptr<Module>(Device&)> make,
                         const mnist::Promise (&promises)[kCount], const Options& options,
                         Device& device) {
  const mnist::Digits& train = data.digits.train;
  const std::int64_t batch = number(like.batch);
  const std::vector<Tensor> host = columns_of(train);
  const double rate = static_cast<double>(like.settings.hyper.learning_rate);
  Training training{
      network + "   " + data.name + " (" + std::to_string(train.count()) +
          " images)   adam lr=" + mnist::text("%g", rate) + " batch=" + std::to_string(batch) +
          " epochs=" + std::to_string(options.sizes[kEpochs]),
      file,
      0,
      beginning_with(state_of(like.model.tensors(), like.parameters()), std::move(make)),
      {device, host, uploaded(host, device), batch,
       framework::shuffled(number(train.count()), batch, like.settings.seed), cross_entropy_of,
       rule_of(like.settings), [rate](std::uint64_t) { return rate; }},
      options.sizes[kEpochs] * like.steps_per_epoch(),
      {},
      {}};
  HostTimer timer;
  training.want = mnist::trajectory_cpu(
      like, train, std::min(mnist::kCheckedSteps, like.steps_per_epoch()), drift);
  training.reference_ms = timer.ms();
  double least = 0;
  for (const mnist::Promise& promise : promises)
    if (data.name == "MNIST" && train.count() * options.sizes[kEpochs] >= promise.images)
      least = promise.accuracy;
  const std::vector<Tensor> tests = uploaded(columns_of(data.digits.test), device);
  training.judge = [tests, least](Module& model, const std::vector<float>&) {
    const double share = accuracy(model, tests);
    const std::string text = mnist::text("test %.2f%%", 100 * share);
    return Training::Result{
        text, share < least ? text + mnist::text(", promised %.2f%%", 100 * least) : ""};
  };
  return training;
}

// ---- Text ---------------------------------------------------------------------------------------

// All pieces of T characters, and of those that come next: views of one tensor (n - T, T).
std::vector<Tensor> pieces_of(const std::vector<std::uint8_t>& text, std::int64_t T,
                              Device& device) {
  const std::vector<std::int32_t> characters(text.begin(), text.end());
  const std::int64_t n = number(text.size());
  const Tensor all = Tensor::from_host(device, characters, {n});
  return {all.view(Layout{{n - T, T}, {1, 1}, 0}), all.view(Layout{{n - T, T}, {1, 1}, 1})};
}

// The mean loss of the text, piece behind piece; what does not fill a batch of them is left out.
double validation_loss(Module& model, const std::vector<Tensor>& pieces, std::int64_t batch) {
  const framework::NoGrad guard;
  const std::int64_t T = pieces[0].shape()[1], count = (pieces[0].shape()[0] - 1) / T + 1;
  double sum = 0, batches = 0;
  for (std::int64_t first = 0; first + batch <= count; first += batch, ++batches) {
    std::vector<Tensor> columns;
    for (const Tensor& column : pieces)
      columns.push_back(column.slice(0, first * T, (first + batch - 1) * T + 1, T).contiguous());
    sum += static_cast<double>(cross_entropy_of(model, columns).to_host<float>()[0]);
  }
  return sum / batches;
}

constexpr size_t kMeanOf = 50;  // last steps, whose losses are averaged

Training text_training(const train_shakespeare::Settings& settings,
                       const train_shakespeare::Data& data, Device& device) {
  const train_shakespeare::ModelSizes& s = settings.sizes;
  const shakespeare::Corpus& corpus = data.corpus;
  const std::int64_t T = number(s.context), batch = number(s.batch);
  if (corpus.train.size() <= s.context || corpus.validation.size() <= s.context)
    throw UsageError("a text of " + std::to_string(corpus.train.size()) +
                     " characters is too short for pieces of " + std::to_string(T));
  train_shakespeare::Model like(s, corpus.vocabulary.size());
  like.initialize(settings.seed);
  const auto parameters = train_shakespeare::parameters_of(like);
  const framework::TransformerSizes sizes{number(s.layers), number(s.heads), number(s.width), T,
                                          number(corpus.vocabulary.size())};
  const std::uint64_t places = corpus.train.size() - s.context, seed = settings.seed;
  Training training{
      "layers=" + std::to_string(s.layers) + " heads=" + std::to_string(s.heads) +
          " width=" + std::to_string(s.width) + " context=" + std::to_string(T) +
          " batch=" + std::to_string(batch) + " (" + std::to_string(like.parameter_count()) +
          " parameters)   " + data.name + "   " + optimizers::name(settings.kind) +
          " lr=" + mnist::text("%g", static_cast<double>(settings.hyper.learning_rate)) +
          " steps=" + std::to_string(settings.steps),
      "characters.safetensors",
      0,
      beginning_with(
          state_of(like.tensors(), train_toy::flat(parameters)),
          [sizes](Device& on) { return std::make_unique<framework::CharacterModel>(on, sizes); }),
      {device, pieces_of(corpus.train, T, framework::device("reference")),
       pieces_of(corpus.train, T, device), batch,
       [=](std::uint64_t step, std::int32_t* rows) {
         for (size_t b = 0; b < s.batch; ++b)
           rows[b] = static_cast<std::int32_t>(
               train_shakespeare::Drawn::place(seed, step, s.batch, b, places));
       },
       cross_entropy_of, rule_of(settings),
       [settings](std::uint64_t done) { return train_shakespeare::learning_rate(settings, done); }},
      settings.steps,
      {},
      {}};
  HostTimer timer;
  training.want =
      train_shakespeare::trajectory_cpu(settings, corpus.train, parameters,
                                        std::min(train_shakespeare::kCheckedSteps, settings.steps));
  training.reference_ms = timer.ms();
  double most = 0;
  if (data.name == train_shakespeare::kRealText &&
      s.width >= train_shakespeare::kConfigs[0].sizes.width)
    for (const train_shakespeare::Promise& promise : train_shakespeare::kPromises)
      if (settings.steps >= promise.steps) most = promise.loss;
  const std::vector<Tensor> unseen = pieces_of(corpus.validation, T, device);
  training.judge = [=](Module& model, const std::vector<float>& losses) {
    const double validation = validation_loss(model, unseen, batch);
    std::string text = mnist::text("validation %.3f", validation);
    bool is_kept = most == 0 || validation <= most;
    std::vector<double> reached{validation};
    if (!losses.empty()) {
      const size_t first = losses.size() - std::min(losses.size(), kMeanOf);
      const double loss = training::mean_of(losses, first, losses.size());
      text = mnist::text("loss %.3f, ", loss) + text;
      is_kept = is_kept && (most == 0 || loss <= most);
      reached.push_back(loss);
    }
    return Training::Result{text, is_kept ? "" : text + mnist::text(", promised %.3f", most),
                            reached};
  };
  return training;
}

// The small model of 7.7, or one whose heads, context and batch are as many times smaller or larger
// as its width is.
train_shakespeare::Settings text_settings(const Options& options) {
  train_shakespeare::Settings settings;
  const train_shakespeare::ModelSizes& small = train_shakespeare::kConfigs[0].sizes;
  const size_t width = options.sizes[kWidth];
  const auto scaled = [&](size_t size) { return std::max<size_t>(size * width / small.width, 1); };
  settings.sizes = {small.layers, scaled(small.heads), width, scaled(small.context),
                    scaled(small.batch)};
  settings.steps = options.sizes[kSteps];
  settings.seed = options.seed;
  training::load_or_refuse([&] {
    train_shakespeare::check(settings.sizes);
    return 0;
  });
  return settings;
}

}  // namespace

StateDict state_of(const std::vector<sequential::NamedTensor>& tensors,
                   const std::vector<float>& values) {
  StateDict state;
  const float* next = values.data();
  for (const sequential::NamedTensor& tensor : tensors) {
    Shape shape;
    for (const size_t extent : tensor.shape) shape.insert(shape.rank(), number(extent));
    state[tensor.name] =
        Tensor::from_host(framework::device("reference"), next, shape, framework::Dtype::f32);
    next += tensor.n;
  }
  return state;
}

std::function<std::unique_ptr<Module>(Device&)> beginning_with(
    StateDict state, std::function<std::unique_ptr<Module>(Device&)> make) {
  return [state = std::move(state), make = std::move(make)](Device& device) {
    std::unique_ptr<Module> model = make(device);
    model->load_state_dict(state);
    return model;
  };
}

std::vector<Tensor> uploaded(const std::vector<Tensor>& host, Device& device) {
  std::vector<Tensor> columns;
  for (const Tensor& column : host) columns.push_back(framework::to(column, device));
  return columns;
}

Tensor cross_entropy_of(Module& model, const std::vector<Tensor>& columns) {
  return framework::cross_entropy(model(columns[0]), columns[1]);
}

double accuracy(Module& model, const std::vector<Tensor>& columns) {
  const framework::NoGrad guard;
  const std::vector<std::int32_t> labels = columns[1].to_host<std::int32_t>();
  const std::int64_t count = number(labels.size()), batch = number(mnist::kEvaluationBatch);
  size_t right = 0;
  for (std::int64_t first = 0; first < count; first += batch) {
    const Tensor samples = columns[0].slice(0, first, std::min(first + batch, count));
    const std::vector<std::int32_t> read = argmax(model(samples)).to_host<std::int32_t>();
    for (size_t i = 0; i < read.size(); ++i)
      right += read[i] == labels[static_cast<size_t>(first) + i];
  }
  return static_cast<double>(right) / static_cast<double>(count);
}

framework::OptimizerRule rule_of(const train_toy::Settings& settings) {
  const auto& h = settings.hyper;
  framework::OptimizerRule rule{static_cast<int>(settings.kind)};
  rule.momentum = h.momentum, rule.beta1 = h.beta1, rule.beta2 = h.beta2;
  rule.epsilon = h.epsilon, rule.weight_decay = h.weight_decay;
  return rule;
}

std::vector<Size> sizes() {
  return {{"epochs", 10, 1, 1},
          {"images", 60000, 640, 128},
          {"steps", 1000, 10, 3},
          {"width", 64, 32, 16}};
}

namespace {

// What a training keeps of each of its steps: the loss, and of those of 8.5 the learning rate.
constexpr double kNumbersOfStep = 2;

// What the character model takes, in numbers: on the device float, on the host double.
struct TextMemory {
  double device, host;
};
TextMemory text_memory(const Options& options) {
  const train_shakespeare::ModelSizes s = text_settings(options).sizes;
  const double width = static_cast<double>(s.width), context = static_cast<double>(s.context);
  const double layers = static_cast<double>(s.layers), heads = static_cast<double>(s.heads);
  const double parameters = 12 * layers * width * width;
  const double of_batch = 40 * layers * static_cast<double>(s.batch) * context * width;
  const double kept = kNumbersOfStep * static_cast<double>(options.sizes[kSteps]);
  // The reference keeps a piece's activations and scores.
  return {4 * parameters + of_batch + kept,
          4 * parameters + kept + layers * context * (40 * width + 4 * heads * context)};
}

}  // namespace

void require_text_memory(const Options& options) {
  const TextMemory text = text_memory(options);
  require_device_memory(sizeof(float) * text.device);
  sizes::require_host_memory(sizeof(double) * text.host);
}

void require_memory(const Options& options) {
  const TextMemory text = text_memory(options);
  const double images = static_cast<double>(options.sizes[kImages]) * mnist::kPixels;
  const size_t steps_of_epoch = options.sizes[kImages] / mnist::Settings().batch;
  const double kept = kNumbersOfStep * static_cast<double>(steps_of_epoch) *
                      static_cast<double>(options.sizes[kEpochs]);
  require_device_memory(sizeof(float) * (text.device + 2 * images + kept));
  sizes::require_host_memory(sizeof(double) * (text.host + images + kept));
}

Training character_training(const Options& options, Device& device, Report& report) {
  const train_shakespeare::Settings settings = text_settings(options);
  const train_shakespeare::Data data = train_shakespeare::find_data(options, report);
  return text_training(settings, data, device);
}

std::vector<Training> trainings(const Options& options, Device& device, Report& report) {
  if (wants_bf16(options)) return {in_bf16(character_training(options, device, report))};
  const train_shakespeare::Settings text = text_settings(options);
  const mnist::Data digits = mnist::find_data(options, report);
  const train_shakespeare::Data data = train_shakespeare::find_data(options, report);
  if (digits.digits.train.count() < mnist::Settings().batch)
    throw UsageError(std::to_string(digits.digits.train.count()) +
                     " images do not fill a batch of " + std::to_string(mnist::Settings().batch));
  const mnist::DeviceDigits images(digits.digits.train);

  std::vector<Training> all;
  mnist::Settings settings;
  settings.seed = options.seed;
  {
    const train_mnist::Training like(settings, images.samples());
    const auto hidden = number(settings.hidden);
    all.push_back(digits_training(
        "784-" + std::to_string(hidden) + "-10", "perceptron.safetensors", digits, like,
        train_toy::Twins(10),
        [hidden](Device& on) { return framework::make_perceptron(on, hidden); },
        train_mnist::kPromises, options, device));
  }
  settings.hidden = train_cnn::kHidden;
  {
    const train_cnn::Training like(settings, images.samples());
    const auto hidden = number(settings.hidden);
    all.push_back(digits_training(
        "8C3-P2-16C3-P2-" + std::to_string(hidden) + "-10", "cnn.safetensors", digits, like,
        train_cnn::kDrift, [hidden](Device& on) { return framework::make_cnn(on, hidden); },
        train_cnn::kPromises, options, device));
  }
  all.push_back(text_training(text, data, device));
  return all;
}

Comparison check(const Training& training, Launch launch) {
  const std::unique_ptr<Module> model = training.make(training.task.device);
  const std::unique_ptr<Module> one_step = training.make(training.task.device);
  launch(*one_step, training.task, 1);
  // compare_gradient() reads a first moment on the program's own device: of momentum it is the
  // gradient, and parameters are not looked at.
  const std::vector<float> parameters(training.want.gradient.size());
  std::vector<gpu::DeviceBuffer<float>> gradients;
  std::vector<sequential::NamedTensor> tensors;
  for (const NamedTensor& parameter : one_step->parameters()) {
    const Tensor grad = parameter.tensor->grad();
    const std::vector<float> values =
        grad.is_defined()
            ? grad.to_host<float>()
            : std::vector<float>(static_cast<size_t>(parameter.tensor->elements()), std::nanf(""));
    gradients.emplace_back(values);
    tensors.push_back(
        {parameter.name, {}, nullptr, nullptr, gradients.back().data(), nullptr, values.size()});
  }
  const Comparison gradient = train_toy::compare_gradient(tensors, optimizers::Kind::Momentum, {},
                                                          parameters, training.want);
  std::vector<float> losses = launch(*model, training.task, training.want.losses.size());
  losses.resize(training.want.losses.size(), std::nanf(""));  // of those that are missing
  return together({gradient, train_toy::compare_losses(losses, training.want)});
}

}  // namespace modules
