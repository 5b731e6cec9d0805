// The plug-in `own`: the course's own kernels, on the backend that this build is for. Memory, order
// and graphs are those of the runtime; an operation is an adapter to a launcher of stages 1 to 7.
#include <cstring>
#include <exception>

#include "common/gpu_runtime.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {
namespace {

const std::vector<Operation>& operations();

// What a call needs lies together: the code of a launch has emptied the caches before each one.
struct State {
  std::int32_t device;
  bool is_only_device;
  const Operation* operations;
};

hipStream_t stream_of(void* stream) { return static_cast<hipStream_t>(stream); }
hipEvent_t event_of(void* event) { return static_cast<hipEvent_t>(event); }

std::int32_t device_count() {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess ? count : 0;
}

// Makes the device this thread's current one. To ask which one it is takes less than to set it, and
// the only one always is.
void make_current(const State& state) {
  if (state.is_only_device) return;
  int current;
  HIP_CHECK(hipGetDevice(&current));
  if (current != state.device) HIP_CHECK(hipSetDevice(state.device));
}

// Does `work` on the device of `state`. What it throws ends here: nothing crosses the table.
template <class Work>
std::int32_t guarded(void* state, CourseError* error, Work&& work) {
  try {
    make_current(*static_cast<const State*>(state));
    work();
    return 0;
  } catch (const gpu::Error& failed) {
    return fail(error, failed.code, failed.what());
  } catch (const std::exception& failed) {
    return fail(error, -1, failed.what());
  }
}
// The same for what can't be refused: there is nobody to tell.
template <class Work>
void unguarded(void* state, Work&& work) {
  CourseError error;
  guarded(state, &error, work);
}

std::int32_t open(std::int32_t device, void** state, CourseError* error) {
  State asked{device, device_count() == 1 && device == 0, operations().data()};
  if (guarded(&asked, error, [] {}) != 0) return 1;
  *state = new State(asked);
  return 0;
}
void close(void* state) { delete static_cast<State*>(state); }

// ---- Memory -------------------------------------------------------------------------------------

std::int32_t allocate(void* state, size_t bytes, void** block, CourseError* error) {
  *block = nullptr;
  return guarded(state, error, [&] {
    if (bytes > 0) HIP_CHECK(hipMalloc(block, bytes));
  });
}
void free_block(void* state, void* block) {
  unguarded(state, [&] { HIP_CHECK(hipFree(block)); });
}

std::int32_t copy(void* state, void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                  void* stream, CourseError* error) {
  return guarded(state, error, [&] {
    if (bytes == 0) return;
    HIP_CHECK(hipMemcpyAsync(to, from, bytes, kind, stream_of(stream)));
    HIP_CHECK(hipStreamSynchronize(stream_of(stream)));
  });
}
std::int32_t to_device(void* state, void* to, const void* host, size_t bytes, void* stream,
                       CourseError* error) {
  return copy(state, to, host, bytes, hipMemcpyHostToDevice, stream, error);
}
std::int32_t to_host(void* state, void* host, const void* from, size_t bytes, void* stream,
                     CourseError* error) {
  return copy(state, host, from, bytes, hipMemcpyDeviceToHost, stream, error);
}

// ---- Order --------------------------------------------------------------------------------------

std::int32_t stream_create(void* state, void** stream, CourseError* error) {
  return guarded(state, error, [&] {
    hipStream_t made;
    HIP_CHECK(hipStreamCreate(&made));
    *stream = made;
  });
}
void stream_destroy(void* state, void* stream) {
  unguarded(state, [&] { HIP_CHECK(hipStreamDestroy(stream_of(stream))); });
}
std::int32_t stream_wait(void* state, void* stream, CourseError* error) {
  return guarded(state, error, [&] { HIP_CHECK(hipStreamSynchronize(stream_of(stream))); });
}

std::int32_t event_create(void* state, void** event, CourseError* error) {
  return guarded(state, error, [&] {
    hipEvent_t made;
    HIP_CHECK(hipEventCreate(&made));
    *event = made;
  });
}
void event_destroy(void* state, void* event) {
  unguarded(state, [&] { HIP_CHECK(hipEventDestroy(event_of(event))); });
}
std::int32_t event_record(void* state, void* event, void* stream, CourseError* error) {
  return guarded(state, error,
                 [&] { HIP_CHECK(hipEventRecord(event_of(event), stream_of(stream))); });
}
std::int32_t stream_wait_event(void* state, void* stream, void* event, CourseError* error) {
  return guarded(state, error,
                 [&] { HIP_CHECK(hipStreamWaitEvent(stream_of(stream), event_of(event), 0)); });
}
std::int32_t event_seconds(void* state, void* begin, void* end, double* seconds,
                           CourseError* error) {
  return guarded(state, error, [&] {
    float milliseconds = 0;
    HIP_CHECK(hipEventSynchronize(event_of(end)));
    HIP_CHECK(hipEventElapsedTime(&milliseconds, event_of(begin), event_of(end)));
    *seconds = static_cast<double>(milliseconds) / 1000;
  });
}

std::int32_t capture_begin(void* state, void* stream, CourseError* error) {
  return guarded(state, error, [&] {
    HIP_CHECK(hipStreamBeginCapture(stream_of(stream), hipStreamCaptureModeThreadLocal));
  });
}
std::int32_t capture_end(void* state, void* stream, void** graph, CourseError* error) {
  return guarded(state, error, [&] {
    hipGraph_t captured;
    HIP_CHECK(hipStreamEndCapture(stream_of(stream), &captured));
    hipGraphExec_t made;
    const hipError_t failed = hipGraphInstantiateWithFlags(&made, captured, 0);
    HIP_CHECK(hipGraphDestroy(captured));
    HIP_CHECK(failed);
    *graph = made;
  });
}
std::int32_t graph_launch(void* state, void* graph, void* stream, CourseError* error) {
  return guarded(state, error, [&] {
    HIP_CHECK(hipGraphLaunch(static_cast<hipGraphExec_t>(graph), stream_of(stream)));
  });
}
void graph_destroy(void* state, void* graph) {
  unguarded(state, [&] { HIP_CHECK(hipGraphExecDestroy(static_cast<hipGraphExec_t>(graph))); });
}

// ---- Operations ---------------------------------------------------------------------------------

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for (const auto& part : {elementwise(), moves(), gathers(), reductions(), products(),
                             row_operations(), losses(), images(), transformer(), updates()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}
const Operation& operation(const CourseCall* call) {
  return operations()[static_cast<size_t>(call->op)];
}

std::int32_t find(void*, const char* op) {
  for (size_t i = 0; i < operations().size(); ++i)
    if (std::strcmp(operations()[i].name, op) == 0) return static_cast<std::int32_t>(i);
  return -1;
}

const char* kernel_name(void*, std::int32_t op, std::int32_t kernel) {
  const auto name = operations()[static_cast<size_t>(op)].kernel;
  return name == nullptr ? nullptr : name(kernel);
}

// Copies alone write to any strides.
const char* supports(void*, const CourseCall* call) {
  if (operation(call).writes_any_strides) return operation(call).supports(*call);
  for (int i = 0; i < call->output_count; ++i)
    if (!is_contiguous(call->outputs[i])) return "outputs must be row-major without gaps";
  return operation(call).supports(*call);
}

// It may depend on the device. Where it throws, run() throws the same.
size_t workspace(void* state, const CourseCall* call) {
  const auto bytes_of = operation(call).workspace;
  size_t bytes = 0;
  if (bytes_of != nullptr) unguarded(state, [&] { bytes = bytes_of(*call); });
  return bytes;
}

std::int32_t run(void* state, const CourseCall* call, void* stream, CourseError* error) {
  const Operation& asked = static_cast<const State*>(state)->operations[call->op];
  return guarded(state, error, [&] { asked.run(*call, stream_of(stream)); });
}

// ---- Fused operations ---------------------------------------------------------------------------

const Fused& fused_of(void* fused) { return *static_cast<const Fused*>(fused); }

void make_fused(void* state, std::int32_t count, const CourseProgram* programs,
                const CourseTensor* const* inputs, std::int32_t kernel, void** fused,
                CourseError* errors) {
  FusedPrograms together;
  unguarded(state, [&] {
    together = fuse_together(programs, inputs, static_cast<size_t>(count), kernel);
  });
  for (std::int32_t i = 0; i < count; ++i) {
    fused[i] = nullptr;
    if (!together.empty())
      fused[i] = together[static_cast<size_t>(i)].release();
    else
      guarded(state, &errors[i],
              [&] { fused[i] = fuse(programs[i], inputs[i], kernel).release(); });
  }
}
void fused_destroy(void* state, void* fused) {
  unguarded(state, [&] { delete static_cast<const Fused*>(fused); });
}
size_t fused_workspace(void*, void* fused) { return fused_of(fused).workspace(); }
const char* fused_note(void*, void* fused) { return fused_of(fused).note(); }
std::int32_t fused_run(void* state, void* fused, const CourseCall* call, void* stream,
                       CourseError* error) {
  return guarded(state, error, [&] { fused_of(fused).run(*call, stream_of(stream)); });
}

constexpr CourseBackend make_table() {
  CourseBackend table{};
  table.abi_version = COURSE_ABI_VERSION, table.struct_bytes = sizeof(CourseBackend);
  table.name = COURSE_OWN_NAME, table.memory = gpu::kBackend;
  table.device_count = device_count, table.open = open, table.close = close;
  table.allocate = allocate, table.free = free_block;
  table.to_device = to_device, table.to_host = to_host;
  table.stream_create = stream_create, table.stream_destroy = stream_destroy;
  table.stream_wait = stream_wait;
  table.event_create = event_create, table.event_destroy = event_destroy;
  table.event_record = event_record, table.stream_wait_event = stream_wait_event;
  table.event_seconds = event_seconds;
  table.capture_begin = capture_begin, table.capture_end = capture_end;
  table.graph_launch = graph_launch, table.graph_destroy = graph_destroy;
  table.find = find, table.kernel_name = kernel_name, table.supports = supports;
  table.workspace = workspace, table.run = run;
  table.fuse = make_fused, table.fused_destroy = fused_destroy;
  table.fused_workspace = fused_workspace, table.fused_note = fused_note;
  table.fused_run = fused_run;
  return table;
}
constexpr CourseBackend kTable = make_table();

}  // namespace
}  // namespace own

extern "C" __attribute__((visibility("default"))) const CourseBackend* course_backend() {
  return &own::kTable;
}
