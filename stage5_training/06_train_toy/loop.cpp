#include "stage5_training/06_train_toy/loop.h"

#include <algorithm>

namespace train_toy {

void launch_spans(Training& t, unsigned steps, unsigned longest, QueueSpan queue) {
  t.require_room(steps);
  const Network n = t.network();
  while (steps > 0) {
    const unsigned prepared = std::min(steps, kStepsPerLaunch);
    Arrays arrays = make_arrays(t, prepared);
    for (unsigned begin = 0; begin < prepared; begin += longest) {
      const unsigned count = std::min(longest, prepared - begin);
      queue(n, t.settings.kind, arrays,
            {static_cast<unsigned>(t.steps), count, static_cast<unsigned>(t.every)}, t.stream);
      arrays.schedules += count, t.steps += count;
    }
    steps -= prepared;
  }
}

}  // namespace train_toy
