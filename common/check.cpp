#include <string>

#include "common/error.h"

namespace gpu {

void throw_error(int code, const char* name, const char* text, const char* expr, const char* file,
                 int line) {
  throw Error(code, std::string(file) + ":" + std::to_string(line) + ": " + expr + ": " + name +
                        " (" + text + ")");
}

}  // namespace gpu
