// 7.7  train_shakespeare: a transformer learns to write, one character after the other.
//
//   characters -> token + position -> block -> ... -> block -> norm -> head -> logits
//
// Behind each character it says how probable every character is as the next one, and is told which
// one it was: a text of T + 1 characters is T examples at once, since no block lets a character see
// those that follow. What it has learnt it can then write down: take the logits behind the last
// character, draw the next one, go on.
//
// Nothing in it is new: embedding, normalization, attention and blocks are this stage's, the loss
// is step 3.3's, the optimizer 5.4's. A step of the small model is 2.5 thousand million operations
// in about a hundred launches, of which none fills a large GPU: what counts is how long the chain
// of launches is in which each waits for the one before, and who launches it. That is the ladder.
//
//   operations   a kernel per operation, launched by the host one after the other
//   fused        the blocks' fused version; what the chain does not need runs beside it
//   graph        the same kernels, replayed from a graph
//
//   forward    embed - block 0 - block 1 - norm - head - loss -+
//   backward   embed - block 0 - block 1 - norm - head --------+      the chain, and beside it
//                   \ weights  \ weights        \ weights       \ mean, curve, schedule
//
// The text stays on the device, a byte per character. No kernel is told which step it is: the
// number of steps is in the optimizer's Schedule in device memory, from which follow the pieces of
// the text that a step reads (common/random.h) and its learning rate, one of an array. So a
// captured step can be replayed forever.
//
// As in GPT-2 there are learned positions, biases everywhere but in the head, which shares no
// weights with the embedding, and no dropout. All versions give the same bits on every run of one
// device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/graph.h"
#include "common/program.h"
#include "common/random.h"
#include "common/safetensors.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_reference.h"

namespace train_shakespeare {

using dense_backward::Branches;
using device_matrix::DeviceBuffer;
using gpu::Graph;
using optimizers::Schedule;
using sequential::NamedTensor;
using shakespeare::Corpus;
using shakespeare::Sizes;
using shakespeare::Vocabulary;
using train_toy::compare_losses;
using train_toy::Trajectory;
using transformer_block::Shape;

// ---- Settings ---------------------------------------------------------------------------------

// What --config names: a model, and how it is trained unless the command line says otherwise.
struct Config {
  const char* name;
  Sizes sizes;
  size_t steps;
  double learning_rate;
};
inline constexpr Config kConfigs[] = {
    {"small", {2, 4, 64, 128, 32}, 1000, 3e-3},
    {"medium", {6, 6, 384, 256, 64}, 200, 1e-3},
};

struct Settings {
  Sizes sizes = kConfigs[0].sizes;
  size_t steps = kConfigs[0].steps;  // of the whole training, which the learning rate depends on
  float learning_rate = static_cast<float>(kConfigs[0].learning_rate);  // the highest
  optimizers::Kind optimizer = optimizers::Kind::AdamW;
  std::uint64_t seed = 1;  // of the first weights, and of the pieces of text
};

inline constexpr size_t kMostWarmUp = 100;  // steps
inline constexpr double kLastRate = 0.1;    // of the highest
inline constexpr double kDeviation = 0.02;  // of the first weights
inline constexpr size_t kGraphSteps = 10;   // in a graph
inline constexpr std::uint32_t kPieces =
    0x7E87u;  // the sequence that pieces of text are drawn from

// Throws std::invalid_argument, one line, where there is no such model.
inline void check(const Sizes& sizes) {
  if (sizes.layers == 0) throw std::invalid_argument("a model has at least one layer");
  transformer_block::check({sizes.batch, sizes.context, sizes.width, sizes.heads});
}

// The learning rate of step t + 1: rises for a tenth of the steps, while m and v fill, then falls
// along half a cosine (Loshchilov and Hutter: SGDR, arXiv:1608.03983).
inline double learning_rate(const Settings& settings, std::uint64_t t) {
  const double steps = static_cast<double>(settings.steps), step = static_cast<double>(t);
  const double warm = static_cast<double>(std::min(settings.steps / 10, kMostWarmUp));
  const double highest = static_cast<double>(settings.learning_rate);
  if (step < warm) return highest * (step + 1) / warm;
  const double done = std::min((step - warm) / std::max(steps - warm, 1.0), 1.0);
  return highest * (kLastRate + (1 - kLastRate) * (1 + std::cos(std::acos(-1.0) * done)) / 2);
}

// What the optimizer does in each step, all of them in an array that the device reads.
inline std::vector<Schedule> schedules(const Settings& settings) {
  std::vector<Schedule> list(settings.steps);
  for (std::uint64_t t = 0; t < settings.steps; ++t) {
    list[t].hyper.learning_rate = static_cast<float>(learning_rate(settings, t));
    list[t].step = t;
    optimizers::advance(list[t]);
  }
  return list;
}

// ---- The model --------------------------------------------------------------------------------

// out[i] = deviation * bell(seed, stream, i)    out (n).
// Fixes : uniform numbers are what other steps begin with; published models begin with normal ones.
// Idea  : every number follows from its place alone, so that nothing depends on the grid.
// Thread: t owns the elements t, t + T, ...
// Costs : 4 n bytes of global memory.
static __global__ void fill_bell(float* out, size_t n, float deviation, std::uint64_t seed,
                                 std::uint32_t stream) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = deviation * random_numbers::bell(seed, stream, i);
}

// All tensors of a model, or their gradients.
template <class Pointer>
struct Tensors {
  Pointer token, position;  // (V, C), (context, C)
  std::vector<transformer_block::Tensors<Pointer>> blocks;
  Pointer norm_gain, norm_bias;  // (C), (C)
  Pointer head;                  // (V, C)
};

