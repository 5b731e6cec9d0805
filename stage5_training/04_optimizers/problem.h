// The models that the program prints, and what of them it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"

namespace optimizers {

// Parameters and tensors on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

inline constexpr std::uint64_t kCheckedStep = 9;

// Parameters of each model: n, and unless the user has chosen it a hundredth. A large model takes
// the memory's time, a small one the launches'.
std::vector<std::size_t> printed(std::size_t n, bool size_given);

std::string name(Kind kind, std::size_t n, std::size_t tensors);  // of its table

// The arena in `tensors` parts, cut at random places: as uneven as weights and biases are.
std::vector<ParameterArena> cut(const ParameterArena& arena, std::size_t tensors,
                                std::uint64_t seed);

// w, m and v of some elements one behind the other, as doubles.
struct Column {
  double Element::*value;
  double Element::*error;
};
inline constexpr Column kColumns[] = {{&Element::w, &Element::w_error},
                                      {&Element::m, &Element::m_error},
                                      {&Element::v, &Element::v_error}};
std::vector<double> column(const std::vector<Element>& elements, double Element::*which);

}  // namespace optimizers
