// 5.5  Sequential: layers one after the other, trained as one model.
//
//   Sequential model{Linear(4, 16), ReLU(), Linear(16, 3)};
//   model.initialize(seed);
//   const float* y = model.forward(x, batch);             x (batch, 4)  ->  y (batch, 3)
//   model.backward(grad_y);                               the gradients of all parameters
//   optimizers::step(kind, model.arena(), schedule);      step 5.4: all parameters, one launch
//
// A layer is what steps 4.1, 5.1 and 3.1 have taught, behind one interface; no kernel is written
// here. What is left to learn is who owns which memory, for how long: all parameters lie in one
// arena and their gradients in another, each output is kept until the backward pass has read it,
// and the gradients of the outputs need no more than two buffers in turn. The ladder runs the same
// step with memory from the driver in every step, with memory kept, and with what lies between two
// products done in their neighbours' launches.
//
// All arrays are float, row-major and without gaps, a sample per row; inputs and gradients that are
// passed in lie in device memory, aligned to 4 bytes. A step of a model whose memory is reserved
// waits for nothing and allocates nothing, so that a graph can capture it, and gives the same bits
// on every run of one device. A model is used by one thread and one stream at a time.
#pragma once

#include "common/version.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/05_sequential/model.h"

namespace sequential {

// What Sequential::set_mode takes; a new model has the last one. What a version adds is in the file
// of its name in versions/, all members of Sequential:
//
//   allocating   forward(), backward()   a step
//   reserved     reserve(), release()    where a step's arrays lie
//   fused        set_mode()              which layers do their neighbours' work
inline constexpr Version<Mode> kVersions[] = {
    {"allocating", {false, false}, "memory from the driver in every step"},
    {"reserved", {true, false}, "memory kept from the first step on: a step only launches"},
    {"fused", {true, true}, "ReLU in the layer before it, a bias's gradient in the one behind it"},
};

}  // namespace sequential
