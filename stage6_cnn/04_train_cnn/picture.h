// What the layers make of a digit, as a picture.
#pragma once

#include <cstddef>
#include <string>

#include "common/report.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/08_train_mnist/mnist_program.h"

namespace train_cnn {

// Draws the filters that a model with so many hidden units has learnt, what each of them finds in
// the first test image, what the pools leave of it, and how sure the model is, as a PNG file at
// `path`; says so in the report. Waits for the device.
void show(const sequential::Sequential& model, size_t hidden, const mnist::Data& data,
          const std::string& path, Report& report);

}  // namespace train_cnn
