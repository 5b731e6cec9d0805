#include "common/runtime_code.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/code_cache.h"
#include "common/runtime_compiler.h"

namespace runtime_code {

namespace {

using Modules = std::map<std::pair<int, std::string>, std::shared_ptr<const LoadedCode>>;

// Never destroyed: at the program's end the device's runtime may be gone before it.
Modules& modules() {
  static Modules& once = *new Modules;
  return once;
}

// nullptr where nothing was kept, or what was kept can't be loaded: it is compiled again then.
std::shared_ptr<const LoadedCode> kept_module(const std::string& key) {
  const std::optional<std::string> code = code_cache::find(key);
  if (!code) return nullptr;
  try {
    return loaded(*code);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
}

Compiled newly_compiled(const std::string& key, const std::string& source) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string code = code_of(source);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  Compiled made{loaded(code), ""};
  char text[64];
  std::snprintf(text, sizeof text, "compiled in %.1f ms", took.count());
  const std::string obstacle = code_cache::keep(key, code);
  made.note = obstacle.empty() ? text : text + (", not kept: " + obstacle);
  return made;
}

}  // namespace

Compiled compile(const std::string& source) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int device = 0;
  HIP_CHECK(hipGetDevice(&device));
  const std::string key = compiler_identity() + "\n" + source;
  std::shared_ptr<const LoadedCode>& known = modules()[{device, key}];
  if (known == nullptr) known = kept_module(key);
  if (known != nullptr) return {known, "compiled, kept"};
  Compiled made = newly_compiled(key, source);
  known = made.module;
  return made;
}

}  // namespace runtime_code
