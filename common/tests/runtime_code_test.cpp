// Code that is compiled while the program runs: on a stream and in a graph, kept for the next
// process, and what is said where that can't be.
#include "common/runtime_code.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/code_cache.h"
#include "common/device_buffer.h"
#include "common/error.h"
#include "common/graph.h"
#include "common/input_file.h"
#include "common/runtime_compiler.h"
#include "common/testing.h"
#include "common/tests/child.h"
#include "common/tests/emulator.h"
#include "common/tests/environment.h"

namespace {

namespace fs = std::filesystem;

// out[i] = in[i] + by, for n elements, 64 of them by a block.
std::string source_of_add(const std::string& by) {
#if defined(GPU_BACKEND_CPU)
  return "extern \"C\" void add(unsigned block_x, unsigned, const unsigned long long* arguments) "
         "{\n"
         "  float* out = (float*)arguments[0];\n  const float* in = (const float*)arguments[1];\n"
         "  for (unsigned long long i = block_x * 64; i < block_x * 64 + 64; ++i)\n"
         "    if (i < arguments[2]) out[i] = in[i] + " +
         by + ";\n}\n";
#else
  return "extern \"C\" __global__ void add(float* out, const float* in, unsigned long long n) {\n"
         "  const size_t i = blockIdx.x * 64 + threadIdx.x;\n  if (i < n) out[i] = in[i] + " +
         by + ";\n}\n";
#endif
}

// in[i] = i; the sum of what `code` makes of it.
double sum_of(const runtime_code::LoadedCode& code, hipStream_t stream = nullptr,
              bool as_graph = false) {
  constexpr size_t kCount = 1000;
  std::vector<float> host(kCount);
  for (size_t i = 0; i < kCount; ++i) host[i] = static_cast<float>(i);
  const gpu::DeviceBuffer<float> in(host);
  gpu::DeviceBuffer<float> out(kCount);
  runtime_code::KernelArguments arguments;
  arguments.add(out.data()), arguments.add(in.data()), arguments.add(kCount);
  const runtime_code::Kernel kernel = code.kernel("add");
  const auto launch = [&](hipStream_t on) {
    code.launch(kernel, static_cast<unsigned>(gpu::ceil_div(kCount, 64)), 64, arguments, on);
  };
  if (as_graph) {
    const gpu::Graph graph(stream, [&] { launch(stream); });
    arguments = {};  // the graph has its own
    graph.launch(stream);
    HIP_CHECK(hipStreamSynchronize(stream));
  } else {
    launch(stream);
  }
  HIP_CHECK(hipDeviceSynchronize());
  double sum = 0;
  for (const float value : out.to_host()) sum += static_cast<double>(value);
  return sum;
}
constexpr double kSum = 499500;

// A folder that is gone afterwards.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("runtime_code_test." + std::to_string(getpid()));
  Folder() {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

}  // namespace

TEST_CASE("a text is compiled once and runs on a stream and in a graph") {
  const Folder folder;
  KeptVariable cache("COURSE_CACHE_DIR");
  cache.set(folder / "cache");
  const runtime_code::Compiled first = runtime_code::compile(source_of_add("1.0f"));
  CHECK(contains_text(first.note, "compiled in "));
  CHECK(!contains_text(first.note, "not kept"));
  CHECK(sum_of(*first.module) == kSum + 1000);
  const gpu::Stream stream;
  CHECK(sum_of(*first.module, stream) == kSum + 1000);
  CHECK(sum_of(*first.module, stream, true) == kSum + 1000);
  const runtime_code::Compiled again = runtime_code::compile(source_of_add("1.0f"));
  CHECK(again.module == first.module);
  CHECK(again.note == "compiled, kept");
  CHECK(sum_of(*runtime_code::compile(source_of_add("2.0f")).module) == kSum + 2000);
  CHECK(testing::what_of<std::runtime_error>([&] { first.module->kernel("none"); }) != "");
}

TEST_CASE("several texts are compiled at the same time, each to its own code") {
  const Folder folder;
  KeptVariable cache("COURSE_CACHE_DIR");
  cache.set(folder / "cache");
  const runtime_code::Compiled known = runtime_code::compile(source_of_add("4.0f"));
  const std::vector<runtime_code::Compiled> all = runtime_code::compile(std::vector<std::string>{
      source_of_add("5.0f"), source_of_add("4.0f"), source_of_add("6.0f")});
  REQUIRE(all.size() == 3);
  CHECK(sum_of(*all[0].module) == kSum + 5000);
  CHECK(sum_of(*all[2].module) == kSum + 6000);
  CHECK(all[1].module == known.module);
  CHECK(all[1].note == "compiled, kept");
  CHECK(contains_text(all[0].note, "compiled in "));
  CHECK(all[2].note == all[0].note);
  CHECK(runtime_code::compile(source_of_add("6.0f")).module == all[2].module);
  const std::string what = testing::what_of<std::runtime_error>([] {
    runtime_code::compile(
        std::vector<std::string>{source_of_add("7.0f"), source_of_add("no_such_name")});
  });
  CHECK(contains_text(what, "no_such_name"));
}

TEST_CASE("a text with a mistake is one line that says where") {
  const std::string what = testing::what_of<std::runtime_error>(
      [] { runtime_code::compile(source_of_add("no_such_name")); });
  CHECK(contains_text(what, "the compiler refuses it: "));
  CHECK(contains_text(what, "no_such_name"));
  CHECK(!contains_text(what, "\n"));
}

TEST_CASE("compiles and says how", "[.child]") {
  try {
    const char* seconds = std::getenv("TEST_SECONDS");
    if (seconds != nullptr) runtime_code::seconds_of_a_compiler = std::atof(seconds);
    const runtime_code::Compiled compiled = runtime_code::compile(source_of_add("3.0f"));
    std::printf("%s; %s\n", compiled.note.c_str(),
                sum_of(*compiled.module) == kSum + 3000 ? "right" : "wrong");
  } catch (const std::runtime_error& error) {
    std::printf("refused: %s\n", error.what());
  }
}
namespace {
Outcome child_with(const std::string& environment) {
  return run_child("compiles and says how", environment);
}
}  // namespace

TEST_CASE("the next process has what this one has compiled, unless it is spoilt") {
  const Folder folder;
  const std::string cache = folder / "cache", environment = "COURSE_CACHE_DIR=" + cache;
  CHECK(child_with(environment).says("compiled in "));
  CHECK(child_with(environment).says("compiled, kept; right"));
  const std::string file = fs::directory_iterator(cache)->path().string();
  const std::string whole = input_file::read(file);
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 4);
  for (const std::string& spoilt : {std::string(), whole.substr(0, whole.size() / 2), flipped}) {
    std::ofstream(file, std::ios::binary) << spoilt;
    const Outcome outcome = child_with(environment);
    CHECK(outcome.says("compiled in "));
    CHECK(outcome.says("; right"));
    CHECK(child_with(environment).says("compiled, kept; right"));
  }
  fs::remove(file);
  fs::create_directory(file);
  CHECK(child_with(environment).says("not kept: " + file + " is a folder; right"));
}