// Parameters, gradients and the optimizer's states, as in step 5.5's Sequential: four arrays of the
// same length, tensor behind tensor, each at a multiple of 16 bytes, with zeros in the gaps.
class Model {
 public:
  // Throws std::invalid_argument where there is no such model. All parameters are 0.
  Model(const Sizes& sizes, size_t vocabulary);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // "Transformer(layers 2, heads 4, width 64, context 128, vocabulary 65)"
  std::string description() const;
  size_t parameter_count() const;
  const Sizes& sizes() const { return sizes_; }
  size_t vocabulary() const { return vocabulary_; }

  // Begins a training, with the same bits on every backend: matrices with normal numbers of
  // deviation 0.02, those that end a residual box with that over sqrt(2 layers), so that the sum
  // over all boxes stays of one size (GPT-2); gains with 1, biases with 0. Waits for the device.
  void initialize(std::uint64_t seed);

  const optimizers::ParameterArena& arena() const { return arena_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const Tensors<const float*>& parameters() const { return parameters_; }
  const Tensors<float*>& gradients() const { return gradients_; }

 private:
  template <class Pointer, class Array>
  Tensors<Pointer> pointers(Array array) const;

  Sizes sizes_;
  size_t vocabulary_;
  std::vector<NamedTensor> tensors_;
  DeviceBuffer<float> memory_;
  optimizers::ParameterArena arena_;
  Tensors<const float*> parameters_;
  Tensors<float*> gradients_;
};

inline Model::Model(const Sizes& sizes, size_t vocabulary)
    : sizes_(sizes), vocabulary_(vocabulary) {
  check(sizes);
  size_t end = 0;
  std::vector<size_t> offsets;
  const auto add_tensor = [&](const std::string& name, const std::vector<size_t>& shape) {
    const size_t n = sequential::checked_product(shape, name);
    offsets.push_back(end);
    end += gpu::ceil_div(n, 4) * 4;
    sequential::check_addressable(end <= sequential::kMostFloats, "this model");
    tensors_.push_back({name, shape, nullptr, nullptr, nullptr, nullptr, n});
  };
  const size_t C = sizes.width;
  add_tensor("token.weight", {vocabulary, C});
  add_tensor("position.weight", {sizes.context, C});
  for (size_t layer = 0; layer < sizes.layers; ++layer)
    for (const auto& [name, shape] : transformer_block::parameter_shapes(C))
      add_tensor(std::to_string(layer) + "." + name, shape);
  add_tensor("norm.weight", {C});
  add_tensor("norm.bias", {C});
  add_tensor("head.weight", {vocabulary, C});

  memory_ = DeviceBuffer<float>(4 * end);
  HIP_CHECK(hipMemset(memory_.data(), 0, memory_.bytes()));
  float* const begin = memory_.data();
  arena_ = {begin, begin + end, begin + 2 * end, begin + 3 * end, end};
  for (size_t k = 0; k < tensors_.size(); ++k) {
    NamedTensor& tensor = tensors_[k];
    tensor.w = begin + offsets[k], tensor.grad = tensor.w + end;
    tensor.m = tensor.w + 2 * end, tensor.v = tensor.w + 3 * end;
  }
  parameters_ = pointers<const float*>([](const NamedTensor& tensor) { return tensor.w; });
  gradients_ = pointers<float*>([](const NamedTensor& tensor) { return tensor.grad; });
  HIP_CHECK(hipDeviceSynchronize());
}

template <class Pointer, class Array>
Tensors<Pointer> Model::pointers(Array array) const {
  std::vector<Pointer> list;
  for (const NamedTensor& tensor : tensors_) list.push_back(array(tensor));
  Tensors<Pointer> result{list[0], list[1], {}, nullptr, nullptr, nullptr};
  const Pointer* next = list.data() + 2;
  for (size_t layer = 0; layer < sizes_.layers; ++layer, next += transformer_block::kTensors)
    result.blocks.push_back(transformer_block::tensors_of<Pointer>(next));
  result.norm_gain = next[0], result.norm_bias = next[1], result.head = next[2];
  return result;
}

inline std::string Model::description() const {
  return "Transformer(layers " + std::to_string(sizes_.layers) + ", heads " +
         std::to_string(sizes_.heads) + ", width " + std::to_string(sizes_.width) + ", context " +
         std::to_string(sizes_.context) + ", vocabulary " + std::to_string(vocabulary_) + ")";
}

inline size_t Model::parameter_count() const {
  size_t count = 0;
  for (const NamedTensor& tensor : tensors_) count += tensor.n;
  return count;
}

// What a tensor begins with: a gain with 1, a bias with 0, a matrix with numbers of this deviation.
inline double first_deviation(const NamedTensor& tensor, size_t layers) {
  const auto ends_with = [&](const std::string& ending) {
    return tensor.name.size() > ending.size() &&
           tensor.name.compare(tensor.name.size() - ending.size(), ending.size(), ending) == 0;
  };
  if (tensor.shape.size() != 2) return 0;
  const bool ends_box = ends_with(".proj.weight") || ends_with(".out.weight");
  return ends_box ? kDeviation / std::sqrt(2 * static_cast<double>(layers)) : kDeviation;
}

inline void Model::initialize(std::uint64_t seed) {
  constexpr unsigned kBlock = 256;
  HIP_CHECK(hipMemset(memory_.data(), 0, memory_.bytes()));
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const NamedTensor& tensor = tensors_[k];
    const float deviation = static_cast<float>(first_deviation(tensor, sizes_.layers));
    const bool is_gain = tensor.shape.size() == 1 &&
                         tensor.name.find("norm") != std::string::npos &&
                         tensor.name.find(".weight") != std::string::npos;
    if (is_gain) device_matrix::launch_fill_flat(tensor.w, 1, tensor.n, 1.0f);
    if (deviation > 0)
      LAUNCH(fill_bell, vector_add::full_grid(tensor.n), kBlock, 0, tensor.w, tensor.n, deviation,
             seed, static_cast<std::uint32_t>(k));
  }
  HIP_CHECK(hipDeviceSynchronize());  // a stream that does not wait for the default one comes next
}

