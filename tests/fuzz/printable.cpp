// printable(): whatever the bytes, one line without control characters; what a second reader of
// UTF-8 (step 5.7's) finds well formed and harmless is kept.
#include "common/printable.h"

#include <algorithm>

#include "common/safetensors.h"
#include "stage5_training/07_train_sales/sales_data.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::bytes_of(data, size));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };

  const std::string shown = printable(text);
  fuzz::expect(std::none_of(shown.begin(), shown.end(), is_control), "no control characters");
  fuzz::expect(sales::utf8_end(shown) == shown.size(), "the line is UTF-8");
  fuzz::expect(printable(shown) == shown, "what is printable stays as it is");
  if (sales::utf8_end(text) != text.size()) fuzz::expect(shown != text, "broken UTF-8 is shown");
  if (std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; }))
    fuzz::expect(shown == text, "ASCII is kept");

  const std::string lines = printable_lines(text);
  fuzz::expect(
      std::count(lines.begin(), lines.end(), '\n') == std::count(text.begin(), text.end(), '\n'),
      "line breaks stay");
  fuzz::expect(printable_lines(lines) == lines, "lines that are printable stay as they are");

  const std::string quoted = safetensors::quoted(text);
  fuzz::expect(printable(quoted) == quoted && quoted.size() < 70, "a quoted text is short");
  return 0;
}
