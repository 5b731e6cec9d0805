// The program's three tables, and what an eager operation costs the host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/gpu_runtime.h"
#include "common/options.h"
#include "common/report.h"
#include "stage8_framework/01_tensor/storage.h"
#include "stage8_framework/02_backends/problem.h"

namespace backends {

// Where the tensors of a version of the dispatch lie, and its stream. On the CPU backend a plug-in
// has a runtime of its own, so that `plugin` works in own's memory; on a GPU all share the driver.
struct RunsOn {
  framework::Device& device;
  hipStream_t stream = nullptr;
  std::function<void()> wait = [] {};  // until all that is queued is done
};
// Of the others, and on a GPU of all: `device`, in the default stream.
RunsOn runs_on(const std::string& version, framework::Device& device);

// From a Call to a launcher: the host's time of a call, and what it is above that of the launcher.
void run_dispatch(const Options& options, Report& report);
// The host's time of an add by the framework, with and without its allocation.
void run_eager(const Options& options, Report& report);
// A network whose operands are on the host, or on the device.
void run_memory(const Options& options, Report& report);
// One operation by every policy.
void run_kernels(const Case& c, const Options& options, Report& report);

// ---- For programs of later steps, too ----

// Fills a tensor without gaps with the bytes that nothing correct has.
void poison(const framework::Tensor& tensor);
// Random numbers in [-1, 1).
std::vector<float> numbers(std::uint64_t seed, std::uint32_t stream, size_t count);
// Gives the rows that are right their times: of ms(i), what row i
// takes once, in interleaved rounds.
void time_rounds(std::vector<Row>& rows, const Options& options,
                 const std::function<double(size_t i)>& ms);

}  // namespace backends
