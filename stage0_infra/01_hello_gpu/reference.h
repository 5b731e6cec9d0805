// The reference of 0.1: the records that the threads should write, by counting on the host.
#pragma once

#include <string>
#include <vector>

#include "common/compare.h"
#include "stage0_infra/01_hello_gpu/hello_gpu.h"

namespace hello_gpu {

// The records of `blocks` blocks of `threads` threads. The version's name says who speaks.
std::vector<Greeting> greetings_cpu(const std::string& version, unsigned blocks, unsigned threads,
                                    unsigned wave_size);

// Compares every field of every record: they are integers, so they must be equal. Element 4 i + f
// of the comparison is field f of record i.
Comparison compare_greetings(const std::vector<Greeting>& got, const std::vector<Greeting>& want);

// "block 1, wave 2, lane 0: thread 64"
std::string to_string(const Greeting& greeting);

}  // namespace hello_gpu