// ---- Data -------------------------------------------------------------------------------------

// A text in device memory, a token per byte.
struct Text {
  const std::uint8_t* tokens;
  size_t length;
};

// Where piece b of a batch begins: anywhere, drawn for this step; or one behind the other.
struct Drawn {
  const Schedule* schedule;
  std::uint64_t seed;
  size_t places, batch;
  __host__ __device__ static size_t place(std::uint64_t seed, std::uint64_t step, size_t batch,
                                          size_t b, size_t places) {
    return random_numbers::word(seed, kPieces, step * batch + b) % places;
  }
  __device__ size_t operator()(size_t b) const {
    return place(seed, schedule->step, batch, b, places);
  }
};
struct InOrder {
  size_t first, length;
  __device__ size_t operator()(size_t b) const { return first + b * length; }
};

// tokens[b,t] = text[begin(b) + t], labels[b,t] = text[begin(b) + t + 1]    both (gridDim.x, T).
// Fixes : a host that draws pieces of the text has to copy every batch.
// Idea  : where a piece begins follows from the number of the step, which the device knows.
// Thread: thread t of block b owns the places t, t + blockDim.x, ... of piece b.
// Costs : 9 bytes of global memory per token; every thread draws the same number.
template <class Begin>
static __global__ void gather(std::int32_t* tokens, int* labels, Text text, size_t T, Begin begin) {
  // exercise: the tokens of this block's piece, and the one behind each (about 5 lines)
  const std::uint8_t* piece = text.tokens + begin(blockIdx.x);
  for (size_t t = threadIdx.x; t < T; t += blockDim.x) {
    tokens[blockIdx.x * T + t] = piece[t];
    labels[blockIdx.x * T + t] = piece[t + 1];
  }
  // end exercise
}

template <class Begin>
inline void launch_gather(std::int32_t* tokens, int* labels, const Text& text, size_t batch,
                          size_t T, const Begin& begin, hipStream_t stream = nullptr) {
  constexpr unsigned kBlock = 128;
  LAUNCH_ON(stream, (gather<Begin>), static_cast<unsigned>(batch), kBlock, 0, tokens, labels, text,
            T, begin);
}

// curve[step] = *loss, and the optimizer's schedule becomes that of the step.
// Fixes : a host that reads every loss, or sets every learning rate, waits for every step.
// Idea  : the device writes the curve, and reads the rate of the step from an array.
// Thread: the only one does it all.
// Costs : one launch of one thread per step, which only the optimizer waits for.
static __global__ void begin_update(float* curve, const float* loss, Schedule* schedule,
                                    const Schedule* schedules) {
  const std::uint64_t step = schedule->step;
  curve[step] = *loss;
  *schedule = schedules[step];
}

// ---- The memory of a batch --------------------------------------------------------------------

// What forward and backward passes of up to sizes.batch pieces work in. Two blocks that are
// neighbours have different workspaces: the weights' gradients of one may be on their way while the
// chain is in the other.
struct Pass {
  Pass(const Sizes& wanted, size_t vocabulary, const transformer_block::Mode& how)
      : sizes(wanted),
        mode(how),
        tokens(rows()),
        labels(rows()),
        statistics(2 * rows()),
        norm(rows() * wanted.width),
        logits(rows() * vocabulary),
        grad_logits(rows() * vocabulary),
        loss(1),
        losses(rows()),
        workspaces{transformer_block::Workspace(shape(wanted.batch)),
                   transformer_block::Workspace(shape(wanted.batch))},
        norm_workspace(rows(), wanted.width),
        embedding_workspace(embedding_shape(wanted.batch, vocabulary)),
        head_workspace(rows(), wanted.width, vocabulary),
        head_sums(transformer_block::sums_of({head_task({}, vocabulary)}, rows())) {
    for (size_t layer = 0; layer < wanted.layers; ++layer)
      kept.push_back(std::make_unique<transformer_block::Kept>(shape(wanted.batch), mode));
    for (size_t i = 0; i <= wanted.layers; ++i) {
      x.emplace_back(rows() * wanted.width);
      grad_x.emplace_back(rows() * wanted.width);
    }
  }

  size_t rows() const { return sizes.batch * sizes.context; }
  Shape shape(size_t batch) const { return {batch, sizes.context, sizes.width, sizes.heads}; }
  embedding::Shape embedding_shape(size_t batch, size_t vocabulary) const {
    return {batch, sizes.context, sizes.width, vocabulary, sizes.context};
  }
  transformer_block::WeightTask head_task(const Tensors<float*>& gradients,
                                          size_t vocabulary) const {
    return {grad_logits.data(), norm.data(), vocabulary, sizes.width, gradients.head, nullptr};
  }
  size_t bytes() const {
    size_t total = logits.bytes() + grad_logits.bytes() + norm.bytes();
    for (const auto& block : kept) total += block->bytes();
    for (const auto& buffer : x) total += 2 * buffer.bytes();
    return total;
  }

