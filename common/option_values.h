// The values of options: read from text, and refused by a UsageError that says what would be right.
// Implemented in option_values.cpp; options.cpp says which options there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/options.h"

namespace option_values {

[[noreturn]] void usage_error(const std::string& text);

// Digits only: what std::stoull also takes ("-1", " 7", "0x10") is refused. Empty where there is
// anything else, or where the number does not fit into 64 bits.
std::optional<std::uint64_t> parse_number(const std::string& text);
// A number from 1 to `largest`: epochs, samples.
std::size_t parse_count(const char* option, const std::string& text, std::size_t largest);
// A number above 0. Kernels take it as a float, so it must not overflow or vanish there. The
// decimal point is a point whatever the locale says.
double parse_learning_rate(const std::string& text);

// "MxNxK"
std::string size_names(const ProgramInfo& program);
// An extent for each of the program's sizes, as in 1000x64kx2^28.
std::vector<std::size_t> parse_sizes(const std::string& text, const ProgramInfo& program);

// Refuses a name that is none of `names`, which are not empty.
void check_name(const char* option, const std::string& name, const std::vector<std::string>& names);
// forward, reverse, waves or random:SEED.
bool is_order(const std::string& text);

// A file that the program is to write must be one that it can write: hours later it is too late.
void check_output_path(const char* option, const std::string& path);
// A file that is there.
void check_input_path(const char* option, const std::string& path);

}  // namespace option_values
