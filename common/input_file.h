// Files that a program reads whole or piece by piece. Implemented in input_file.cpp.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

namespace input_file {

using Pointer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// "is a folder" or "is not a regular file" of what can be no file of ours: a pipe would be waited
// for, a device has no end and must not be replaced. Empty for a file, and where nothing is there.
std::string wrong_kind(const std::string& path);

// Opens the file for reading. Throws std::runtime_error, one line that names it, where it is
// not there, may not be read, or is of a wrong kind.
Pointer open(const std::string& path);

// All its bytes; throws as open() does, and where there are more than `most`.
std::string read(const std::string& path, std::size_t most = std::size_t{1} << 32);

}  // namespace input_file
