// A training as 8.4 leaves it: the program runs anew for each step.
//
// Idea:  data, losses and parameters are on the device (8.4, `resident`), and the host waits for
//        nothing. It only queues.
// Costs: a call takes the host some microseconds: layers are gone through, memory is found, rules
//        are run. The device is done with a small call before the next one comes.
#include "stage8_framework/05_capture/capture.h"

namespace capturing {

std::vector<float> train_eager(Module& model, const Task& task, std::uint64_t steps) {
  return modules::train_resident(model, task, steps);
}

}  // namespace capturing
