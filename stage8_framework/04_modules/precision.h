// Trainings whose products, and attention where the device has it, are made in bf16; and what they
// are held against: themselves in f32.
#pragma once

#include "common/options.h"
#include "stage8_framework/04_modules/problem.h"

namespace modules {

// The option that programs have for it.
ExtraOption precision_option();
// Whether it says bf16. Throws UsageError for what is neither bf16 nor fp32.
bool wants_bf16(const Options& options);

// The same training with its products under an Autocast. Parameters, optimizer and all other
// operations stay in f32.
//
// want: the losses of the first 20 steps, and the gradient of the first of them, of the training in
// f32, which is checked itself. The bound says what a rounding of bf16 does to them: before each
// step the loss is computed four times more with all parameters moved by one, by a factor of
// 1 ± 2^-8, up or down at random. Four times the largest change until now is allowed. A number that
// is cast is off by 2^-8 at most, and by 0.4 of that on average. Of each product two are cast,
// whose signs are random: sqrt(2) 0.4 = 0.6 of such a change on average. For the gradient two more
// products are made, so it is sqrt(6) 0.4 = 1. Attention is two such products, one of q and k and
// one of its weights and v; what it returns is rounded once, as the next layer's input is anyway.
//
// judge: each loss that is reached must be within 1% of that of f32 after as many steps.
//
// Trains in f32. Throws std::runtime_error where that is not what its own reference says.
Training in_bf16(const Training& training);

}  // namespace modules
