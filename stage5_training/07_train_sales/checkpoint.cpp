#include "stage5_training/07_train_sales/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace train_sales {

namespace {

std::string text_of(const float (&values)[kMeasures]) {
  std::string text;
  for (const float value : values) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%s%a", text.empty() ? "" : " ",
                  static_cast<double>(value));
    text += digits;
  }
  return text;
}

}  // namespace

std::map<std::string, std::string> texts_of(const Encoding& encoding) {
  std::string categories;
  for (const std::string& name : encoding.categories)  // no name has a tab in it
    categories += (categories.empty() ? "" : "\t") + name;
  return {{"categories", categories},
          {"mean", text_of(encoding.normalization.mean)},
          {"scale", text_of(encoding.normalization.scale)}};
}

Encoding encoding_of(const std::map<std::string, std::string>& texts) {
  const auto text = [&](const char* key) {
    const auto found = texts.find(key);
    if (found == texts.end())
      throw std::invalid_argument(std::string("it does not say the \"") + key + "\" of its sales");
    return found->second;
  };
  const auto refuse = [](const char* key, const char* what) {
    throw std::invalid_argument(std::string("its \"") + key + "\" " + what);
  };
  const auto numbers = [&](const char* key, float(&values)[kMeasures]) {
    const std::string digits = text(key);
    const char* at = digits.c_str();
    for (float& value : values) {
      char* end = nullptr;
      value = std::strtof(at, &end);
      if (end == at || !std::isfinite(value)) refuse(key, "is not four numbers");
      at = end;
    }
    if (at != digits.c_str() + digits.size()) refuse(key, "is not four numbers");
  };
  Encoding encoding;
  numbers("mean", encoding.normalization.mean);
  numbers("scale", encoding.normalization.scale);
  for (const float scale : encoding.normalization.scale)  // a total is divided by it again
    if (!(scale > 0 && std::isfinite(1 / scale))) refuse("scale", "has numbers that are no scale");
  const std::string names = text("categories");
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('\t', begin), names.size());
    encoding.categories.push_back(names.substr(begin, end - begin));
    if (encoding.categories.back().empty()) refuse("categories", "has one without a name");
    begin = end + 1;
  }
  if (encoding.categories.size() > kCategories)
    throw std::invalid_argument("it has more than " + std::to_string(kCategories) + " categories");
  return encoding;
}

Checkpoint checkpoint_of(const std::string& path, const safetensors::File& file) {
  Checkpoint checkpoint;
  try {
    checkpoint.state = sequential::state_of(file.metadata);
    checkpoint.encoding = encoding_of(checkpoint.state.more);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " is no checkpoint of train_sales: " + error.what());
  }
  return checkpoint;
}

}  // namespace train_sales
