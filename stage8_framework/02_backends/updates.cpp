// Shape rules of operations that work in place: every output is given, and must fit the others.
#include "stage8_framework/02_backends/detail/checks.h"

namespace framework {

using namespace checks;

namespace {

void require_given(const Call& call, const char* outputs) {
  for (int i = 0; i < call.op->output_count; ++i)
    if (i >= call.output_count || !call.outputs[i].is_defined())
      refuse(call, "it works in place: all outputs (" + std::string(outputs) + ") must be given");
}

// An attribute in [0, 1).
void require_share(const Call& call, int attribute, const char* name) {
  const double value = call.attributes[attribute];
  if (!(value >= 0 && value < 1)) refuse(call, std::string(name) + " must be from 0 to below 1");
}

const OutputSpec kStep{{}, Dtype::i64};  // how many steps have been taken

}  // namespace

void infer_optimizer_step(const Call& call, OutputSpec* outputs) {
  require_given(call, "w, state, step");
  constexpr std::int64_t kStates[] = {0, 1, 2, 2};  // of a parameter, by kind: 5.4's states()
  const Tensor& w = call.outputs[0];
  const Dtype dtype = real_type(call);
  const std::int64_t kind = whole(call, 0, 0);
  require(call, kind <= 3, "kind is 0 (sgd), 1 (momentum), 2 (adam) or 3 (adamw)");
  require_share(call, 2, "beta1"), require_share(call, 3, "beta2");
  require(call, kind < 2 || call.attributes[4] > 0, "epsilon must be above 0");
  require_shape(call, 0, "grad", w.shape());
  require_shape(call, 1, "rate", {});
  require(call, w.rank() < kMaxRank, "w has more than 7 axes");
  Shape state = w.shape();
  state.insert(0, kStates[kind]);
  outputs[0] = {w.shape(), dtype};
  outputs[1] = {state, dtype};
  outputs[2] = kStep;
}

void infer_dropout_mask(const Call& call, OutputSpec* outputs) {
  require_given(call, "mask, step");
  const Tensor& mask = call.outputs[0];
  require(call, mask.dtype() == Dtype::f32 || mask.dtype() == Dtype::f64,
          "the mask is not f32 or f64");
  require_share(call, 0, "p");
  require(call, call.attributes[1] <= static_cast<double>(kLargestSeed),
          "the seed must be 2^53 at most");
  whole(call, 1, 0);
  outputs[0] = {mask.shape(), mask.dtype()};
  outputs[1] = kStep;
}

// Without its output nothing says on which device it counts.
void infer_count_up(const Call&, OutputSpec* outputs) { outputs[0] = kStep; }

}  // namespace framework
