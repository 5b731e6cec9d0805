#include "common/sizes.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "common/options.h"

namespace sizes {

namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

// The kilobytes of /proc/meminfo, in bytes.
std::size_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  for (std::size_t kilobytes = 0; in >> key >> kilobytes; in.ignore(64, '\n'))
    if (key == "MemAvailable:") return kilobytes * 1024;
  return kUnknown;
}

// Of a container's control group, version 2, as it sees it: its limit less what it uses and the
// kernel would not give up (files that were read).
std::size_t group_memory() {
  const std::string group = "/sys/fs/cgroup/memory.";
  std::size_t most = 0, used = 0, files = 0;
  std::ifstream limit(group + "max"), usage(group + "current"), statistics(group + "stat");
  if (!(limit >> most) || !(usage >> used)) return kUnknown;  // "max" is no number
  std::string key;
  for (std::size_t value = 0; statistics >> key >> value;)
    if (key == "inactive_file") files = value;
  used -= std::min(used, files);
  return most - std::min(most, used);
}

// Addresses that RLIMIT_AS leaves.
std::size_t address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t most = limit.rlim_cur;
  return most - std::min(most, pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

std::size_t checked_product(const std::vector<std::size_t>& extents) {
  std::size_t product = 1;
  for (const std::size_t extent : extents) {
    if (extent == 0) continue;
    if (extent > kMostProduct / product)
      throw UsageError("--size: the product of the dimensions is above 2^56: choose smaller ones");
    product *= extent;
  }
  return product;
}

std::size_t host_memory() {
  return std::min({available_memory(), group_memory(), address_space()});
}

void require_host_memory(double bytes) {
  const double available = static_cast<double>(host_memory());
  if (bytes > available)
    throw UsageError(
        fmt::format("this size needs {:.1f} GB of host memory and {:.1f} GB are free: choose a "
                    "smaller --size",
                    bytes / 1e9, available / 1e9));
}

}  // namespace sizes
