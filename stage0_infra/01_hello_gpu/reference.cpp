#include "stage0_infra/01_hello_gpu/reference.h"

#include <cstddef>

namespace hello_gpu {

std::vector<Greeting> greetings_cpu(const std::string& version, unsigned blocks, unsigned threads,
                                    unsigned wave_size) {
  std::vector<Greeting> greetings;
  for (unsigned block = 0; block < blocks; ++block)
    for (unsigned thread = 0; thread < threads; ++thread) {
      const unsigned wave = thread / wave_size, lane = thread % wave_size;
      const bool speaks = version == "blocks" ? thread == 0 : version == "waves" ? lane == 0 : true;
      if (speaks)
        greetings.push_back({block, thread, wave, lane});
      else
        greetings.push_back({kSilent, kSilent, kSilent, kSilent});
    }
  return greetings;
}

Comparison compare_greetings(const std::vector<Greeting>& got, const std::vector<Greeting>& want) {
  const auto field = [](const Greeting& greeting, std::size_t f) {
    const unsigned fields[] = {greeting.block, greeting.thread, greeting.wave, greeting.lane};
    return fields[f];
  };
  return compare(
      4 * want.size(), [&](std::size_t i) { return field(got[i / 4], i % 4); },
      [&](std::size_t i) { return static_cast<double>(field(want[i / 4], i % 4)); },
      [](std::size_t) { return 0.0; });
}

std::string to_string(const Greeting& greeting) {
  return "block " + std::to_string(greeting.block) + ", wave " + std::to_string(greeting.wave) +
         ", lane " + std::to_string(greeting.lane) + ": thread " + std::to_string(greeting.thread);
}

}  // namespace hello_gpu
