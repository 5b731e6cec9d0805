#include "common/rtc.h"

#include <dlfcn.h>

#include <memory>
#include <sstream>
#include <stdexcept>

namespace rtc {

void* function_of(void* library, const std::string& name) {
  void* const function = dlsym(library, name.c_str());
  if (function == nullptr) throw std::runtime_error("no compiler: there is no function " + name);
  return function;
}

void* opened(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Library library_of(void* library, const std::string& prefix, const std::string& code) {
  Library found{};
  const auto find = [&](auto* function, const std::string& name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        function_of(library, prefix + name));
  };
  find(&found.version, "Version");
  find(&found.create, "CreateProgram");
  find(&found.compile, "CompileProgram");
  find(&found.log_size, "GetProgramLogSize");
  find(&found.log, "GetProgramLog");
  find(&found.code_size, "Get" + code + "Size");
  find(&found.code, "Get" + code);
  find(&found.destroy, "DestroyProgram");
  find(&found.error_string, "GetErrorString");
  return found;
}

std::string compiled(const Library& library, const std::string& source,
                     const std::vector<std::string>& options) {
  const auto check = [&](int error) {
    if (error != 0)
      throw std::runtime_error(std::string("the compiler fails: ") + library.error_string(error));
  };
  void* made = nullptr;
  check(library.create(&made, source.c_str(), "fused", 0, nullptr, nullptr));
  const auto destroy = [&](void* program) { static_cast<void>(library.destroy(&program)); };
  const std::unique_ptr<void, decltype(destroy)> program(made, destroy);
  std::vector<const char*> values;
  for (const std::string& option : options) values.push_back(option.c_str());
  const int error = library.compile(made, static_cast<int>(values.size()), values.data());
  size_t bytes = 0;
  if (error != 0 && library.log_size(made, &bytes) == 0 && bytes > 1) {
    std::string log(bytes, '\0');
    check(library.log(made, log.data()));
    throw std::runtime_error("the compiler refuses it: " + first_error(log.c_str()));
  }
  check(error);
  check(library.code_size(made, &bytes));
  std::string code(bytes, '\0');
  check(library.code(made, code.data()));
  return code;
}

std::string first_error(const std::string& log) {
  std::istringstream lines(log);
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("error") != std::string::npos) return line;
    if (first.empty()) first = line;
  }
  return first;
}

}  // namespace rtc
