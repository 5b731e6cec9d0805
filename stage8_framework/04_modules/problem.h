// What the program trains: the models of 5.8, 6.4 and 7.7, from the parameters that these begin
// with, on the samples that they take, against the references that they are held against.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/options.h"
#include "common/report.h"
#include "stage5_training/06_train_toy/trainer.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage8_framework/04_modules/modules.h"

namespace modules {

// Epochs and images of the two that read digits; steps and width of the character model, whose
// context and batch follow from its width. On a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// A training: what is learnt, by which model, and what it must do.
struct Training {
  std::string name;  // of its table
  std::string file;  // of the model that was trained: "perceptron.safetensors"
  double reference_ms = 0;
  std::function<std::unique_ptr<Module>(Device& device)> make;  // with the first parameters
  Task task;
  std::uint64_t steps = 0;
  train_toy::Trajectory want;  // the first losses in double, and the gradient of the first step
  // What a model reaches that was trained with these losses, or with none that are known: in words,
  // and, where it is less than was promised, what it has missed; and the losses that the words
  // name.
  struct Result {
    std::string text, missed;
    std::vector<double> reached = {};
  };
  std::function<Result(Module& model, const std::vector<float>& losses)> judge;
};

// ---- What trainings are made of: 8.5 has another one ----

// A model's tensors by name, as its step has them: `values` are all of them, one behind the other.
framework::StateDict state_of(const std::vector<sequential::NamedTensor>& tensors,
                              const std::vector<float>& values);
// A module that begins with these parameters.
std::function<std::unique_ptr<Module>(Device&)> beginning_with(
    framework::StateDict state, std::function<std::unique_ptr<Module>(Device&)> make);
// The same columns on the device.
std::vector<Tensor> uploaded(const std::vector<Tensor>& host, Device& device);
// The mean cross entropy of what a model makes of column 0 against the labels in column 1.
Tensor cross_entropy_of(Module& model, const std::vector<Tensor>& columns);
// The share of the samples whose class a model reads rightly.
double accuracy(Module& model, const std::vector<Tensor>& columns);
framework::OptimizerRule rule_of(const train_toy::Settings& settings);

// Throws UsageError where the trainings, or their references in double, have no room.
void require_memory(const Options& options);

// Throws UsageError where the data can't be read.
std::vector<Training> trainings(const Options& options, Device& device, Report& report);

// The character model alone, whose steps and width are sizes 2 and 3, and what it needs.
void require_text_memory(const Options& options);
Training character_training(const Options& options, Device& device, Report& report);

// The losses of the first steps, and the gradients that the first of them leaves, for a version.
Comparison check(const Training& training, Launch launch);

}  // namespace modules
