// A kernel per operation, launched by the host.
#include "stage5_training/05_sequential/layers.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

// A step is that of step 5.6: batch, forward, loss, backward, curve, optimizer. It takes some
// thirty kernels.
void run_operations(Training& t, size_t steps) {
  t.use(kSeparate, losses::launch_from_logits);
  t.run_operations(steps);
}

// What the kernels are of.
std::vector<std::unique_ptr<sequential::Layer>> make_layers(size_t hidden, size_t count) {
  constexpr Sliding kSame{1, 1};  // the image keeps its size
  std::vector<std::unique_ptr<sequential::Layer>> layers;
  // exercise: the ten layers, each with what its input is (about 10 lines)
  layers.push_back(std::make_unique<Conv2d>(Image{1, kSide, kSide}, kChannels1, 3, kSame));
  layers.push_back(std::make_unique<sequential::ReLU>());
  layers.push_back(std::make_unique<MaxPool2d>(Image{kChannels1, kSide, kSide}, 2));
  layers.push_back(
      std::make_unique<Conv2d>(Image{kChannels1, kSide1, kSide1}, kChannels2, 3, kSame));
  layers.push_back(std::make_unique<sequential::ReLU>());
  layers.push_back(std::make_unique<MaxPool2d>(Image{kChannels2, kSide1, kSide1}, 2));
  layers.push_back(std::make_unique<Flatten>());
  layers.push_back(std::make_unique<sequential::Linear>(kFeatures, hidden));
  layers.push_back(std::make_unique<sequential::ReLU>());
  layers.push_back(std::make_unique<sequential::Linear>(hidden, kClasses));
  // end exercise
  layers.resize(count);
  return layers;
}

}  // namespace train_cnn
