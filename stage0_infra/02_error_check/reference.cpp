#include "stage0_infra/02_error_check/reference.h"

#include <cstddef>

#include "common/gpu_runtime.h"

namespace error_check {

Place place_of(const gpu::Error& error) {
  const std::string text = error.what();
  const std::size_t end = text.find(": ");
  const std::size_t colon = end == std::string::npos ? end : text.rfind(':', end - 1);
  if (colon == std::string::npos) return {};
  int line = 0;
  for (std::size_t i = colon + 1; i < end; ++i) {
    if (text[i] < '0' || text[i] > '9') return {};
    line = 10 * line + (text[i] - '0');
  }
  return {text.substr(0, colon), line};
}

Comparison check_report(const gpu::Error& error, const std::string& version) {
  const Place place = place_of(error);
  const std::string file = "versions/" + version + ".hip";
  const bool right = error.code != hipSuccess && place.line > 0 &&
                     place.file.size() >= file.size() &&
                     place.file.compare(place.file.size() - file.size(), file.size(), file) == 0;
  return compare(
      1, [&](std::size_t) { return right ? 1.0 : 0.0; }, [](std::size_t) { return 1.0; },
      [](std::size_t) { return 0.0; });
}

}  // namespace error_check