  Sizes sizes;
  transformer_block::Mode mode;
  DeviceBuffer<std::int32_t> tokens;
  DeviceBuffer<int> labels;
  std::vector<DeviceBuffer<float>> x, grad_x;  // into each block, and out of the last
  std::vector<std::unique_ptr<transformer_block::Kept>> kept;
  DeviceBuffer<float> statistics, norm, logits, grad_logits, loss;
  losses::Buffers losses;
  transformer_block::Workspace workspaces[2];
  layernorm_backward::Workspace norm_workspace;
  embedding::Workspace embedding_workspace;
  dense_backward::Workspace head_workspace;
  DeviceBuffer<float> head_sums;
  // What runs beside the chain: the weights of even blocks, of odd ones, and what follows the loss.
  Branches beside[3];
};

// logits (rows, V) = norm w^T, and the gradient of norm.
inline gemm::Product head_product(float* logits, const float* norm, const float* w, size_t rows,
                                  size_t width, size_t vocabulary) {
  gemm::Product p;
  p.layout = gemm::Layout::NT, p.M = rows, p.N = vocabulary, p.K = width;
  p.a = norm, p.lda = width, p.b = w, p.ldb = width, p.c = logits, p.ldc = vocabulary;
  return p;
}

// The logits (batch, context, V) of pass.tokens, of which there are `batch` pieces.
inline void forward(const Model& model, Pass& pass, size_t batch, hipStream_t stream) {
  const size_t C = pass.sizes.width, rows = batch * pass.sizes.context;
  const Tensors<const float*>& p = model.parameters();
  float *mean = pass.statistics.data(), *rstd = mean + rows;
  // exercise: embedding, blocks, normalization, head (about 8 lines)
  embedding::forward(pass.x[0].data(), pass.tokens.data(), p.token, p.position,
                     pass.embedding_shape(batch, model.vocabulary()), stream);
  for (size_t layer = 0; layer < pass.sizes.layers; ++layer)
    transformer_block::forward(pass.x[layer + 1].data(), pass.x[layer].data(), p.blocks[layer],
                               pass.shape(batch), *pass.kept[layer], pass.mode, stream);
  layernorm::forward(pass.norm.data(), mean, rstd, pass.x.back().data(), p.norm_gain, p.norm_bias,
                     rows, C, transformer_block::kEpsilon, stream);
  gemm::best(
      head_product(pass.logits.data(), pass.norm.data(), p.head, rows, C, model.vocabulary()),
      stream);
  // end exercise
}

// ---- A training -------------------------------------------------------------------------------

// What the steps of every version work on, all of it in device memory. One host thread uses it.
struct Training {
  // Throws std::invalid_argument where there is no such model, or the text is too short for it.
  Training(const Settings& wanted, const Corpus& corpus);
  ~Training() { static_cast<void>(hipStreamDestroy(stream)); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // New weights from the seed, and no step behind them.
  void restart();
  // Goes on from a checkpoint. Throws as sequential::load does, and std::runtime_error where the
  // file is of a training with other settings or of another text; then nothing has changed.
  void resume(const std::string& path);
  void save(const std::string& path) const;

  Text train() const { return {train_text.data(), train_text.size()}; }
  Text validation() const { return {validation_text.data(), validation_text.size()}; }
  Drawn drawn() const {
    return {schedule.data(), settings.seed, train_text.size() - settings.sizes.context,
            settings.sizes.batch};
  }

  Settings settings;
  Vocabulary vocabulary;
  Model model;
  DeviceBuffer<std::uint8_t> train_text, validation_text;
  DeviceBuffer<Schedule> schedule, schedules;  // of the step that begins, and of all
  DeviceBuffer<float> curve;                   // the losses of all steps, NaN where none was run
  hipStream_t stream = nullptr;
  std::uint64_t steps = 0;  // behind us
  Pass plain, fused;        // of the version `operations`, and of the others

  // A graph of kGraphSteps steps and one of a single step.
  std::unique_ptr<Graph> many, one;

 private:
  std::map<std::string, std::string> facts() const;
  void begin(std::uint64_t steps_behind);
};

inline Training::Training(const Settings& wanted, const Corpus& corpus)
    : settings(wanted),
      vocabulary(corpus.vocabulary),
      model(wanted.sizes, corpus.vocabulary.size()),
      train_text(corpus.train),
      validation_text(corpus.validation),
      schedule(1),
      schedules(train_shakespeare::schedules(wanted)),
      curve(wanted.steps),
      plain(wanted.sizes, corpus.vocabulary.size(), transformer_block::kVersions[1].launch),
      fused(wanted.sizes, corpus.vocabulary.size(), transformer_block::kBest) {
  const size_t shortest = std::min(corpus.train.size(), corpus.validation.size());
  if (shortest <= wanted.sizes.context)
    throw std::invalid_argument("a context of " + std::to_string(wanted.sizes.context) +
                                " characters needs a longer text: a tenth of this one has " +
                                std::to_string(shortest));
  if (wanted.steps == 0) throw std::invalid_argument("a training has at least one step");
  HIP_CHECK(hipStreamCreate(&stream));
  restart();
}

inline void Training::begin(std::uint64_t steps_behind) {
  Schedule state;
  state.step = steps_behind;
  schedule.to_device(&state, 1);
  curve.poison();
  HIP_CHECK(hipDeviceSynchronize());
  steps = steps_behind;
}

inline void Training::restart() {
  model.initialize(settings.seed);
  begin(0);
}

// What a checkpoint says beside parameters, steps, seed and optimizer.
inline std::map<std::string, std::string> facts_of(const Sizes& sizes, const Vocabulary& known) {
  return {{"vocabulary", known.to_text()},
          {"layers", std::to_string(sizes.layers)},
          {"heads", std::to_string(sizes.heads)},
          {"width", std::to_string(sizes.width)},
          {"context", std::to_string(sizes.context)},
          {"batch", std::to_string(sizes.batch)}};
}

inline std::map<std::string, std::string> Training::facts() const {
  std::map<std::string, std::string> facts = facts_of(settings.sizes, vocabulary);
  facts["schedule"] =
      std::to_string(settings.steps) + " steps up to " + std::to_string(settings.learning_rate);
  facts["characters"] = std::to_string(train_text.size());
  return facts;
}

inline void Training::save(const std::string& path) const {
  sequential::TrainingState state;
  state.steps = steps, state.seed = settings.seed;
  state.optimizer = optimizers::name(settings.optimizer);
  state.more = facts();
  sequential::save(path, model, &state);
}

inline void Training::resume(const std::string& path) {
  sequential::TrainingState found;
  try {
    found = sequential::state_of(safetensors::read(path).metadata);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " holds no training that could go on: " + error.what());
  }
  sequential::require_same(path, "optimizer", found.optimizer,
                           optimizers::name(settings.optimizer));
  sequential::require_same(path, "seed", std::to_string(found.seed), std::to_string(settings.seed));
  for (const auto& [name, value] : facts())
    sequential::require_same(path, name.c_str(), found.more[name], value);
  begin(sequential::load(path, model).steps);
}