TEST_CASE("code that can't be loaded is compiled again") {
  const Folder folder;
  KeptVariable cache("COURSE_CACHE_DIR");
  cache.set(folder / "cache");
  const std::string key = runtime_code::compiler_identity() + "\n" + source_of_add("3.0f");
  REQUIRE(code_cache::keep(key, "no code at all") == "");
  CHECK(child_with("").says("compiled in "));
  CHECK(child_with("").says("compiled, kept; right"));
}

TEST_CASE("without a folder it compiles and says that nothing is kept") {
  CHECK(child_with("-u HOME -u XDG_CACHE_HOME -u COURSE_CACHE_DIR")
            .says("not kept: neither COURSE_CACHE_DIR nor HOME is set; right"));
  CHECK(child_with("-u XDG_CACHE_HOME -u COURSE_CACHE_DIR HOME=/proc")
            .says("not kept: /proc/.cache/gpu-course cannot be made"));
}

TEST_CASE("processes that compile the same text at once do not hurt each other") {
  const Folder folder;
  const std::string one = "COURSE_CACHE_DIR='" + (folder / "cache") + "' " + own_command() +
                          " 'compiles and says how' & ";
  std::string command = "(";
  for (int i = 0; i < 6; ++i) command += one;
  const Outcome outcome = outcome_of(command + "wait) 2>&1");
  size_t right = 0;
  for (size_t at = 0; (at = outcome.text.find("; right", at)) != std::string::npos; ++at) ++right;
  INFO(outcome.text);
  CHECK(right == 6);
  CHECK(!outcome.says("not kept"));
  const auto files = fs::directory_iterator(folder / "cache");
  CHECK(std::distance(begin(files), end(files)) == 1);
}

