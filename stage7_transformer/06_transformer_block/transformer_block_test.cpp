// Every version of the block on awkward shapes: against the reference, against NumPy, against
// difference quotients, bit for bit against itself; causality; sizes that can't be; and mistakes
// that must be caught.
#include "stage7_transformer/06_transformer_block/transformer_block.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/testing.h"
#include "stage5_training/01_dense_backward/reference.h"
#include "stage5_training/03_gradient_check/gradient_check.h"
#include "stage7_transformer/06_transformer_block/blocks_for_tests.h"
#include "stage7_transformer/06_transformer_block/parts.h"

namespace {

using namespace block_test;

// One forward and backward pass, with every array `offset` floats behind a multiple of 16 bytes.
// Memory that a pass keeps or works in begins poisoned.
Outputs run(const Inputs& in, const Mode& mode, size_t offset = 0,
            const dense_backward::Branches* branches = nullptr) {
  const Shape& shape = in.shape;
  std::vector<std::unique_ptr<Guarded<float>>> values, gradients;
  std::vector<const float*> from;
  std::vector<float*> to;
  for (const std::vector<float>& parameter : in.parameters) {
    values.push_back(std::make_unique<Guarded<float>>(parameter, offset));
    gradients.push_back(std::make_unique<Guarded<float>>(parameter.size(), offset));
    from.push_back(values.back()->data()), to.push_back(gradients.back()->data());
  }
  Guarded<float> x(in.x, offset), grad_y(in.grad_y, offset), y(in.x.size(), offset);
  Guarded<float> grad_x(in.x.size(), offset);
  SavedActivations kept(shape, mode);
  Workspace workspace(shape);
  for (DeviceBuffer<float>* buffer : {&kept.norm1, &kept.qkv, &kept.attended, &kept.h, &kept.norm2,
                                      &kept.sums, &kept.hidden, &kept.statistics, &kept.lse})
    buffer->poison();
  for (DeviceBuffer<float>* buffer :
       {&workspace.grad_hidden, &workspace.grad_norm, &workspace.grad_h, &workspace.grad_attended,
        &workspace.grad_qkv, &workspace.sums, &workspace.norm_parts})
    buffer->poison();
  const Parameters parameters = tensors_of<const float*>(from);
  forward(y.data(), x.data(), parameters, shape, kept, mode);
  backward(tensors_of<float*>(to), grad_x.data(), grad_y.data(), x.data(), parameters, shape, kept,
           workspace, mode, {nullptr, branches});
  HIP_CHECK(hipDeviceSynchronize());
  Outputs out{y.to_host(), grad_x.to_host(), {}, y.intact() && grad_x.intact()};
  out.intact = out.intact && same_bits(x.to_host(), in.x) && same_bits(grad_y.to_host(), in.grad_y);
  for (size_t k = 0; k < kTensors; ++k) {
    out.gradients.push_back(gradients[k]->to_host());
    out.intact =
        out.intact && gradients[k]->intact() && same_bits(values[k]->to_host(), in.parameters[k]);
  }
  return out;
}

}  // namespace

