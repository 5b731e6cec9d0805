// The course's operators on arrays that another program gives: the interface between main.cpp,
// which reads the requests, and the adapters, one file per stage, which run every version of an
// operator. Plain C++; main.cpp says how a request looks.
#pragma once

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/guarded.h"

namespace operators {

// Row-major; a scalar has an empty shape and one value. Integers (labels, indices) are stored as
// floats, which hold them exactly up to 2^24.
struct Array {
  std::vector<std::size_t> shape;
  std::vector<float> values;  // as many as the shape's product

  // An extent; Refused where the array has none of this number.
  std::size_t extent(std::size_t axis) const;
};

// The case is outside the operator's contract: what() says why. No version runs.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Throws Refused(why) unless the case fits.
void require(bool fits, const std::string& why);

struct Case {
  std::map<std::string, Array> inputs;
  std::map<std::string, std::string> attributes;

  // The input of this name; Refused where there is none.
  const Array& input(const std::string& name) const;
  // The same, which must have this many axes or this shape; Refused otherwise.
  const Array& input(const std::string& name, std::size_t axes) const;
  const Array& input(const std::string& name, const std::vector<std::size_t>& shape) const;
  bool has(const std::string& name) const;

  // Attributes; Refused where the text is no such number.
  double number(const std::string& name, double otherwise) const;
  std::size_t integer(const std::string& name, std::size_t otherwise) const;
  std::string word(const std::string& name, const std::string& otherwise) const;
};

// What the versions computed, as "version/output": "online/y". An operator adds one entry per
// version and output. main.cpp reports a case that no version ran.
using Outputs = std::map<std::string, Array>;

struct Operator {
  const char* name;
  void (*run)(const Case&, Outputs&);
};

// Of each stage's steps. Each operator's comment lists its inputs, attributes and outputs.
std::vector<Operator> stage1();
std::vector<Operator> stage2();
std::vector<Operator> stage3();
std::vector<Operator> stage4();
std::vector<Operator> stage5();
std::vector<Operator> stage6();
std::vector<Operator> stage7();

// ---- Device memory ----------------------------------------------------------------------------

// The attribute "offset" of an operator whose arrays need no more than 4-byte alignment: how many
// floats behind a 16-byte boundary they begin, 0 to 3.
std::size_t offset(const Case& c);

// The product of a shape's extents.
std::size_t count(const std::vector<std::size_t>& shape);

// Waits for the version's work. Throws std::runtime_error, which names it, where it failed or wrote
// outside one of the arrays.
template <class... Arrays>
void finish(const std::string& version, const Arrays&... arrays) {
  const hipError_t error = hipDeviceSynchronize();
  if (error != hipSuccess) throw std::runtime_error(version + ": " + hipGetErrorString(error));
  if (!(arrays.intact() && ...))
    throw std::runtime_error(version + " wrote outside one of its arrays");
}

// Keeps an output under "version/name". What no version wrote is NaN there.
inline void keep(Outputs& outputs, const std::string& version, const std::string& name,
                 const std::vector<std::size_t>& shape, const Guarded<float>& values) {
  outputs[version + "/" + name] = {shape, values.to_host()};
}

}  // namespace operators
