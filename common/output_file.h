// Files that a program writes: replaced as a whole, or not at all. Implemented in output_file.cpp.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <string>

namespace output_file {

// Why replace() cannot write this file, in words that follow its name ("is a folder"); empty where
// it can. Tries it: creates the temporary file and removes it again.
std::string obstacle(const std::string& path);

// Replaces the file by what `put` writes to its argument; put returns false, with errno, where it
// can't. The name never holds half a file: everything goes to PATH.PID.partial, on to the disk, and
// is renamed then. Throws std::runtime_error, one line that names the file, where that fails; what
// was there before is there still. Removes the .partial files of this path that processes left
// behind that were killed while they wrote.
void replace(const std::string& path, const std::function<bool(std::FILE*)>& put);

// The process that a temporary file of `file` belongs to, by its name, FILE.PID.partial; 0 where
// the name is another. replace() removes only files that have one. Both are names without a folder.
pid_t writer_of(const std::string& name, const std::string& file);

}  // namespace output_file
