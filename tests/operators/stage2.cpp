// The operators of stage 2. Each takes the attribute `offset` (operators.h).
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/program.h"
#include "stage2_matrix/01_transpose/transpose.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// transpose. Input a (rows, cols); output out (cols, rows).
void run_transpose(const Case& c, Outputs& outputs) {
  const Array& a = c.input("a", 2);
  const std::size_t rows = a.shape[0], cols = a.shape[1];
  for (const auto& version : transpose::kVersions) {
    Guarded<float> d_a(a.values, offset(c)), out(a.values.size(), offset(c));
    version.launch(out.data(), d_a.data(), rows, cols, nullptr);
    finish(version.name, d_a, out);
    keep(outputs, version.name, "out", {cols, rows}, out);
  }
}

// Rows of `cols` floats with `gap` floats of poison behind each, and such rows without their gaps.
std::vector<float> with_gaps(const std::vector<float>& values, std::size_t cols, std::size_t gap) {
  if (gap == 0 || cols == 0) return values;
  std::vector<float> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    result.push_back(values[i]);
    if ((i + 1) % cols == 0)
      result.insert(result.end(), gap, std::numeric_limits<float>::quiet_NaN());
  }
  return result;
}
std::vector<float> without_gaps(const std::vector<float>& values, std::size_t cols,
                                std::size_t gap) {
  std::vector<float> result;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % (cols + gap) < cols)
      result.push_back(values[i]);
    else if (!std::isnan(values[i]))
      throw std::runtime_error("it wrote between two rows");
  return result;
}

// gemv: y = alpha A x + beta y, transposed: alpha A^T x + beta y. Inputs a (rows, cols), x (cols),
// transposed (rows), and y unless beta is 0; attributes transposed (0), alpha (1), beta (0) and gap
// (0), the floats between rows of a; output y.
void run_gemv(const Case& c, Outputs& outputs) {
  const Array& a = c.input("a", 2);
  const bool transposed = c.integer("transposed", 0) != 0;
  const std::size_t rows = a.shape[0], cols = a.shape[1], gap = c.integer("gap", 0);
  const std::size_t n = transposed ? cols : rows;
  const Array& x = c.input("x", std::vector<std::size_t>{transposed ? rows : cols});
  const float alpha = static_cast<float>(c.number("alpha", 1));
  const float beta = static_cast<float>(c.number("beta", 0));
  if (beta != 0) c.input("y", std::vector<std::size_t>{n});
  const std::vector<float> stored = with_gaps(a.values, cols, gap);

  const auto run = [&](const char* name, auto&& launch) {
    Guarded<float> d_a(stored, offset(c)), d_x(x.values, offset(c));
    Guarded<float> y =
        beta != 0 ? Guarded<float>(c.input("y").values, offset(c)) : Guarded<float>(n, offset(c));
    const gemv::Product p{rows, cols, alpha, d_a.data(), cols + gap, d_x.data(), beta, y.data()};
    Guarded<float> partials(gemv::workspace_bytes(transposed, p) / sizeof(float), 0);
    launch(p, gemv::Workspace{partials.data()});
    finish(name, d_a, d_x, y, partials);
    keep(outputs, name, "y", {n}, y);
  };
  for (const auto& version : gemv::kVersions) {
    const bool simple = version.launch.simple != nullptr;
    if (version.launch.transposed != transposed) continue;
    if (simple && (alpha != 1 || beta != 0 || gap != 0)) continue;
    run(version.name, [&](const gemv::Product& p, const gemv::Workspace& workspace) {
      version.launch(p, workspace, nullptr);
    });
  }
  run("best", [&](const gemv::Product& p, const gemv::Workspace& workspace) {
    gemv::best(transposed, p, workspace);
  });
}