TEST_CASE("every version agrees with the reference on every shape") {
  const Shape shapes[] = {{1, 1, 1, 1},   {1, 2, 4, 2},   {2, 5, 8, 1},   {3, 7, 6, 3},
                          {2, 31, 12, 3}, {1, 33, 20, 4}, {1, 65, 16, 1}, {5, 16, 24, 3},
                          {3, 23, 64, 4}, {1, 40, 61, 1}, {1, 9, 65, 5},  {2, 19, 43, 1}};
  size_t offset = 0;
  for (const Shape& shape : shapes) {
    const Inputs in(shape);
    const Reference want = block_cpu(in.x, in.grad_y, in.parameters, shape);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, shape.B, shape.T, shape.C, shape.H, offset);
      const Outputs got = run(in, version.launch, offset);
      REQUIRE_OK(against(got, want));
      REQUIRE(got.intact);
    }
    offset = (offset + 1) % 4;
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("transformer_block_" + name + ".npy"));
  };
  const std::vector<double> sizes = array("shape").values;
  Inputs in({static_cast<size_t>(sizes[0]), static_cast<size_t>(sizes[1]),
             static_cast<size_t>(sizes[2]), static_cast<size_t>(sizes[3])});
  const auto floats = [&](const std::string& name) { return array(name).floats(); };
  in.x = floats("x"), in.grad_y = floats("grad_y");
  const std::vector<ParameterShape> shapes = parameter_shapes(in.shape.C);
  for (size_t k = 0; k < kTensors; ++k) in.parameters[k] = floats(shapes[k].name);

  // NumPy's values, and the bounds of the reference, which must agree with them itself.
  Reference want = block_cpu(in.x, in.grad_y, in.parameters, in.shape);
  const auto take = [&](Values& values, const std::string& name) {
    const std::vector<double> numpy = array(name).values;
    REQUIRE(numpy.size() == values.value.size());
    for (size_t i = 0; i < numpy.size(); ++i)
      REQUIRE(std::fabs(numpy[i] - values.value[i]) <= 1e-11 * (1 + std::fabs(numpy[i])));
    values.value = numpy;
  };
  take(want.y, "y"), take(want.grad_x, "grad_x");
  for (size_t k = 0; k < kTensors; ++k)
    take(want.gradients[k], std::string("grad_") + shapes[k].name);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Outputs got = run(in, version.launch);
    REQUIRE_OK(against(got, want));
  }
}

// ---- Difference quotients ---------------------------------------------------------------------

namespace {

// The block in double, without errors and without the code of the reference above.
std::vector<double> normalized(const std::vector<double>& x, const std::vector<double>& gain,
                               const std::vector<double>& bias) {
  const size_t cols = gain.size();
  std::vector<double> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < cols; ++c) mean += x[begin + c] / static_cast<double>(cols);
    for (size_t c = 0; c < cols; ++c)
      variance += std::pow(x[begin + c] - mean, 2) / static_cast<double>(cols);
    for (size_t c = 0; c < cols; ++c)
      y[begin + c] = (x[begin + c] - mean) / std::sqrt(variance + 1e-5) * gain[c] + bias[c];
  }
  return y;
}

std::vector<double> attended(const std::vector<double>& qkv, const Shape& shape) {
  const size_t C = shape.C, D = shape.D();
  std::vector<double> y(shape.rows() * C);
  for (size_t row = 0; row < shape.rows(); ++row)
    for (size_t head = 0; head < shape.H; ++head) {
      const double* q = qkv.data() + row * 3 * C + head * D;
      double total = 0;
      for (size_t other = row - row % shape.T; other <= row; ++other) {
        const double* k = qkv.data() + other * 3 * C + C + head * D;
        double score = 0;
        for (size_t d = 0; d < D; ++d) score += q[d] * k[d];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(D)));
        total += weight;
        for (size_t d = 0; d < D; ++d) y[row * C + head * D + d] += weight * k[C + d];
      }
      for (size_t d = 0; d < D; ++d) y[row * C + head * D + d] /= total;
    }
  return y;
}

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