// ---- A kernel per operation -------------------------------------------------------------------

// The last part of every version's step.
inline void queue_update(Training& t) {
  optimizers::launch_update(t.settings.optimizer, t.model.arena(), t.schedule.data(), t.stream);
}

// Queues one step, one launch behind the other.
inline void queue_operations(Training& t) {
  Pass& pass = t.plain;
  const size_t batch = t.settings.sizes.batch, rows = pass.rows(), C = pass.sizes.width;
  const size_t V = t.model.vocabulary();
  const Tensors<const float*>& p = t.model.parameters();
  const Tensors<float*>& grad = t.model.gradients();
  const hipStream_t stream = t.stream;
  launch_gather(pass.tokens.data(), pass.labels.data(), t.train(), batch, pass.sizes.context,
                t.drawn(), stream);
  forward(t.model, pass, batch, stream);
  losses::cross_entropy(pass.loss.data(), pass.grad_logits.data(), pass.logits.data(),
                        {pass.labels.data(), rows, V}, pass.losses.workspace(), stream);
  LAUNCH_ON(stream, begin_update, 1, 1, 0, t.curve.data(), pass.loss.data(), t.schedule.data(),
            t.schedules.data());

  // exercise: back through head, normalization, blocks and embedding (about 14 lines)
  float* const top = pass.grad_x.back().data();
  dense_backward::backward({grad.head, nullptr, top}, pass.grad_logits.data(), pass.norm.data(),
                           rows, {C, V, p.head, nullptr}, 0, pass.head_workspace, stream);
  layernorm_backward::backward(top, grad.norm_gain, grad.norm_bias, top, pass.x.back().data(),
                               p.norm_gain, pass.statistics.data(), pass.statistics.data() + rows,
                               nullptr, rows, C, pass.norm_workspace, stream);
  for (size_t layer = pass.sizes.layers; layer-- > 0;)
    transformer_block::backward(grad.blocks[layer], pass.grad_x[layer].data(),
                                pass.grad_x[layer + 1].data(), pass.x[layer].data(),
                                p.blocks[layer], pass.shape(batch), *pass.kept[layer],
                                pass.workspaces[layer % 2], pass.mode, stream);
  embedding::backward(grad.token, grad.position, pass.grad_x[0].data(), pass.tokens.data(),
                      pass.embedding_shape(batch, V), pass.embedding_workspace, stream);
  // end exercise
  queue_update(t);
}

inline void run_operations(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) queue_operations(t);
}

// ---- What the chain does not need, beside it --------------------------------------------------

