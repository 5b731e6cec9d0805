#include "common/runtime_code.h"

#include <chrono>
#include <cstdio>
#include <future>
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

// A text that is new, and the thread that compiles it. What is destroyed has waited for it.
struct InWork {
  size_t number;
  std::string key;
  std::future<std::string> code;
};

// What a compiler takes for all of them: the caller waits for the last one.
std::string time_since(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  char text[64];
  std::snprintf(text, sizeof text, "compiled in %.1f ms", took.count());
  return text;
}

}  // namespace

std::vector<Compiled> compile(const std::vector<std::string>& sources) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int device = 0;
  HIP_CHECK(hipGetDevice(&device));
  const std::string identity = compiler_identity();
  std::vector<Compiled> all(sources.size());
  std::vector<InWork> in_work;
  const auto begin = std::chrono::steady_clock::now();
  const auto how = sources.size() > 1 ? std::launch::async : std::launch::deferred;
  for (size_t i = 0; i < sources.size(); ++i) {
    std::string key = identity + "\n" + sources[i];
    std::shared_ptr<const LoadedCode>& known = modules()[{device, key}];
    if (known == nullptr) known = kept_module(key);
    all[i] = {known, "compiled, kept"};
    if (known != nullptr) continue;
    in_work.push_back({i, std::move(key), std::async(how, [&sources, device, i] {
                         HIP_CHECK(hipSetDevice(device));  // a new thread begins with the first one
                         return code_of(sources[i]);
                       })});
  }
  std::vector<std::string> codes;
  for (InWork& text : in_work) codes.push_back(text.code.get());
  const std::string time = time_since(begin);
  for (size_t i = 0; i < in_work.size(); ++i) {
    const InWork& text = in_work[i];
    const std::string obstacle = code_cache::keep(text.key, codes[i]);
    all[text.number] = {loaded(codes[i]),
                        obstacle.empty() ? time : time + ", not kept: " + obstacle};
    modules()[{device, text.key}] = all[text.number].module;
  }
  return all;
}

Compiled compile(const std::string& source) {
  return compile(std::vector<std::string>{source}).front();
}

}  // namespace runtime_code
