// Runs, checks and times every version of the embedding, forward and backward.
#include "stage7_transformer/01_embedding/embedding.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/01_vector_add/reference.h"
#include "stage7_transformer/01_embedding/reference.h"

using embedding::Shape;
using gpu::DeviceBuffer;

namespace {

constexpr size_t kSampledRows = 256;  // of y that are compared
// Comparisons beyond which the version that looks at every token for every element is left away.
constexpr double kMostComparisons = 1e12;

std::string text(const Shape& shape) {
  return "B=" + std::to_string(shape.B) + " T=" + std::to_string(shape.T) +
         " C=" + std::to_string(shape.C) + " V=" + std::to_string(shape.V) + " float32";
}

// What is run where no --size is given: the vocabulary of a large model, and the characters that a
// small and a medium one learn to write in step 7.7.
std::vector<Shape> shapes(const Options& options) {
  const Shape first{options.sizes[0], options.sizes[1], options.sizes[2], options.sizes[3]};
  if (options.sizes_given || options.quick) return {first};
#if defined(GPU_BACKEND_CPU)
  return {first, {2, 64, 96, 1009}};
#else
  return {first, {64, 256, 384, 65}, {32, 128, 64, 65}};
#endif
}

struct Problem {
  Problem(const Shape& sizes, std::uint64_t random_seed)
      : shape(embedding::checked(sizes)),
        seed(random_seed),
        d_token_table(shape.V * shape.C),
        d_position_table(shape.T * shape.C),
        d_y(shape.positions() * shape.C),
        d_grad_y(shape.positions() * shape.C),
        workspace(shape),
        sample(choose_rows(shape.positions(), shape.C, kSampledRows, seed)) {
    // As in a text a few tokens are frequent and most are rare: the cube of a uniform number.
    std::vector<bool> seen(shape.V);
    for (size_t i = 0; i < shape.positions(); ++i) {
      const double u = std::fabs(static_cast<double>(random_numbers::uniform(seed, 3, i)));
      const size_t token = static_cast<size_t>(u * u * u * static_cast<double>(shape.V));
      tokens.push_back(static_cast<std::int32_t>(token));
      seen[token] = true;
    }
    for (const bool token : seen) distinct += token ? 1 : 0;
    d_tokens = DeviceBuffer<std::int32_t>(tokens);
  }
  // The tables and grad_y, by random_numbers::launch_fill_integers or launch_fill_uniform.
  template <class Fill>
  void fill(Fill launch_fill) {
    launch_fill(d_token_table.data(), d_token_table.size(), seed, 0, nullptr);
    launch_fill(d_position_table.data(), d_position_table.size(), seed, 1, nullptr);
    launch_fill(d_grad_y.data(), d_grad_y.size(), seed, 2, nullptr);
  }
  double elements(double rows) const { return rows * static_cast<double>(shape.C); }
  // Of every array what must be read or written at least once: of the tables a forward pass needs
  // the rows that the tokens name, and a backward pass writes them all.
  Work forward_work() const {
    const double positions = static_cast<double>(shape.positions());
    return {
        sizeof(float) * (elements(positions + distinct + static_cast<double>(shape.T)) + positions),
        0, Work::Limit::copy};
  }
  Work backward_work() const {
    const double positions = static_cast<double>(shape.positions());
    const double tables = static_cast<double>(shape.V) + static_cast<double>(shape.T);
    return {sizeof(float) * (elements(positions + tables) + positions), 0, Work::Limit::copy};
  }

