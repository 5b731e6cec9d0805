// The operators of stage 1.
#include "stage1_vector/01_vector_add/vector_add.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// c = a + b, or a * b: inputs a and b of one shape; attribute offset; output c.
void run_elementwise(const Case& c, Outputs& outputs,
                     vector_add::Launch::Function vector_add::Launch::*operation) {
  const Array &a = c.input("a"), &b = c.input("b", a.shape);
  const std::size_t at = offset(c);
  for (const auto& version : vector_add::kVersions) {
    Guarded<float> d_a(a.values, at), d_b(b.values, at), d_c(a.values.size(), at);
    (version.launch.*operation)(d_c.data(), d_a.data(), d_b.data(), d_c.size(), nullptr);
    finish(version.name, d_a, d_b, d_c);
    keep(outputs, version.name, "c", a.shape, d_c);
  }
}
void run_vector_add(const Case& c, Outputs& outputs) {
  run_elementwise(c, outputs, &vector_add::Launch::add);
}
void run_vector_multiply(const Case& c, Outputs& outputs) {
  run_elementwise(c, outputs, &vector_add::Launch::multiply);
}

}  // namespace

std::vector<Operator> stage1() {
  return {{"vector_add", run_vector_add}, {"vector_multiply", run_vector_multiply}};
}

}  // namespace operators
