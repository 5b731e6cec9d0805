// parse_idx_images() and parse_idx_labels(): what they accept of a plain file is the whole file,
// and the same file packed gives the same images, labels or complaint.
#include "tests/fuzz/idx.h"

#include <algorithm>

#include "common/idx.h"

namespace {

using Labels = std::vector<std::uint8_t>;

constexpr unsigned kClasses = 10;

std::string as_text(const Labels& bytes) { return std::string(bytes.begin(), bytes.end()); }

std::string to_file(const IdxImages& images) {
  return fuzz::idx_number(0x803) + fuzz::idx_number(images.count) + fuzz::idx_number(images.rows) +
         fuzz::idx_number(images.cols) + as_text(images.pixels);
}
std::string to_file(const Labels& labels) {
  return fuzz::idx_number(0x801) + fuzz::idx_number(labels.size()) + as_text(labels);
}

void check(const IdxImages& images) {
  fuzz::expect(images.count > 0 && images.rows > 0 && images.cols > 0, "there are images");
  fuzz::expect(images.pixels.size() == images.count * images.pixels_per_image(),
               "there are as many pixels as the sizes say");
}
void check(const Labels& labels) {
  fuzz::expect(!labels.empty(), "there are labels");
  fuzz::expect(std::all_of(labels.begin(), labels.end(), [](auto l) { return l < kClasses; }),
               "each label is below the number of classes");
}

// `packed` holds the bytes as gzip has them; it is empty where they are packed themselves.
template <class Parse, class Read>
void feed(std::string_view bytes, const std::string& packed, Parse parse, Read read) {
  const auto write = [](const auto& content) { return to_file(content); };
  std::string complaint, complaint_packed;
  const auto got = fuzz::parsed(bytes, parse, read, write, &complaint);
  if (got) check(*got);
  if (packed.empty()) return;
  if (got) fuzz::expect(to_file(*got) == bytes, "what was read writes back to the same file");
  const auto same = fuzz::read_or_refused(
      fuzz::kName, [&] { return parse(fuzz::kName, packed); }, &complaint_packed);
  fuzz::expect(complaint == complaint_packed, "a packed file is refused as the plain one is");
  if (got) fuzz::expect(to_file(*same) == bytes, "a packed file holds what the plain one does");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::bytes_of(data, size);
  const std::string packed = fuzz::is_gzip(bytes) ? "" : fuzz::gzip(bytes);
  feed(bytes, packed, parse_idx_images, read_idx_images);
  feed(
      bytes, packed,
      [](const std::string& path, std::string_view content) {
        return parse_idx_labels(path, content, kClasses);
      },
      [](const std::string& path) { return read_idx_labels(path, kClasses); });
  return 0;
}