  Shape shape;
  std::uint64_t seed;
  DeviceBuffer<float> d_token_table, d_position_table, d_y, d_grad_y;
  DeviceBuffer<std::int32_t> d_tokens;
  embedding::Workspace workspace;
  RowSample sample;
  std::vector<std::int32_t> tokens;
  double distinct = 0;  // tokens that occur
};

// The sampled rows of y.
std::vector<double> expect_rows(const Problem& p) {
  const std::vector<float> token_table = p.d_token_table.to_host();
  const std::vector<float> position_table = p.d_position_table.to_host();
  std::vector<double> want;
  for (const size_t row : p.sample.rows)
    for (size_t c = 0; c < p.shape.C; ++c)
      want.push_back(
          static_cast<double>(token_table[static_cast<size_t>(p.tokens[row]) * p.shape.C + c]) +
          static_cast<double>(position_table[row % p.shape.T * p.shape.C + c]));
  return want;
}

void run_forward(Problem& p, const Options& options, Report& report) {
  const embedding::Lookup in{p.d_tokens.data(), p.d_token_table.data(), p.d_position_table.data(),
                             p.shape, p.workspace.bad_token()};
  std::vector<double> want;
  Measurement table(options);
  for (const auto& version : embedding::kVersions) {
    Measured measured{p.forward_work(),
                      [&](hipStream_t stream) { version.launch.run(p.d_y.data(), in, stream); },
                      [&] {
                        p.workspace.check_tokens(p.shape.V);
                        return p.sample.compare(p.d_y.data(), want, [&](size_t i) {
                          return vector_add::bound(want[i]);
                        });
                      },
                      {{p.d_y.data(), p.d_y.bytes()}}};
    measured.shape = {p.shape.positions(), p.shape.C};
    table.version(version, std::move(measured));
  }
  p.fill(random_numbers::launch_fill_integers);
  want = expect_rows(p);
  table.check_exactly();
  p.fill(random_numbers::launch_fill_uniform);
  HostTimer timer;
  want = expect_rows(p);
  report.table("embedding   " + text(p.shape), p.sample.text.empty() ? timer.ms() : 0,
               p.sample.text);
  table.run(report);
}

Comparison compare_sums(const DeviceBuffer<float>& d_got, const embedding::RowSums& want,
                        size_t cols, double (*roundings)(double)) {
  const std::vector<float> got = d_got.to_host();
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return roundings == nullptr ? 0 : want.bound(i, cols, roundings); });
}

void run_backward(Problem& p, const Options& options, Report& report) {
  DeviceBuffer<float> d_grad_token(p.shape.V * p.shape.C), d_grad_position(p.shape.T * p.shape.C);
  const embedding::Scatter out{
      d_grad_token.data(),    d_grad_position.data(), p.d_grad_y.data(), p.d_tokens.data(), p.shape,
      p.workspace.bad_token()};
  embedding::Gradients want;
  const auto verify = [&](double (*of_position)(double), double (*of_token)(double)) {
    p.workspace.check_tokens(p.shape.V);
    return together({compare_sums(d_grad_position, want.position, p.shape.C, of_position),
                     compare_sums(d_grad_token, want.token, p.shape.C, of_token)});
  };
  std::vector<Row> left_out;
  Measurement table(options);
  for (const auto& version : embedding::kBackwardVersions) {
    if (std::string(version.name) == "backward_gather" &&
        p.elements(static_cast<double>(p.shape.V)) * static_cast<double>(p.shape.positions()) >
            kMostComparisons) {
      if (!options.wants(version.name)) continue;
      Row& row = left_out.emplace_back();
      row.name = version.name, row.lesson = version.lesson;
      row.skipped = "needs more than 10^12 comparisons";
      continue;
    }
    Measured measured{
        p.backward_work(),
        [&](hipStream_t stream) { version.launch.run(out, p.workspace, stream); },
        [&] { return verify(embedding::roundings_in_order, version.launch.roundings); },
        {{d_grad_token.data(), d_grad_token.bytes()},
         {d_grad_position.data(), d_grad_position.bytes()}}};
    measured.verify_exactly = [&] { return verify(nullptr, nullptr); };
    measured.shape = {p.shape.V, p.shape.C};
    table.version(version, std::move(measured));
  }
  const auto expect = [&](auto launch_fill) {
    p.fill(launch_fill);
    const std::vector<float> grad_y = p.d_grad_y.to_host();
    HostTimer timer;
    want = embedding::backward_cpu(grad_y, p.tokens, p.shape);
    return timer.ms();
  };
  expect(random_numbers::launch_fill_integers);
  table.check_exactly();
  const double reference_ms = expect(random_numbers::launch_fill_uniform);
  report.table("embedding backward   " + text(p.shape), reference_ms);
  table.run(report);
  for (const Row& row : left_out) report.add(row);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "7.1",
      "embedding",
      "rows of a table for tokens, and their gradients back to the table",
      {{"B", 8, 4, 3}, {"T", 1024, 64, 21}, {"C", 768, 64, 36}, {"V", 50257, 65, 65}},
      version_infos(embedding::kVersions, embedding::kBackwardVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    for (const Shape& shape : shapes(options)) {
      const double rows = 2.0 * static_cast<double>(shape.V) + 2.0 * static_cast<double>(shape.T) +
                          2.2 * static_cast<double>(shape.B) * static_cast<double>(shape.T);
      require_device_memory(sizeof(float) * rows * (static_cast<double>(shape.C) + 2));
    }
    report.limits(timing::measure_limits(options));
    for (const Shape& shape : shapes(options)) {
      Problem problem(shape, options.seed);
      if (wants_any(options, embedding::kVersions)) run_forward(problem, options, report);
      if (wants_any(options, embedding::kBackwardVersions)) run_backward(problem, options, report);
    }
  });
}
