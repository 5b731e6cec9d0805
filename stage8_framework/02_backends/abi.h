/* The table that a plug-in fills in: all that the framework asks of a backend. Plain C, so that a
   plug-in and the program may come from different compilers and from different days. Every struct
   is read by both sides: whatever changes here, or in a row of kOps that there was before, makes
   COURSE_ABI_VERSION one higher.

     program                                plug-in, libcourse_NAME.so
     ops.h  "add"    -- find("add") -->     7
     Call            -- run(7, ...) -->     a launcher of step 1.1, queued on a stream

   Nothing is thrown across the table. A function that can fail returns 0, or not 0 with the reason
   in `error`; then it has done nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COURSE_ABI_VERSION 3u

/* `code` is the hipError_t or cudaError_t where a call of the device failed, else -1. `text` is one
   line without its end. */
typedef struct CourseError {
  int32_t code;
  char text[508];
} CourseError;

/* A tensor as a backend sees it. `data` is the address of element (0, ..., 0) in the backend's
   memory; it is NULL where there are no elements. `dtype` counts as framework::Dtype does. Extents
   and strides (in elements; 0 and negative ones occur in inputs) are `rank` numbers each. A rank
   of -1 stands for an optional input that is absent. */
typedef struct CourseTensor {
  void* data;
  const int64_t* extent;
  const int64_t* stride;
  int32_t rank;
  int32_t dtype;
} CourseTensor;

/* One operation to be run. Inputs, outputs and attributes are in the order of the operation's row
   in kOps. Outputs are allocated by the caller; no output overlaps an input or another output. */
typedef struct CourseCall {
  int32_t op;     /* what find() returned */
  int32_t kernel; /* which of the kernels of `op`; 0 is the backend's own choice */
  int32_t input_count;
  int32_t output_count;
  const CourseTensor* inputs;
  const CourseTensor* outputs;
  const double* attributes;
  void* workspace; /* workspace(call) bytes, aligned to 128, of nobody else while the call runs */
} CourseCall;

/* Operations on elements that are run as one (8.6). All values have the shape of `domain`: value v
   is input v, broadcast, and value input_count + i what instruction i makes of earlier ones. */
typedef struct CourseInstruction {
  const char* formula; /* the operation's name in kOps; NULL: the number */
  int32_t values[3];   /* what it is made of, in the order of the operation's inputs */
  float number;
} CourseInstruction;
typedef struct CourseProgram {
  int32_t rank; /* of the domain */
  const int64_t* extent;
  int32_t input_count, instruction_count, output_count;
  const CourseInstruction* instructions;
  const int32_t* outputs; /* the values that are stored, as f32, row-major without gaps */
  /* What is stored of the last of these: 0 the value; 1 its sum, 2 its mean, 3 its maximum over
     `axes` of the domain, of which bit d is axis d. */
  int32_t reduction;
  uint32_t axes;
} CourseProgram;

typedef struct CourseBackend {
  uint32_t abi_version;  /* COURSE_ABI_VERSION of the header that the plug-in was compiled with */
  uint32_t struct_bytes; /* sizeof(CourseBackend) there */
  const char* name;      /* "reference", "own", "vendor" */
  /* What memory its tensors lie in: "host", "cpu", "cuda" or "hip". Plug-ins of one memory can work
     on each other's tensors. */
  const char* memory;

  int32_t (*device_count)(void);
  /* Begins to use device number `device`. The state is given to every other function. */
  int32_t (*open)(int32_t device, void** state, CourseError* error);
  void (*close)(void* state);

  /* ---- Memory. NULL in a plug-in that works in the memory of another one. ---- */
  int32_t (*allocate)(void* state, size_t bytes, void** block, CourseError* error);
  void (*free)(void* state, void* block);
  /* Both return when all bytes have arrived; work that was queued on `stream` before is done. */
  int32_t (*to_device)(void* state, void* to, const void* host, size_t bytes, void* stream,
                       CourseError* error);
  int32_t (*to_host)(void* state, void* host, const void* from, size_t bytes, void* stream,
                     CourseError* error);

  /* ---- Order. NULL where run() has done its work when it returns. A stream of NULL is the
     device's default one. ---- */
  int32_t (*stream_create)(void* state, void** stream, CourseError* error);
  void (*stream_destroy)(void* state, void* stream);
  int32_t (*stream_wait)(void* state, void* stream, CourseError* error); /* the host waits */
  int32_t (*event_create)(void* state, void** event, CourseError* error);
  void (*event_destroy)(void* state, void* event);
  int32_t (*event_record)(void* state, void* event, void* stream, CourseError* error);
  int32_t (*stream_wait_event)(void* state, void* stream, void* event, CourseError* error);
  int32_t (*event_seconds)(void* state, void* begin, void* end, double* seconds,
                           CourseError* error); /* waits for `end` */
  int32_t (*capture_begin)(void* state, void* stream, CourseError* error);
  int32_t (*capture_end)(void* state, void* stream, void** graph, CourseError* error);
  int32_t (*graph_launch)(void* state, void* graph, void* stream, CourseError* error);
  void (*graph_destroy)(void* state, void* graph);

  /* ---- Operations ---- */
  /* The backend's number of an operation by its name in kOps, or -1 where it has none. */
  int32_t (*find)(void* state, const char* op);
  /* The names of an operation's kernels, from 1 on; NULL behind the last one. */
  const char* (*kernel_name)(void* state, int32_t op, int32_t kernel);
  /* NULL where run() will take this call, else the reason why not, in a few words: "inputs must be
     contiguous", "f64 is not supported". Looks at shapes, strides, types and attributes only. */
  const char* (*supports)(void* state, const CourseCall* call);
  size_t (*workspace)(void* state, const CourseCall* call); /* of a call that is supported */
  /* Queues the call on `stream`. */
  int32_t (*run)(void* state, const CourseCall* call, void* stream, CourseError* error);

  /* ---- Fused operations. NULL where there are none. ---- */
  /* Makes work of each of `count` programs, for inputs of these shapes, strides and types (f32 or
     bool); their data is not looked at. `kernel`: 1 interpreted, 2 compiled, 0 compiled where that
     can be done. Programs are compiled together, as one text or at the same time. Where a program
     or an input of it is not supported, its `fused` is NULL and its `errors` has the reason. */
  void (*fuse)(void* state, int32_t count, const CourseProgram* programs,
               const CourseTensor* const* inputs, int32_t kernel, void** fused,
               CourseError* errors);
  void (*fused_destroy)(void* state, void* fused);
  size_t (*fused_workspace)(void* state, void* fused);
  /* What runs it: "compiled in 12.3 ms", "interpreted: no compiler, as libnvrtc.so is not found".
     It lives as long as the work. */
  const char* (*fused_note)(void* state, void* fused);
  /* Queues the work, as run() does, on the call's inputs, outputs and workspace. */
  int32_t (*fused_run)(void* state, void* fused, const CourseCall* call, void* stream,
                       CourseError* error);
} CourseBackend;

/* The one symbol that a plug-in exports. The table lives as long as the process. */
const CourseBackend* course_backend(void);
typedef const CourseBackend* (*CourseBackendFunction)(void);

#ifdef __cplusplus
}
#endif