gradient_check::Case block_case(const Shape& shape, const Mode& mode) {
  const Inputs in(shape);
  gradient_check::Case c;
  c.arguments = {{"x", {shape.rows(), shape.C}, in.x}};
  const std::vector<ParameterShape> shapes = parameter_shapes(shape.C);
  for (size_t k = 0; k < kTensors; ++k)
    c.arguments.push_back({shapes[k].name, shapes[k].shape, in.parameters[k]});
  const std::vector<float> grad_y = in.grad_y;
  c.loss = [=](const std::vector<std::vector<double>>& v) {
    using gradient_check::affine;
    const size_t rows = shape.rows();
    const std::vector<double> qkv = affine(normalized(v[0], v[1], v[2]), v[3], v[4], rows);
    const std::vector<double> h = sum(v[0], affine(attended(qkv, shape), v[5], v[6], rows));
    const std::vector<double> hidden = gradient_check::activated<activations::GeluTanh>(
        affine(normalized(h, v[7], v[8]), v[9], v[10], rows));
    return gradient_check::weighted_sum(sum(h, affine(hidden, v[11], v[12], rows)), grad_y);
  };
  c.backward = [=](const std::vector<float*>& gradients, const std::vector<const float*>& v) {
    const DeviceBuffer<float> d_grad_y(grad_y);
    DeviceBuffer<float> y(grad_y.size());
    SavedActivations kept(shape, mode);
    Workspace workspace(shape);
    const Parameters parameters = tensors_of<const float*>(v.data() + 1);
    forward(y.data(), v[0], parameters, shape, kept, mode);
    backward(tensors_of<float*>(gradients.data() + 1), gradients[0], d_grad_y.data(), v[0],
             parameters, shape, kept, workspace, mode);
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

}  // namespace

TEST_CASE("the gradients of the whole block are the slopes of its loss") {
  for (const auto& version : testing::chosen(kVersions)) {
    const gradient_check::Case c = block_case({2, 5, 8, 2}, version.launch);
    const gradient_check::Finding found = gradient_check::check(c);
    const std::string worst = gradient_check::name_of(c.arguments[found.argument], found.index);
    CAPTURE(version.name, worst, found.analytic, found.numeric);
    REQUIRE(found.checked == 80 + 12 * 64 + 4 * 8 + 3 * 8 + 8 + 4 * 8 + 8);
    REQUIRE(found.ok);
  }
  // The checker sees a gradient that goes round the boxes only.
  gradient_check::Case c = block_case({1, 3, 4, 1}, kBest);
  const auto whole = c.backward;
  c.backward = [=](const std::vector<float*>& gradients, const std::vector<const float*>& v) {
    whole(gradients, v);
    const std::vector<float> grad_y = Inputs({1, 3, 4, 1}).grad_y;
    HIP_CHECK(hipMemcpy(gradients[0], grad_y.data(), grad_y.size() * sizeof(float),
                        hipMemcpyHostToDevice));
  };
  REQUIRE(!gradient_check::check(c).ok);
}

// ---- Properties -------------------------------------------------------------------------------

TEST_CASE("a token changes no output before it, bit for bit, and other sequences not at all") {
  const Shape shape{2, 37, 12, 3};
  Inputs in(shape);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const std::vector<float> before = run(in, version.launch).y;
    for (const size_t changed : {size_t{0}, size_t{20}, shape.T - 1}) {
      CAPTURE(changed);
      Inputs other = in;
      other.x[changed * shape.C + 1] += 0.5f;
      const std::vector<float> after = run(other, version.launch).y;
      for (size_t row = 0; row < shape.rows(); ++row) {
        const bool same = std::memcmp(after.data() + row * shape.C, before.data() + row * shape.C,
                                      shape.C * sizeof(float)) == 0;
        REQUIRE(same == (row < changed || row >= shape.T));
      }
    }
  }
}

TEST_CASE("on branches of the stream the gradients have the same bits") {
  const Inputs in({2, 70, 12, 3});
  const dense_backward::Branches branches;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Outputs plain = run(in, version.launch), beside = run(in, version.launch, 0, &branches);
    REQUIRE(same_bits(plain.grad_x, beside.grad_x));
    for (size_t k = 0; k < kTensors; ++k)
      REQUIRE(same_bits(plain.gradients[k], beside.gradients[k]));
  }
}

TEST_CASE("the same bits on every run") {
  const Inputs in({3, 50, 20, 2});
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Outputs once = run(in, version.launch), again = run(in, version.launch);
    REQUIRE(same_bits(once.y, again.y));
    REQUIRE(same_bits(once.grad_x, again.grad_x));
    for (size_t k = 0; k < kTensors; ++k) REQUIRE(same_bits(once.gradients[k], again.gradients[k]));
  }
}

