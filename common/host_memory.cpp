#include "common/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace host {

std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

namespace {

std::size_t meminfo(const char* key) {  // /proc/meminfo counts kilobytes
  return std::strtoull(proc_value("/proc/meminfo", key).c_str(), nullptr, 10) * 1024;
}

// A file with one number; `fallback` where there is no file or no number ("max").
std::size_t number_in(const std::string& file, std::size_t fallback) {
  std::ifstream in(file);
  std::size_t value = 0;
  return in >> value ? value : fallback;
}

// Bytes of the group's files that the kernel would give up before it refuses memory.
std::size_t reclaimable(const std::string& group) {
  std::ifstream in(group + "/memory.stat");
  std::string key;
  for (std::size_t value = 0; in >> key >> value;)
    if (key == "inactive_file") return value;
  return 0;
}

}  // namespace

MemoryLimit memory() {
  const std::string root = "/sys/fs/cgroup";
  MemoryLimit limit{meminfo("MemTotal"), meminfo("MemAvailable")};
  const auto apply = [&](const std::string& group, const char* max_file, const char* used_file) {
    const std::size_t max = number_in(group + max_file, limit.total);
    if (max >= limit.total && limit.total != 0) return;
    const std::size_t used = number_in(group + used_file, 0);
    const std::size_t held = used - std::min(used, reclaimable(group));
    limit.total = max;
    limit.available = std::min(limit.available, max - std::min(max, held));
  };
  // The tightest control group from ours up to the root, in version 2; version 1 shows a
  // container's own at a fixed place.
  std::string path = proc_value("/proc/self/cgroup", "0:");  // ":/group/of/this/process"
  path = path.compare(0, 2, ":/") == 0 ? path.substr(1) : "";
  for (;; path.resize(path.rfind('/'))) {
    apply(root + path, "/memory.max", "/memory.current");
    if (path.empty()) break;
  }
  apply(root + "/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes");
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t held = page * number_in("/proc/self/statm", 0);
    limit.total = std::min<std::size_t>(limit.total, addresses.rlim_cur);
    limit.available = std::min<std::size_t>(
        limit.available, addresses.rlim_cur - std::min(addresses.rlim_cur, held));
  }
  return limit;
}

}  // namespace host