// Queues one step of the fused blocks. From the loss on only the gradients of the activations wait
// for one another. The mean of the losses, the schedule and all weights' gradients are not in that
// chain: they run on streams of their own, and only the optimizer waits for them.
inline void queue_fused(Training& t) {
  Pass& pass = t.fused;
  const size_t batch = t.settings.sizes.batch, rows = pass.rows(), C = pass.sizes.width;
  const size_t V = t.model.vocabulary();
  const Tensors<const float*>& p = t.model.parameters();
  const Tensors<float*>& grad = t.model.gradients();
  const hipStream_t stream = t.stream;
  launch_gather(pass.tokens.data(), pass.labels.data(), t.train(), batch, pass.sizes.context,
                t.drawn(), stream);
  forward(t.model, pass, batch, stream);
  const losses::Targets targets{pass.labels.data(), rows, V};
  const losses::Workspace of_losses = pass.losses.workspace();
  softmax::launch_best(pass.grad_logits.data(), pass.logits.data(), rows, V,
                       losses::LossAndGradient{{targets, {rows}}, pass.logits.data(), of_losses},
                       stream);

  const Branches& of_loss = pass.beside[2];
  of_loss.fork(stream);
  losses::launch_mean(pass.loss.data(), of_losses.row_losses, rows, {rows}, of_losses.partials,
                      of_loss[0]);
  LAUNCH_ON(of_loss[0], begin_update, 1, 1, 0, t.curve.data(), pass.loss.data(), t.schedule.data(),
            t.schedules.data());
  transformer_block::weight_gradients({pass.head_task(grad, V)}, rows, pass.head_sums.data(),
                                      of_loss[1]);

  float* const top = pass.grad_x.back().data();
  dense_backward::launch_grad_x({nullptr, nullptr, top}, pass.grad_logits.data(), rows,
                                {C, V, p.head, nullptr}, 0, stream);
  layernorm_backward::backward(top, grad.norm_gain, grad.norm_bias, top, pass.x.back().data(),
                               p.norm_gain, pass.statistics.data(), pass.statistics.data() + rows,
                               nullptr, rows, C, pass.norm_workspace, stream);
  for (size_t layer = pass.sizes.layers; layer-- > 0;) {
    const Branches& weights = pass.beside[layer % 2];
    transformer_block::Workspace& workspace = pass.workspaces[layer % 2];
    const float* grad_y = pass.grad_x[layer + 1].data();
    if (layer + 2 < pass.sizes.layers) weights.join(stream);  // the workspace is free again
    transformer_block::chain_backward(grad.blocks[layer], pass.grad_x[layer].data(), grad_y,
                                      pass.x[layer].data(), p.blocks[layer], pass.shape(batch),
                                      *pass.kept[layer], workspace, pass.mode, stream);
    weights.fork(stream);
    transformer_block::weights_backward(grad.blocks[layer], grad_y, pass.shape(batch),
                                        *pass.kept[layer], workspace, pass.mode, weights[0]);
  }
  embedding::backward(grad.token, grad.position, pass.grad_x[0].data(), pass.tokens.data(),
                      pass.embedding_shape(batch, V), pass.embedding_workspace, stream);
  of_loss.join(stream);
  for (size_t layer = 0; layer < std::min<size_t>(pass.sizes.layers, 2); ++layer)
    pass.beside[layer].join(stream);
  queue_update(t);
}

inline void run_fused(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) queue_fused(t);
}

// ---- The same from a graph --------------------------------------------------------------------

// Launching a kernel takes the host longer than these kernels take the device. A graph is launched
// as a whole, with its branches, and nothing in it depends on which step it is.
inline void run_graph(Training& t, size_t steps) {
  if (t.one == nullptr) {
    t.many = std::make_unique<Graph>(t.stream, [&] {
      for (size_t i = 0; i < kGraphSteps; ++i) queue_fused(t);
    });
    t.one = std::make_unique<Graph>(t.stream, [&] { queue_fused(t); });
  }
  for (; steps >= kGraphSteps; steps -= kGraphSteps) t.many->launch(t.stream);
  for (; steps > 0; --steps) t.one->launch(t.stream);
}

// ---- The versions -----------------------------------------------------------------------------

// Queues `steps` steps, the first of which has t.steps steps behind it.
using Launch = void (*)(Training& t, size_t steps);

inline constexpr Version<Launch> kVersions[] = {
    {"operations", run_operations, "a kernel per operation, launched by the host"},
    {"fused", run_fused, "fused blocks; weights' gradients beside the chain"},
    {"graph", run_graph, "the same kernels, replayed from a graph"},
};

// The version to take where one is enough. A processor does not care how kernels are launched.
inline const Version<Launch>& best() {
  return kVersions[std::string(gpu::kBackend) == "cpu" ? 1 : 2];
}

// Trains `steps` steps more and waits for them. Throws std::invalid_argument for more than the
// schedule has.
inline void train(Training& training, Launch version, size_t steps) {
  if (steps > training.settings.steps - training.steps)
    throw std::invalid_argument("this training has " + std::to_string(training.settings.steps) +
                                " steps, and " + std::to_string(training.steps) +
                                " of them are behind it");
  version(training, steps);
  HIP_CHECK(hipDeviceSynchronize());
  training.steps += steps;
}

// The losses of all steps, NaN where this program has not run them. Waits for the device.
inline std::vector<float> losses_of(const Training& training) {
  HIP_CHECK(hipStreamSynchronize(training.stream));
  return training.curve.to_host();
}

// The mean loss per character over as many whole pieces as the text has, at most `most` of them.
inline double loss_of(const Model& model, Pass& pass, const Text& text, size_t most = ~size_t{0}) {
  const size_t T = pass.sizes.context, pieces = std::min((text.length - 1) / T, most);
  double sum = 0;
  for (size_t first = 0; first < pieces; first += pass.sizes.batch) {
    const size_t batch = std::min(pass.sizes.batch, pieces - first);
    launch_gather(pass.tokens.data(), pass.labels.data(), text, batch, T, InOrder{first * T, T});
    forward(model, pass, batch, nullptr);
    losses::launch_loss_of_logits(pass.loss.data(), pass.logits.data(),
                                  {pass.labels.data(), batch * T, model.vocabulary()},
                                  pass.losses.workspace());
    sum += static_cast<double>(pass.loss.to_host()[0]) * static_cast<double>(batch);
  }
  return sum / static_cast<double>(pieces);
}

inline double validation_loss(Training& t) { return loss_of(t.model, t.fused, t.validation()); }

// ---- Writing ----------------------------------------------------------------------------------

// How the next character is chosen from the logits.
struct Sampling {
  double temperature = 0.8;  // logits are divided by it; 0: always the most probable character
  size_t top_k = 0;          // only so many of the most probable ones; 0: all
  std::uint64_t seed = 1;
};