TEST_CASE("a single parameter, or input, that is off by a five-hundredth is seen", "[harness]") {
  const Inputs in({2, 9, 12, 3});
  const Reference want = block_cpu(in.x, in.grad_y, in.parameters, in.shape);
  for (size_t k = 0; k < kTensors + 2; ++k) {
    CAPTURE(k);
    Inputs off = in;
    (k == kTensors ? off.x : k > kTensors ? off.grad_y : off.parameters[k]).back() += 2e-3f;
    REQUIRE(!against(run(off, kBest), want).ok);
  }
}

TEST_CASE("shapes that can't be are refused") {
  REQUIRE_THROWS_AS(check({1, 1, 10, 3}), std::invalid_argument);
  REQUIRE_THROWS_AS(check({1, 1, 2 * attention::kMostDepth + 2, 2}), std::invalid_argument);
  REQUIRE_NOTHROW(check({1, 1, 2 * attention::kMostDepth, 2}));
  for (const Shape& shape : {Shape{0, 1, 2, 1}, {1, 0, 2, 1}, {1, 1, 0, 1}, {1, 1, 2, 0}})
    REQUIRE_THROWS_AS(check(shape), std::invalid_argument);
}

// ---- All weights' gradients in one launch -----------------------------------------------------

namespace {

// In [-1, 1), or integers.
std::vector<float> numbers(size_t n, std::uint32_t stream, bool whole) {
  return whole ? integers(n, stream) : random_floats(n, stream);
}

struct LayerData {
  LayerData(size_t rows_of_it, size_t outputs, size_t inputs, std::uint32_t stream, size_t offset,
            bool has_bias, bool whole = false)
      : rows(rows_of_it),
        out(outputs),
        in(inputs),
        grad_y(numbers(rows * out, stream, whole)),
        x(numbers(rows * in, stream + 1, whole)),
        d_grad_y(grad_y, offset),
        d_x(x, offset),
        d_w(out * in, offset),
        d_bias(out, offset),
        task{d_grad_y.data(), d_x.data(), out, in, d_w.data(), has_bias ? d_bias.data() : nullptr} {
  }
  size_t rows, out, in;
  std::vector<float> grad_y, x;
  Guarded<float> d_grad_y, d_x, d_w, d_bias;
  WeightTask task;
};

Comparison against(const std::vector<float>& got, const dense_backward::Expected& want) {
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.bound[i]; });
}

}  // namespace

TEST_CASE("weights' gradients of layers of all sizes, one to four in a launch") {
  const size_t shapes[][2] = {{1, 1}, {65, 64}, {64, 65}, {12, 4}, {3, 130}, {64, 64}, {7, 9}};
  for (const size_t rows : {1, 15, 64, 129, 700})
    for (size_t first = 0; first < 7; ++first)
      for (const size_t offset : {0, 1}) {
        const size_t count = first % kMostTasks + 1;
        CAPTURE(rows, first, count, offset);
        std::vector<std::unique_ptr<LayerData>> list;
        std::vector<WeightTask> tasks;
        for (size_t i = 0; i < count; ++i) {
          const size_t(&shape)[2] = shapes[(first + i) % 7];
          list.push_back(std::make_unique<LayerData>(rows, shape[0], shape[1],
                                                     static_cast<std::uint32_t>(40 + 2 * i), offset,
                                                     (first + i) % 3 != 0));
          tasks.push_back(list.back()->task);
        }
        Guarded<float> sums(sums_of(tasks, rows), offset);
        weight_gradients(tasks, rows, sums.data());
        REQUIRE(sums.intact());
        for (const auto& layer : list) {
          std::vector<size_t> all(layer->out);
          for (size_t o = 0; o < all.size(); ++o) all[o] = o;
          const dense_backward::Shape shape{rows, layer->in, layer->out};
          REQUIRE_OK(against(layer->d_w.to_host(),
                             dense_backward::expect_w(shape, layer->grad_y, layer->x, 0, {}, all)));
          REQUIRE((layer->d_w.intact() && layer->d_bias.intact()));
          if (layer->task.bias != nullptr)
            REQUIRE_OK(against(layer->d_bias.to_host(),
                               dense_backward::expect_bias(shape, layer->grad_y, 0, {})));
        }
      }
  REQUIRE_THROWS_AS(sums_of({}, 4), std::invalid_argument);
  REQUIRE_THROWS_AS(sums_of(std::vector<WeightTask>(kMostTasks + 1), 4), std::invalid_argument);
}