// gemm: C = alpha op(A) op(B) + beta C, or a batch of them. Inputs a (M, K), b (K, N), each stored
// transposed where transpose_a or transpose_b is 1 (not both), and c (M, N) unless beta is 0; or
// all with a batch in front, of which b may have none. Attributes transpose_a, transpose_b (0),
// alpha (1), beta (0) and gap (0), the floats between rows; output c.
void run_gemm(const Case& c, Outputs& outputs) {
  const Array &a = c.input("a"), &b = c.input("b");
  const std::size_t axes = a.shape.size(), first_a = axes - 2, first_b = b.shape.size() - 2;
  require(axes == 2 || axes == 3, "a has neither 2 nor 3 axes");
  require(b.shape.size() == 2 || b.shape.size() == axes, "b has neither 2 axes nor as many as a");
  const bool transpose_a = c.integer("transpose_a", 0) != 0;
  const bool transpose_b = c.integer("transpose_b", 0) != 0;
  require(!transpose_a || !transpose_b, "one of a and b may be transposed, not both");
  const std::size_t gap = c.integer("gap", 0);

  gemm::Product p;
  p.layout = transpose_a ? gemm::Layout::TN : transpose_b ? gemm::Layout::NT : gemm::Layout::NN;
  p.M = a.shape[first_a + (transpose_a ? 1 : 0)], p.K = a.shape[first_a + (transpose_a ? 0 : 1)];
  p.N = b.shape[first_b + (transpose_b ? 0 : 1)];
  require(b.shape[first_b + (transpose_b ? 1 : 0)] == p.K, "a and b differ in K");
  p.batch = axes == 3 ? a.shape[0] : 1;
  require(b.shape.size() == 2 || axes == 2 || b.shape[0] == p.batch, "a and b differ in the batch");
  p.alpha = static_cast<float>(c.number("alpha", 1));
  p.beta = static_cast<float>(c.number("beta", 0));
  const std::vector<std::size_t> shape =
      axes == 3 ? std::vector<std::size_t>{p.batch, p.M, p.N} : std::vector<std::size_t>{p.M, p.N};

  const std::size_t cols_a = a.shape[first_a + 1], cols_b = b.shape[first_b + 1];
  p.lda = cols_a + gap, p.ldb = cols_b + gap, p.ldc = p.N + gap;
  p.stride_a = a.shape[first_a] * p.lda, p.stride_c = p.M * p.ldc;
  p.stride_b = b.shape.size() == 3 ? b.shape[1] * p.ldb : 0;
  const std::vector<float> stored_a = with_gaps(a.values, cols_a, gap);
  const std::vector<float> stored_b = with_gaps(b.values, cols_b, gap);
  const std::vector<float> stored_c =
      p.beta != 0 ? with_gaps(c.input("c", shape).values, p.N, gap) : std::vector<float>{};

  const bool contiguous =
      p.layout == gemm::Layout::NN && p.alpha == 1 && p.beta == 0 && gap == 0 && axes == 2;
  for (const auto& version : gemm::kVersions) {
    if (version.launch.general == nullptr && !contiguous) continue;
    const std::size_t size = p.batch * p.stride_c;
    Guarded<float> d_a(stored_a, offset(c)), d_b(stored_b, offset(c));
    Guarded<float> d_c =
        p.beta != 0 ? Guarded<float>(stored_c, offset(c)) : Guarded<float>(size, offset(c));
    p.a = d_a.data(), p.b = d_b.data(), p.c = d_c.data();
    if (version.launch.general != nullptr)
      version.launch.general(p, nullptr);
    else
      version.launch(d_c.data(), d_a.data(), d_b.data(), p.M, p.N, p.K, nullptr);
    finish(version.name, d_a, d_b, d_c);
    outputs[std::string(version.name) + "/c"] = {shape, without_gaps(d_c.to_host(), p.N, gap)};
  }
}

// An array of floats as T on the device.
template <class T>
struct Rounded {
  Rounded(const std::vector<float>& values, std::size_t offset)
      : floats(values, offset), array(values.size(), offset) {
    gemm_mixed::launch_round(array.data(), floats.data(), values.size());
    finish("round", floats, array);
  }
  Guarded<float> floats;
  Guarded<T> array;
};

template <class T>
void run_gemm_mixed_of(const Case& c, Outputs& outputs) {
  const Array &a = c.input("a", 2), &b = c.input("b", 2);
  const std::size_t M = a.shape[0], K = a.shape[1], N = b.shape[1];
  require(b.shape[0] == K, "a and b differ in K");
  for (const auto& version : gemm_mixed::kVersions<T>) {
    if (!missing(version.needs).empty()) continue;
    Rounded<T> d_a(a.values, offset(c)), d_b(b.values, offset(c));
    Guarded<float> d_c(M * N, offset(c));
    version.launch(d_c.data(), d_a.array.data(), d_b.array.data(), M, N, K, nullptr);
    finish(version.name, d_a.array, d_b.array, d_c);
    keep(outputs, version.name, "c", {M, N}, d_c);
  }
}

template <class T>
void run_round_of(const Case& c, Outputs& outputs) {
  const Array& x = c.input("x");
  const std::vector<T> rounded = Rounded<T>(x.values, offset(c)).array.to_host();
  Array y{x.shape, {}};
  for (const T value : rounded) y.values.push_back(gpu::to_float(value));
  outputs["round/y"] = std::move(y);
}

using Run = void (*)(const Case&, Outputs&);
void run_by_type(const Case& c, Outputs& outputs, Run fp16, Run bf16, Run tf32) {
  const std::string type = c.word("type", "fp16");
  require(type == "fp16" || type == "bf16" || type == "tf32", "type is not fp16, bf16 or tf32");
  (type == "fp16" ? fp16 : type == "bf16" ? bf16 : tf32)(c, outputs);
}

// gemm_mixed: C = A B of numbers rounded to a type. Inputs a (M, K) and b (K, N), which are rounded
// here; attribute type: fp16, bf16 or tf32; output c (M, N).
void run_gemm_mixed(const Case& c, Outputs& outputs) {
  run_by_type(c, outputs, run_gemm_mixed_of<gpu::half>, run_gemm_mixed_of<gpu::bfloat16>,
              run_gemm_mixed_of<float>);
}

// round: the number of a type nearest to each of x. Input x; attribute type, as above; output y.
void run_round(const Case& c, Outputs& outputs) {
  run_by_type(c, outputs, run_round_of<gpu::half>, run_round_of<gpu::bfloat16>,
              run_round_of<float>);
}

}  // namespace

std::vector<Operator> stage2() {
  return {{"transpose", run_transpose},
          {"gemv", run_gemv},
          {"gemm", run_gemm},
          {"gemm_mixed", run_gemm_mixed},
          {"round", run_round}};
}

}  // namespace operators
