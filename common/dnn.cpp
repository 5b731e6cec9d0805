#include "common/dnn.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#if defined(COURSE_HAVE_CUDNN)
#include <cuda_runtime_api.h>
#include <cudnn.h>
#endif

namespace dnn {

#if defined(COURSE_HAVE_CUDNN)

namespace {

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cudnnGetErrorString(status));
}

// Never destroyed: at the program's end the CUDA runtime may be gone before it.
cudnnHandle_t handle() {
  static const cudnnHandle_t once = [] {
    cudnnHandle_t made = nullptr;
    check(cudnnCreate(&made), "cudnnCreate");
    return made;
  }();
  return once;
}

// Where the next call is queued. Setting it takes the library a while. A stream may be another one
// at the same address.
void use(void* stream) {
  static void* now = nullptr;  // the default stream, as in a new handle
  if (stream == nullptr && now == nullptr) return;
  check(cudnnSetStream(handle(), static_cast<cudaStream_t>(stream)), "cudnnSetStream");
  now = stream;
}

int number(std::size_t size) {
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::runtime_error("cuDNN takes no sizes above 2^31 - 1");
  return static_cast<int>(size);
}

// An algorithm, the memory that it wants and its name; found at its first use.
template <class Algorithm>
struct Chosen {
  bool found = false;
  Algorithm algorithm{};
  std::string name;
};

// The fastest of the algorithms that ran in float: `find` times them and fills `results`, fastest
// first.
template <class Performance, class Algorithm, class Find>
std::size_t choose(Chosen<Algorithm>& chosen, const char* call, const char* const* names, int count,
                   Find&& find) {
  constexpr int kMost = 16;
  Performance results[kMost];
  int returned = 0;
  check(find(kMost, &returned, results), call);
  for (int i = 0; i < returned; ++i)
    if (results[i].status == CUDNN_STATUS_SUCCESS && results[i].mathType == CUDNN_FMA_MATH) {
      chosen.found = true, chosen.algorithm = results[i].algo;
      const int index = static_cast<int>(results[i].algo);
      chosen.name = index < count ? names[index] : "algorithm " + std::to_string(index);
      return results[i].memory;
    }
  throw std::runtime_error(std::string(call) + ": no algorithm takes this shape");
}

constexpr const char* kForwardNames[] = {
    "implicit gemm", "implicit precomputed gemm", "gemm", "direct", "fft", "fft tiled",
    "winograd",      "winograd nonfused"};
constexpr const char* kDataNames[] = {"algorithm 0", "algorithm 1", "fft",
                                      "fft tiled",   "winograd",    "winograd nonfused"};
constexpr const char* kFilterNames[] = {"algorithm 0", "algorithm 1", "fft",
                                        "algorithm 3", "winograd",    "winograd nonfused",
                                        "fft tiled"};

template <std::size_t count>
constexpr int length(const char* const (&)[count]) {
  return static_cast<int>(count);
}

}  // namespace

struct Convolution::State {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr, bias = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  Chosen<cudnnConvolutionFwdAlgo_t> forward;
  Chosen<cudnnConvolutionBwdDataAlgo_t> data;
  Chosen<cudnnConvolutionBwdFilterAlgo_t> filter;
  void* memory = nullptr;
  std::size_t bytes = 0;

  ~State() {  // a destructor must not throw; these fail only once the device is lost
    if (x != nullptr) static_cast<void>(cudnnDestroyTensorDescriptor(x));
    if (y != nullptr) static_cast<void>(cudnnDestroyTensorDescriptor(y));
    if (bias != nullptr) static_cast<void>(cudnnDestroyTensorDescriptor(bias));
    if (w != nullptr) static_cast<void>(cudnnDestroyFilterDescriptor(w));
    if (convolution != nullptr) static_cast<void>(cudnnDestroyConvolutionDescriptor(convolution));
    static_cast<void>(cudaFree(memory));
  }
  void reserve(std::size_t wanted) {
    if (wanted <= bytes) return;
    static_cast<void>(cudaFree(memory));
    memory = nullptr, bytes = 0;
    if (cudaMalloc(&memory, wanted) != cudaSuccess)
      throw std::runtime_error("cuDNN: no memory for its workspace of " + std::to_string(wanted) +
                               " bytes");
    bytes = wanted;
  }
};

const char* name() { return "cuDNN"; }
bool available() { return true; }

