// The network of train_mnist, and which versions can train it.
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace train_mnist {

Sequential make_model(size_t hidden) {
  return Sequential(sequential::Linear(kPixels, hidden), sequential::ReLU(),
                    sequential::Linear(hidden, kClasses));
}

Training::Training(const Settings& wanted, const Samples& images)
    : mnist::Training(wanted, images, make_model(wanted.hidden)),
      exchange(2 * wanted.hidden * kExchanged + 3 * kClasses),
      rows(kSamples),
      position(1) {}

std::string takes_any(const Training&) { return ""; }

std::string takes_small_batches(const Training& t) {
  return t.batch <= kSamples ? "" : "takes batches of up to " + std::to_string(kSamples);
}

const Version<Launch>& best(const Training& t) {
  const Version<Launch>* chosen = &kVersions[0];
  if (std::string(gpu::kBackend) == "cpu") return *chosen;
  for (const auto& version : kVersions)
    if (version.launch.obstacle(t).empty()) chosen = &version;
  return *chosen;
}

}  // namespace train_mnist
