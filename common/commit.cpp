#include <cstdlib>
#include <string>

#include "common/report.h"

std::string build_commit() {
#if defined(COURSE_COMMIT)
  return COURSE_COMMIT;
#else
  const char* commit = std::getenv("COURSE_COMMIT");
  return commit != nullptr && *commit != '\0' ? commit : "unknown";
#endif
}
