// Runs the operators of the course, all versions of each, on arrays that another program gives. The
// tests in tests/python/ compare what comes back with NumPy; tests/python/operators.py is their
// side.
//
//   operators          answers requests until its input ends; then it exits with 0
//   operators --list   prints the operators' names, one per line
//
// A request is one line: OPERATOR IN.safetensors OUT.safetensors, separated by spaces. IN holds the
// inputs as tensors and the attributes as metadata. OUT is written; its tensors are named
// "version/output". The answer is one line:
//
//   ok
//   refused: WHY   the inputs or attributes are outside the operator's contract
//   failed: WHY    anything else: a file that is none, no version takes the case, a write out of
//   bounds
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/printable.h"
#include "common/program.h"
#include "common/safetensors.h"
#include "tests/operators/operators.h"

namespace {

using operators::Operator;

std::vector<Operator> all_operators() {
  std::vector<Operator> all;
  for (const auto stage :
       {operators::stage1, operators::stage2, operators::stage3, operators::stage4,
        operators::stage5, operators::stage6, operators::stage7})
    for (const Operator& one : stage()) all.push_back(one);
  return all;
}

const Operator& named(const std::vector<Operator>& all, const std::string& name) {
  for (const Operator& one : all)
    if (name == one.name) return one;
  throw operators::Refused("there is no operator " + safetensors::quoted(name));
}

void answer(const std::vector<Operator>& all, const std::string& request) {
  std::istringstream words(request);
  std::string name, from, to, more;
  if (!(words >> name >> from >> to) || words >> more)
    throw operators::Refused("a request is OPERATOR IN.safetensors OUT.safetensors");
  const Operator& chosen = named(all, name);

  safetensors::File file = safetensors::read(from);
  operators::Case c;
  c.attributes = std::move(file.metadata);
  for (safetensors::Tensor& tensor : file.tensors)
    c.inputs[tensor.name] = {std::move(tensor.shape), std::move(tensor.values)};

  operators::Outputs outputs;
  chosen.run(c, outputs);
  if (outputs.empty()) throw std::runtime_error("no version of " + name + " takes this");

  safetensors::File result;
  for (auto& [output, array] : outputs)
    result.tensors.push_back({output, std::move(array.shape), std::move(array.values)});
  safetensors::write(to, result);
}

std::string line(const std::vector<Operator>& all, const std::string& request) {
  try {
    answer(all, request);
    return "ok";
  } catch (const operators::Refused& why) {
    return "refused: " + printable(why.what());
  } catch (const std::exception& why) {
    return "failed: " + printable(why.what());
  }
}

int fail(const char* text, ExitCode code) {
  std::fprintf(stderr, "operators: %s\n", printable(text).c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Operator> all = all_operators();
  constexpr const char* kNoOutput = "its output cannot be written";
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const Operator& one : all) std::puts(one.name);
    return std::fflush(stdout) == 0 ? kExitOk : fail(kNoOutput, kExitFailed);
  }
  if (argc != 1) return fail("it takes --list or nothing; requests are its input", kExitUsage);
  try {
    describe_device();
  } catch (const NoDevice& error) {
    return fail(error.what(), kExitNoDevice);
  } catch (const std::exception& error) {
    return fail(error.what(), kExitFailed);
  }
  for (std::string request; std::getline(std::cin, request);) {
    std::puts(line(all, request).c_str());
    if (std::fflush(stdout) != 0) return fail(kNoOutput, kExitFailed);
  }
  return kExitOk;
}
