// Compiled code that is kept on the disk for the next process: in $COURSE_CACHE_DIR, else in
// $XDG_CACHE_HOME/gpu-course, else in ~/.cache/gpu-course.
//
//   1f0c3a77e0b6d291.code     magic | bytes of key and code | CRC-32 | key | code
//
// Code is run, so it is read only from files and folders of this user that nobody else may write. A
// file that is truncated or spoilt counts as absent. Any number of processes may use the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace code_cache {

// More than that is deleted, the files first that were not used for the longest time.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMostFiles = 2000;

// The file that a key has; empty where there is no folder for it.
std::string file_of(const std::string& key);

// The code that was kept under exactly this key.
std::optional<std::string> find(const std::string& key);

// Keeps the code. Empty, or why it is not kept, in one line.
std::string keep(const std::string& key, const std::string& code);

// Deletes the oldest files of a folder until no more than that is left.
void trim(const std::string& folder, std::uint64_t most_bytes, std::size_t most_files);

}  // namespace code_cache
