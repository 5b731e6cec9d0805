// State dicts as safetensors files, which PyTorch reads and writes, too (common/safetensors.h):
// a file from torch's save_file(model.state_dict()) loads into a module of the same names and
// shapes, and the other way round.
#pragma once

#include <string>

#include "stage8_framework/04_modules/module.h"

namespace framework {

// Writes all tensors, from any device: i64 as I64, all others as F32. The name never holds half a
// file: what was there before is there until the new one is complete. Throws std::runtime_error,
// one line that names the file, where that fails.
void save(const std::string& path, const StateDict& state);

// The tensors of a file, on `device`. Throws std::runtime_error, one line that names the file,
// where it can't be read, is damaged or has other types than F32 and I64.
StateDict load(const std::string& path, Device& device);

// A module's own: its file, and into it. load() throws as well where a name or a shape is another
// one, with the file's name: the module is as it was then.
void save(const std::string& path, Module& module);
void load(const std::string& path, Module& module);

}  // namespace framework