Convolution::Convolution(const Shape& s) : state_(new State) {
  const auto tensor = [](cudnnTensorDescriptor_t& made, std::size_t n, std::size_t c, std::size_t h,
                         std::size_t w) {
    check(cudnnCreateTensorDescriptor(&made), "cudnnCreateTensorDescriptor");
    check(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, number(n),
                                     number(c), number(h), number(w)),
          "cudnnSetTensor4dDescriptor");
  };
  tensor(state_->x, s.N, s.C, s.H, s.W);
  tensor(state_->y, s.N, s.K, (s.H + 2 * s.pad_h - s.R) / s.stride_h + 1,
         (s.W + 2 * s.pad_w - s.S) / s.stride_w + 1);
  tensor(state_->bias, 1, s.K, 1, 1);
  check(cudnnCreateFilterDescriptor(&state_->w), "cudnnCreateFilterDescriptor");
  check(cudnnSetFilter4dDescriptor(state_->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, number(s.K),
                                   number(s.C), number(s.R), number(s.S)),
        "cudnnSetFilter4dDescriptor");
  check(cudnnCreateConvolutionDescriptor(&state_->convolution), "cudnnCreateConvolutionDescriptor");
  check(cudnnSetConvolution2dDescriptor(state_->convolution, number(s.pad_h), number(s.pad_w),
                                        number(s.stride_h), number(s.stride_w), 1, 1,
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  check(cudnnSetConvolutionMathType(state_->convolution, CUDNN_FMA_MATH),
        "cudnnSetConvolutionMathType");
}

void Convolution::forward(float* y, const float* x, const float* w, void* stream) {
  use(stream);
  State& s = *state_;
  if (!s.forward.found)
    s.reserve(choose<cudnnConvolutionFwdAlgoPerf_t>(
        s.forward, "cudnnFindConvolutionForwardAlgorithm", kForwardNames, length(kForwardNames),
        [&](int most, int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
          return cudnnFindConvolutionForwardAlgorithm(handle(), s.x, s.w, s.convolution, s.y, most,
                                                      returned, results);
        }));
  const float one = 1, zero = 0;
  check(cudnnConvolutionForward(handle(), &one, s.x, x, s.w, w, s.convolution, s.forward.algorithm,
                                s.memory, s.bytes, &zero, s.y, y),
        "cudnnConvolutionForward");
}

void Convolution::add_bias(float* y, const float* bias, void* stream) {
  use(stream);
  const float one = 1;
  check(cudnnAddTensor(handle(), &one, state_->bias, bias, &one, state_->y, y), "cudnnAddTensor");
}

void Convolution::backward_data(float* grad_x, const float* grad_y, const float* w, void* stream) {
  use(stream);
  State& s = *state_;
  if (!s.data.found)
    s.reserve(choose<cudnnConvolutionBwdDataAlgoPerf_t>(
        s.data, "cudnnFindConvolutionBackwardDataAlgorithm", kDataNames, length(kDataNames),
        [&](int most, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results) {
          return cudnnFindConvolutionBackwardDataAlgorithm(handle(), s.w, s.y, s.convolution, s.x,
                                                           most, returned, results);
        }));
  const float one = 1, zero = 0;
  check(cudnnConvolutionBackwardData(handle(), &one, s.w, w, s.y, grad_y, s.convolution,
                                     s.data.algorithm, s.memory, s.bytes, &zero, s.x, grad_x),
        "cudnnConvolutionBackwardData");
}

void Convolution::backward_filter(float* grad_w, const float* grad_y, const float* x,
                                  void* stream) {
  use(stream);
  State& s = *state_;
  if (!s.filter.found)
    s.reserve(choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
        s.filter, "cudnnFindConvolutionBackwardFilterAlgorithm", kFilterNames, length(kFilterNames),
        [&](int most, int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
          return cudnnFindConvolutionBackwardFilterAlgorithm(handle(), s.x, s.y, s.convolution, s.w,
                                                             most, returned, results);
        }));
  const float one = 1, zero = 0;
  check(cudnnConvolutionBackwardFilter(handle(), &one, s.x, x, s.y, grad_y, s.convolution,
                                       s.filter.algorithm, s.memory, s.bytes, &zero, s.w, grad_w),
        "cudnnConvolutionBackwardFilter");
}

void Convolution::backward_bias(float* grad_bias, const float* grad_y, void* stream) {
  use(stream);
  State& s = *state_;
  const float one = 1, zero = 0;
  check(cudnnConvolutionBackwardBias(handle(), &one, s.y, grad_y, &zero, s.bias, grad_bias),
        "cudnnConvolutionBackwardBias");
}

std::string Convolution::forward_algorithm() const { return state_->forward.name; }
std::string Convolution::data_algorithm() const { return state_->data.name; }
std::string Convolution::filter_algorithm() const { return state_->filter.name; }

#else

struct Convolution::State {};

namespace {
[[noreturn]] void refuse() { throw std::runtime_error("this build has no cuDNN"); }
}  // namespace

const char* name() { return ""; }
bool available() { return false; }

Convolution::Convolution(const Shape&) { refuse(); }
void Convolution::forward(float*, const float*, const float*, void*) { refuse(); }
void Convolution::add_bias(float*, const float*, void*) { refuse(); }
void Convolution::backward_data(float*, const float*, const float*, void*) { refuse(); }
void Convolution::backward_filter(float*, const float*, const float*, void*) { refuse(); }
void Convolution::backward_bias(float*, const float*, void*) { refuse(); }
std::string Convolution::forward_algorithm() const { refuse(); }
std::string Convolution::data_algorithm() const { refuse(); }
std::string Convolution::filter_algorithm() const { refuse(); }

#endif

Convolution::~Convolution() = default;

}  // namespace dnn