#if defined(GPU_BACKEND_CPU)
namespace {
// A program of a shell that stands for a compiler.
std::string stand_in(const Folder& folder, const std::string& text) {
  const std::string path = folder / "compiler";
  std::ofstream(path) << "#!/bin/sh\n" << text;
  fs::permissions(path, fs::perms::owner_all);
  return path;
}
size_t leftovers(const std::string& folder) {
  const auto files = fs::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}
}  // namespace

TEST_CASE("without a compiler it says so") {
  if (emulator::leaves_out(emulator::kMissingCompiler)) return;
  const Folder folder;
  CHECK(child_with("-u CXX PATH=" + folder.path.string())
            .says("refused: no compiler: g++ is not found"));
  CHECK(child_with("CXX='no_such_compiler -O1' PATH=" + folder.path.string())
            .says("refused: no compiler: no_such_compiler is not found"));
}

TEST_CASE("a compiler that fails or hangs is named and leaves nothing") {
  const Folder folder;
  const std::string temporary = folder / "temporary", cache = folder / "cache";
  fs::create_directory(temporary);
  const std::string version = "[ \"$1\" = --version ] && echo 'stand-in 1.0' && exit\n";
  const auto answer = [&](const std::string& text) {
    return child_with("CXX='" + stand_in(folder, version + text) + "' TMPDIR='" + temporary +
                      "' COURSE_CACHE_DIR='" + cache + "' TEST_SECONDS=0.5");
  };
  CHECK(answer("echo note; echo 'fused.cpp:1: error: no space'; echo more; exit 1\n")
            .says("refused: the compiler refuses it: fused.cpp:1: error: no space\n"));
  CHECK(answer("touch $TMPDIR/left; sleep 60\n").says("takes too long and was ended"));
  CHECK(answer("exit 0\n").says("refused: "));  // and has made nothing
  CHECK(answer("while [ \"$1\" != -o ]; do shift; done; echo text > \"$2\"\n")
            .says("refused: dlopen"));
  CHECK(leftovers(temporary) == 0);
}

TEST_CASE("compiles two texts and says how", "[.child]") {
  const std::vector<std::string> texts{source_of_add("3.0f"), source_of_add("4.0f")};
  try {
    const std::vector<runtime_code::Compiled> both = runtime_code::compile(texts);
    std::printf("%s\n", sum_of(*both[1].module) == kSum + 4000 ? "right" : "wrong");
  } catch (const std::runtime_error& error) {
    std::printf("refused: %s\n", error.what());
  }
}
TEST_CASE("a compiler is begun for the second text before it is done with the first") {
  const Folder folder;
  fs::create_directory(folder / "begun");
  const std::string compiler = stand_in(
      folder, "[ \"$1\" = --version ] && echo 'stand-in 1.0' && exit\ncd '" + folder / "begun" +
                  "' || exit 1\ntouch $$\n"
                  "for i in $(seq 100); do\n"
                  "  [ $(ls | wc -l) -ge 2 ] && exec $REAL \"$@\"\n  sleep 0.1\ndone\n"
                  "echo 'error: one at a time'; exit 1\n");
  const Outcome outcome = run_child(
      "compiles two texts and says how",
      "REAL=\"${CXX:-g++}\" CXX='" + compiler + "' COURSE_CACHE_DIR='" + folder / "cache" + "'");
  INFO(outcome.text);
  CHECK(outcome.says("right"));
}

TEST_CASE("the options of $CXX come behind all others, so that they count") {
  const Folder folder;
  const std::string compiler =
      stand_in(folder,
               "case \"$*\" in *--version) echo 'stand-in 1.0'; exit;; esac\n"
               "echo \"fused.cpp:1: error: $*\"; exit 1\n");
  const Outcome outcome =
      child_with("CXX='" + compiler + " -O1' COURSE_CACHE_DIR='" + folder / "cache" + "'");
  CHECK(outcome.text.find(" -O3 ") < outcome.text.find(" -O1 "));
  CHECK(outcome.says(" -O1 "));
}

TEST_CASE("folders of processes that were killed are removed later on") {
  const Folder folder;
  const fs::path old = folder.path / "gpu-course-abcdef", fresh = folder.path / "gpu-course-ghijkl";
  fs::create_directory(old);
  std::ofstream(old / "fused.cpp") << "text";
  fs::create_directory(fresh);
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(1));
  CHECK(child_with("TMPDIR='" + folder.path.string() + "' COURSE_CACHE_DIR='" + folder / "cache" +
                   "'")
            .says("; right"));
  CHECK(!fs::exists(old));
  CHECK(fs::exists(fresh));
}
#endif