TEST_CASE("weights' gradients of integers are exact, of every slice and tile") {
  constexpr size_t kShapes[][2] = {{65, 70}, {130, 3}, {4, 64}};
  for (const size_t rows : {1, 64, 4097}) {
    CAPTURE(rows);
    std::vector<std::unique_ptr<LayerData>> list;
    std::vector<WeightTask> tasks;
    for (const auto& [out, in] : kShapes) {
      list.push_back(std::make_unique<LayerData>(rows, out, in, 60, 0, true, true));
      tasks.push_back(list.back()->task);
    }
    Guarded<float> sums(sums_of(tasks, rows), 0);
    weight_gradients(tasks, rows, sums.data());
    for (const auto& layer : list) {
      std::vector<float> w(layer->out * layer->in), bias(layer->out);
      for (size_t row = 0; row < rows; ++row)
        for (size_t o = 0; o < layer->out; ++o) {
          const float grad = layer->grad_y[row * layer->out + o];
          bias[o] += grad;
          for (size_t i = 0; i < layer->in; ++i)
            w[o * layer->in + i] += grad * layer->x[row * layer->in + i];
        }
      REQUIRE(same_bits(layer->d_w.to_host(), w));
      REQUIRE(same_bits(layer->d_bias.to_host(), bias));
    }
  }
}

TEST_CASE("products of integers are exact through every epilogue") {
  constexpr size_t kShapes[][3] = {{1, 1, 1}, {5, 7, 9}, {129, 33, 70}, {64, 64, 256}};
  for (const auto& [rows, in, out] : kShapes) {
    CAPTURE(rows, in, out);
    const std::vector<float> x = integers(rows * in, 70), w = integers(out * in, 71);
    const std::vector<float> bias = integers(out, 72), residual = integers(rows * out, 73);
    const std::vector<float> grad_y = integers(rows * out, 74);
    std::vector<float> sums(rows * out), y = residual, grad(rows * in);
    for (size_t i = 0; i < rows * out; ++i) {
      for (size_t k = 0; k < in; ++k) {
        sums[i] += x[i / out * in + k] * w[i % out * in + k];
        grad[i / out * in + k] += grad_y[i] * w[i % out * in + k] / 2;  // GELU's slope at 0
      }
      sums[i] += bias[i % out], y[i] += sums[i];
    }
    const DeviceBuffer<float> d_x(x), d_w(w), d_bias(bias), d_residual(residual), d_grad_y(grad_y);
    const DeviceBuffer<float> at_0(std::vector<float>(rows * in));
    DeviceBuffer<float> d_y(rows * out), d_sums(rows * out), d_hidden(rows * out);
    DeviceBuffer<float> d_grad(rows * in);
    const dense::Layer layer{in, out, d_w.data(), d_bias.data()};
    for (const Mode& mode : {kVersions[0].launch, kBest}) {
      d_y.poison();
      linear_beside(d_y.data(), d_residual.data(), d_x.data(), rows, layer, mode);
      REQUIRE(same_bits(d_y.to_host(), y));
    }
    expand_fused(d_hidden.data(), d_sums.data(), d_x.data(), rows, layer, nullptr);
    REQUIRE(same_bits(d_sums.to_host(), sums));
    grad_sums_fused(d_grad.data(), d_grad_y.data(), at_0.data(), rows, layer, nullptr);
    REQUIRE(same_bits(d_grad.to_host(), grad));
  }
}