// Character number i of a text. Among equal logits the smaller token comes first.
inline size_t choose(const std::vector<float>& logits, const Sampling& sampling, std::uint64_t i) {
  constexpr std::uint32_t kStream = 0x3C3Bu;  // a sequence that nothing else uses
  std::vector<size_t> order(logits.size());
  for (size_t token = 0; token < order.size(); ++token) order[token] = token;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (sampling.temperature == 0) return order[0];
  if (sampling.top_k > 0) order.resize(std::min(sampling.top_k, order.size()));
  const auto weight = [&](size_t token) {
    return std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]])) /
                    sampling.temperature);
  };
  double total = 0;
  for (const size_t token : order) total += weight(token);
  const double uniform = static_cast<double>(random_numbers::uniform(sampling.seed, kStream, i));
  double left = (uniform + 1) / 2 * total;
  for (const size_t token : order) {
    left -= weight(token);
    if (left < 0) return token;
  }
  return order.back();
}

// Reads and writes with a model, a few characters at a time. A character's keys and values do not
// depend on what follows it, so they are computed once and kept: the rows of q, k and v of all
// characters so far are the cache, in which attention looks back from the last few.
//
//   qkv of a block    | q k v | q k v | q k v | q k v |               (context, 3, H, D)
//                       read before             new: only these rows go through the products
//
// Positions are learned, so that a full context can't slide: its last half is read again, from
// position 0 on.
class Writer {
 public:
  explicit Writer(const Model& model);

  // Forgets all.
  void restart() { history_.clear(), cached_ = 0; }
  // The logits (V) behind the last of these tokens, which come behind all that was read before.
  // Throws std::invalid_argument where there is no token, or one that is out of the vocabulary.
  std::vector<float> read(const std::vector<std::uint8_t>& tokens);
  // How many characters the cache holds.
  size_t cached() const { return cached_; }

 private:
  void advance(size_t count);  // the last `count` tokens of history_ go into the cache

  const Model& model_;
  std::vector<std::uint8_t> history_;  // what the cache holds, and what is about to be read
  size_t cached_ = 0;
  std::vector<DeviceBuffer<float>> qkv_;  // of each block
  DeviceBuffer<std::int32_t> tokens_;
  DeviceBuffer<float> x_, h_, norm_, attended_, hidden_, logits_;
};

inline Writer::Writer(const Model& model)
    : model_(model),
      tokens_(model.sizes().context),
      x_(model.sizes().context * model.sizes().width),
      h_(x_.size()),
      norm_(x_.size()),
      attended_(x_.size()),
      hidden_(transformer_block::kExpansion * x_.size()),
      logits_(model.vocabulary()) {
  for (size_t layer = 0; layer < model.sizes().layers; ++layer) qkv_.emplace_back(3 * x_.size());
}

inline void Writer::advance(size_t count) {
  const size_t C = model_.sizes().width, H = model_.sizes().heads, D = C / H;
  const size_t V = model_.vocabulary(), first = cached_;
  const Tensors<const float*>& p = model_.parameters();
  const std::vector<std::int32_t> tokens(history_.end() - static_cast<std::ptrdiff_t>(count),
                                         history_.end());
  tokens_.to_device(tokens.data(), count);
  float* const x = x_.data();
  embedding::forward(x, tokens_.data(), p.token, p.position + first * C, {1, count, C, V});
  const attention::Problem problem{
      1, H, count, first + count, D, true, 1 / std::sqrt(static_cast<float>(D))};
  for (size_t layer = 0; layer < qkv_.size(); ++layer) {
    const transformer_block::Parameters& block = p.blocks[layer];
    const transformer_block::Layers layers = transformer_block::layers({1, count, C, H}, block);
    const auto norm = [&](const float* from, const float* gain, const float* bias) {
      layernorm::forward(norm_.data(), nullptr, nullptr, from, gain, bias, count, C,
                         transformer_block::kEpsilon);
    };
    const float* const qkv = qkv_[layer].data();
    norm(x, block.norm1_gain, block.norm1_bias);
    float* const rows = qkv_[layer].data() + first * 3 * C;
    dense::forward<dense::Linear>(rows, norm_.data(), count, layers.qkv);
    attention::forward(attention::rows_first(attended_.data(), count, H, D), nullptr,
                       attention::rows_first(qkv + first * 3 * C, count, H, D, 3, 0),
                       attention::rows_first(qkv, first + count, H, D, 3, 1),
                       attention::rows_first(qkv, first + count, H, D, 3, 2), problem);
    transformer_block::linear_beside(h_.data(), x, attended_.data(), count, layers.proj,
                                     transformer_block::kBest, nullptr);
    norm(h_.data(), block.norm2_gain, block.norm2_bias);
    dense::forward<transformer_block::GeluTanh>(hidden_.data(), norm_.data(), count, layers.fc);
    transformer_block::linear_beside(x, h_.data(), hidden_.data(), count, layers.out,
                                     transformer_block::kBest, nullptr);
  }
  layernorm::forward(norm_.data(), nullptr, nullptr, x + (count - 1) * C, p.norm_gain, p.norm_bias,
                     1, C, transformer_block::kEpsilon);
  gemm::best(head_product(logits_.data(), norm_.data(), p.head, 1, C, V));
  cached_ += count;
}

