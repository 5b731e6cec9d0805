// The host's compiler, started as a program, and dlopen.
#include "common/runtime_compiler.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "common/child_process.h"
#include "common/cpu/run_code.h"
#include "common/input_file.h"
#include "common/rtc.h"

namespace runtime_code {

namespace {

namespace fs = std::filesystem;

// A folder of this user for as long as it lives, in $TMPDIR or /tmp. Those that a process has left
// behind which was killed meanwhile are removed by later ones: no compiler may take so long.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    remove_old_ones(parent);
    path_ = (error ? fs::path("/tmp") : parent) / (kBegin + std::string("XXXXXX"));
    if (mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error(path_ + " cannot be made: " + std::strerror(errno));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  static constexpr const char* kBegin = "gpu-course-";

  static void remove_old_ones(const fs::path& parent) {
    const auto long_ago = fs::file_time_type::clock::now() - std::chrono::minutes(10);
    std::error_code error;
    for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().filename().string().rfind(kBegin, 0) != 0) continue;
      struct stat status {};
      std::error_code gone;
      const bool is_own = lstat(entry->path().c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                          status.st_uid == geteuid();
      if (is_own && fs::last_write_time(entry->path(), gone) < long_ago && !gone)
        fs::remove_all(entry->path(), gone);
    }
  }

  std::string path_;
};

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

child_process::Ended run(const std::vector<std::string>& command, const std::string& folder) {
  static std::mutex mutex;
  static std::string too_slow;  // it is not waited for a second time
  std::unique_lock lock(mutex);
  if (too_slow.empty()) {
    lock.unlock();
    const child_process::Ended result = child_process::run(command, seconds_of_a_compiler, folder);
    if (!result.is_too_slow) return result;
    lock.lock();
    too_slow = command[0] + " takes too long and was ended";
  }
  throw std::runtime_error(too_slow);
}

struct Compiler {
  std::vector<std::string> command;
  std::string version;
};

// $CXX, which may have options, or the first of the usual ones that is there.
const Compiler& compiler() {
  static const Compiler once = [] {
    std::vector<std::vector<std::string>> commands{{"g++"}, {"c++"}, {"clang++"}};
    const char* const chosen = std::getenv("CXX");
    if (const auto words = words_of(chosen == nullptr ? "" : chosen); !words.empty())
      commands.insert(commands.begin(), words);
    const TemporaryFolder folder;
    std::string why;
    for (const std::vector<std::string>& command : commands) try {
        std::vector<std::string> asked = command;
        asked.push_back("--version");
        const child_process::Ended result = run(asked, folder.path());
        if (result.exit_code == 0)
          return Compiler{command, result.output.substr(0, result.output.find('\n'))};
        if (why.empty()) why = command[0] + " does not run";
      } catch (const std::runtime_error& error) {
        if (why.empty()) why = error.what();
      }
    throw std::runtime_error("no compiler: " + why);
  }();
  return once;
}

// The command but for its files. The options of $CXX come last, so that they count.
// A product and the sum behind it stay two roundings, as in cmake/formulas.cmake. The functions of
// the mathematical library are called, never worked out by the compiler: it would round better.
std::vector<std::string> command_of_compiler() {
  const std::vector<std::string>& chosen = compiler().command;
  const auto is_option = [](const std::string& word) { return word[0] == '-'; };
  const auto chosen_options = std::find_if(chosen.begin(), chosen.end(), is_option);
  std::vector<std::string> all(chosen.begin(), chosen_options);
  const std::vector<std::string> usual = words_of(
      "-x c++ -std=c++17 -O3 -w -pipe -shared -fPIC -ffp-contract=off -fno-math-errno "
      "-fno-trapping-math -fno-builtin-expf -fno-builtin-logf -fno-builtin-tanhf "
      "-fno-builtin-powf -fno-builtin-sqrtf " COURSE_CPU_OPTIONS);
  all.insert(all.end(), usual.begin(), usual.end());
  all.insert(all.end(), chosen_options, chosen.end());
  return all;
}

// What -march=native looks at: a home folder may be that of several machines.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string all;
  for (std::string line; std::getline(file, line) && !line.empty();)  // of the first one
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0 ||
        line.rfind("model name", 0) == 0)
      all += line + "\n";
  return all;
}

class SharedObject : public LoadedCode {
 public:
  explicit SharedObject(const std::string& code) {
    const TemporaryFolder folder;  // what is loaded stays, without a name
    const std::string path = folder.file("code.so");
    write_file(path, code);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(std::string("dlopen: ") + dlerror());
  }
  ~SharedObject() override { static_cast<void>(dlclose(library_)); }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  Kernel kernel(const std::string& name) const override { return rtc::function_of(library_, name); }
  void launch(Kernel kernel, dim3 grid, dim3, const KernelArguments& arguments,
              hipStream_t stream) const override {
    launch_blocks(reinterpret_cast<BlockFunction>(kernel), grid, arguments, stream);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace

std::string compiler_identity() {
  std::string identity = compiler().version;
  for (const std::string& word : command_of_compiler()) identity += " " + word;
  static const std::string of_machine = processor();
  return identity + "\n" + of_machine;
}

// A compiler that is a program takes longer to begin than for a kernel.
unsigned texts_at_once() { return 1; }

std::string code_of(const std::string& source) {
  const TemporaryFolder folder;
  const std::string text = folder.file("fused.cpp"), made = folder.file("fused.so");
  write_file(text, source);
  std::vector<std::string> command = command_of_compiler();
  command.insert(command.end(), {text, "-o", made});
  const child_process::Ended result = run(command, folder.path());
  if (result.exit_code != 0)
    throw std::runtime_error("the compiler refuses it: " + rtc::first_error(result.output));
  return input_file::read(made);
}

std::shared_ptr<const LoadedCode> loaded(const std::string& code) {
  return std::make_shared<SharedObject>(code);
}

}  // namespace runtime_code
