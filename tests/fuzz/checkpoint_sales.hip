// train_sales::checkpoint_of(): what it says of the sales writes back to the same.
#include <cmath>
#include <cstring>

#include "stage5_training/07_train_sales/checkpoint.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using train_sales::Encoding;
  const auto checkpoint = fuzz::read_or_refused(fuzz::kName, [&] {
    return train_sales::checkpoint_of(
        fuzz::kName, safetensors::parse_tensors(fuzz::kName, fuzz::bytes_of(data, size)));
  });
  if (!checkpoint) return 0;

  const Encoding& encoding = checkpoint->encoding;
  fuzz::expect(!encoding.categories.empty(), "there are categories");
  fuzz::expect(encoding.categories.size() <= train_sales::kCategories, "each has its column");
  for (const std::string& name : encoding.categories)
    fuzz::expect(!name.empty(), "each category has a name");
  for (const float scale : encoding.normalization.scale)
    fuzz::expect(scale > 0 && std::isfinite(1 / scale), "a total can be taken back from its scale");
  const Encoding again = train_sales::encoding_of(train_sales::texts_of(encoding));
  fuzz::expect(again.categories == encoding.categories, "the categories come back");
  fuzz::expect(
      std::memcmp(&again.normalization, &encoding.normalization, sizeof again.normalization) == 0,
      "the numbers come back bit for bit");
  return 0;
}
