// kOps, the only list of operations. Each row says what an operation takes and returns, what it
// costs, how exact it is, and nothing about who runs it: that is a backend's business. The tests,
// the dispatcher and the documentation walk this list; an operation added is one row, a function of
// the reference, at least one backend's function, and a rule of 8.3. Plain C++ that knows no
// device.
#pragma once

#include <cstdint>
#include <string>

#include "stage8_framework/01_tensor/handle.h"

namespace framework {

inline constexpr int kMaxInputs = 8, kMaxOutputs = 4, kMaxAttributes = 8;

// The seed of an operation is an attribute: up to here every whole number is a double.
inline constexpr std::int64_t kLargestSeed = std::int64_t{1} << 53;

struct Op;

// One operation on these tensors: what eager mode runs, and what later steps keep, record, pack,
// fuse, place, time and draw. Inputs that are optional and absent are undefined tensors.
struct Call {
  const Op* op = nullptr;
  int input_count = 0, output_count = 0;
  Tensor inputs[kMaxInputs];
  Tensor outputs[kMaxOutputs];
  double attributes[kMaxAttributes] = {};  // in the order of the row; whole numbers are exact
};

// A shape and a type that an output must have.
struct OutputSpec {
  Shape shape;
  Dtype dtype = Dtype::f32;
};

struct Cost {
  double bytes = 0;  // every input read once, every output written once
  double flops = 0;
};

// What a backend promises about the bits of an output.
enum class Promise {
  exact,  // the same on all backends
  fixed,  // the same on every run of one device and build
};

// How far an output may lie from the double reference, which is given the same inputs:
//   roundings * 2^-24 * magnitude,  magnitude = |reference|           (Magnitude::result)
//                                   = the operation on |inputs|       (Magnitude::terms)
// where for Magnitude::terms `roundings` grows with the number of terms, as roundings(call) says.
enum class Magnitude { result, terms };

// What an operation takes beside inputs that are all of f32 or all of f64.
enum class Narrow {
  none,
  // The first two inputs may be two of bf16 or two of f16. Their sums and the output are then f32,
  // which is what matrix units add up in.
  factors,
  heads,  // all inputs may be bf16, and the outputs are then; but lse stays f32
};

struct Op {
  const char* name;
  const char* inputs;      // "a b", "x w bias?": a ? marks what may be absent
  const char* attributes;  // "stride_y stride_x", "" for none
  int output_count;
  // The outputs' shapes and types. Throws std::invalid_argument, one line that names the operation,
  // the tensors and the reason: "matmul of f32 (2,3) and f32 (4,5): inner extents 3 and 4 differ".
  void (*infer)(const Call& call, OutputSpec* outputs);
  Cost (*cost)(const Call& call);
  // An elementwise operation as an expression of its inputs a, b and c, from formula_list.h: what
  // 8.6 fuses. Else nullptr.
  const char* formula;
  Promise promise;
  Magnitude scale;
  double (*roundings)(const Call& call);  // 0: the bits are those of the reference, rounded once
  // The call changes outputs that the caller must give: it reads what is there before it writes, so
  // that running it twice is not running it once.
  bool updates = false;
  Narrow narrow = Narrow::none;
};

extern const Op kOps[];
extern const int kOpCount;

// The row of that name. Throws std::invalid_argument where there is none, and says which is
// closest.
const Op& op_named(const char* name);
inline int row_of(const Op& op) { return static_cast<int>(&op - kOps); }

// "add of f32 (2,3) and f32 (4,5)", with "none" for an input that is absent.
std::string described(const Call& call);

}  // namespace framework