inline std::vector<float> Writer::read(const std::vector<std::uint8_t>& tokens) {
  if (tokens.empty()) throw std::invalid_argument("there is no character to read");
  for (const std::uint8_t token : tokens)
    if (token >= model_.vocabulary())
      throw std::invalid_argument("token " + std::to_string(token) + " is not in [0, " +
                                  std::to_string(model_.vocabulary()) + ")");
  const size_t context = model_.sizes().context;
  history_.insert(history_.end(), tokens.begin(), tokens.end());
  if (history_.size() > context) {
    const size_t kept = std::max(context / 2, size_t{1});
    history_.erase(history_.begin(), history_.end() - static_cast<std::ptrdiff_t>(kept));
    cached_ = 0;
  }
  advance(history_.size() - cached_);
  return logits_.to_host();
}

// `count` characters that the model writes behind the prompt. Throws std::invalid_argument for a
// prompt that is empty, or has a character that the model does not know.
inline std::string write(const Model& model, const Vocabulary& vocabulary,
                         const std::string& prompt, size_t count, const Sampling& sampling) {
  Writer writer(model);
  std::string text;
  std::vector<std::uint8_t> next = vocabulary.encode(prompt);
  for (size_t i = 0; i < count; ++i) {
    const size_t token = choose(writer.read(next), sampling, i);
    next = {static_cast<std::uint8_t>(token)};
    text += vocabulary.decode(token);
  }
  return text;
}

// What a checkpoint holds that something can be written with.
struct Checkpoint {
  Sizes sizes;
  Vocabulary vocabulary;
  std::uint64_t steps;
};

// Throws std::runtime_error where a checkpoint claims a model that is larger than its file: before
// memory is taken for it.
inline void check_claim(const std::string& path, const Sizes& claimed) {
  const double layers = static_cast<double>(claimed.layers);
  const double width = static_cast<double>(claimed.width);
  const double context = static_cast<double>(claimed.context);
  const double bytes = sizeof(float) * width * (layers * 12 * width + context);
  if (bytes > static_cast<double>(std::filesystem::file_size(path)))
    throw std::runtime_error(path + " claims " + std::to_string(claimed.layers) +
                             " layers of width " + std::to_string(claimed.width) +
                             " for a context of " + std::to_string(claimed.context) +
                             ", and is too short for them");
}

// Throws std::runtime_error, one line that names the file, where it is no checkpoint of this step.
inline Checkpoint read_checkpoint(const std::string& path) {
  try {
    const sequential::TrainingState state = sequential::state_of(safetensors::read(path).metadata);
    const auto text = [&](const char* name) {
      const auto found = state.more.find(name);
      if (found == state.more.end())
        throw std::invalid_argument("it says nothing about its " + std::string(name));
      return found->second;
    };
    const auto number = [&](const char* name) {
      const std::string digits = text(name);
      const bool is_number = !digits.empty() && digits.size() < 10 &&
                             digits.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number) throw std::invalid_argument("its " + std::string(name) + " is no number");
      return static_cast<size_t>(std::stoul(digits));
    };
    const Checkpoint checkpoint{
        {number("layers"), number("heads"), number("width"), number("context"), number("batch")},
        Vocabulary::from_text(text("vocabulary")),
        state.steps};
    check(checkpoint.sizes);
    check_claim(path, checkpoint.sizes);
    return checkpoint;
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " holds no model that writes: " + error.what());
  }
}

// ---- Checking ---------------------------------------------------------------------------------

// What the losses of the first kCheckedSteps steps may be off: a loss is a mean over all characters
// of a batch, each of which went through some hundred roundings, twice as many as in step 5.6; and
// ten times what two trainings drift apart whose weights are four roundings away.
inline train_toy::Twins twins() { return train_toy::Twins(10, 0, 2e-5); }
inline constexpr size_t kCheckedSteps = 3;

// The pieces of the text that step `step` reads.
inline shakespeare::Batch batch_of(const Settings& settings, const std::vector<std::uint8_t>& text,
                                   std::uint64_t step) {
  shakespeare::Batch batch;
  const size_t T = settings.sizes.context;
  for (size_t b = 0; b < settings.sizes.batch; ++b) {
    const size_t place =
        Drawn::place(settings.seed, step, settings.sizes.batch, b, text.size() - T);
    for (size_t t = 0; t < T; ++t) {
      batch.tokens.push_back(text[place + t]);
      batch.labels.push_back(text[place + t + 1]);
    }
  }
  return batch;
}

// The parameters on the host, in the order of tensors().
inline std::vector<std::vector<float>> parameters_of(const Model& model) {
  std::vector<std::vector<float>> parameters;
  for (const NamedTensor& tensor : model.tensors()) {
    parameters.emplace_back(tensor.n);
    HIP_CHECK(hipMemcpy(parameters.back().data(), tensor.w, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return parameters;
}

// What the first `steps` steps must do from these parameters, in double; it may end before.
inline Trajectory trajectory_cpu(const Settings& settings, const std::vector<std::uint8_t>& text,
                                 const std::vector<std::vector<float>>& parameters, size_t steps) {
  const std::vector<Schedule> list = schedules(settings);
  return train_toy::follow(
      steps, 1, twins(),
      [&](unsigned twin) {
        return shakespeare::Reference(settings.sizes, train_toy::Twins::beside(parameters, twin),
                                      twin);
      },
      [&](shakespeare::Reference& run, std::uint64_t t) {
        const bool update = t == 1 || t < steps;  // the gradient of the first is compared
        return run.step(batch_of(settings, text, t - 1), settings.optimizer, list[t - 1].hyper, t,
                        update);
      });
}

}  // namespace train_shakespeare
