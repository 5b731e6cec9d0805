// NVRTC and hiprtc: two libraries of one interface, which are looked for when they are needed.
#pragma once

#include <string>
#include <vector>

namespace rtc {

// Of the functions that both libraries have, under their own names: nvrtcCompileProgram,
// hiprtcCompileProgram.
struct Library {
  int (*version)(int* major, int* minor);
  int (*create)(void** program, const char* source, const char* name, int headers,
                const char* const* texts, const char* const* names);
  int (*compile)(void* program, int options, const char* const* values);
  int (*log_size)(void* program, size_t* bytes);
  int (*log)(void* program, char* text);
  int (*code_size)(void* program, size_t* bytes);
  int (*code)(void* program, char* bytes);
  int (*destroy)(void** program);
  const char* (*error_string)(int error);
};

// A function of a library that is loaded; throws std::runtime_error where it has none.
void* function_of(void* library, const std::string& name);

// The first of these that is found, with RTLD_NOW; nullptr where none is.
void* opened(const std::vector<std::string>& names);

// `prefix`: nvrtc or hiprtc; `code`: what the functions that give the code have in their names.
Library library_of(void* library, const std::string& prefix, const std::string& code);

// Throws std::runtime_error with the first line of the compiler's log that names an error.
std::string compiled(const Library& library, const std::string& source,
                     const std::vector<std::string>& options);

// The first line of a compiler's log that names an error, else its first line.
std::string first_error(const std::string& log);

}  // namespace rtc
