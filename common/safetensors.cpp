#include "common/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "common/input_file.h"
#include "common/output_file.h"
#include "common/sizes.h"

namespace safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;             // in front of the header
constexpr std::size_t kMaxHeaderBytes = 100000000;  // the format's own limit
constexpr std::size_t kMaxShown = 60;               // characters of a quoted text
constexpr int kMaxDepth = 3;                        // file > tensor > shape

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + " " + what);
}

// The header's length as its 8 bytes, lowest first.
std::uint64_t to_length(const unsigned char* bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{bytes[i]} << (8 * i);
  return length;
}
std::string to_bytes(std::uint64_t length) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>(static_cast<unsigned char>(length >> (8 * i)));
  return bytes;
}

std::size_t bytes_of_element(bool is_integer) {
  return is_integer ? sizeof(std::int64_t) : sizeof(float);
}
// How many elements the shape has; nothing where their bytes could not be counted.
std::optional<std::size_t> count_elements(const std::vector<std::size_t>& shape, bool is_integer) {
  return sizes::product(shape,
                        std::numeric_limits<std::size_t>::max() / bytes_of_element(is_integer));
}
std::size_t elements_of(const Tensor& tensor) {
  return tensor.is_integer ? tensor.integers.size() : tensor.values.size();
}

// ---- Reading ----------------------------------------------------------------------------------

// The header as JSON. A parser that keeps the last of two equal keys would hide a damaged file, and
// one that follows any depth would run out of stack on a hostile one.
Json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) fail(path, "has a header that is nested too deeply");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string key = value.get<std::string>();
      if (!keys.back().insert(key).second)
        fail(path, "has " + quoted(key) + " twice in its header");
    }
    return true;
  };
  try {
    if (text.find('\0') == std::string::npos)  // where the parser would stop, content
      return Json::parse(text, check);
  } catch (const Json::exception&) {  // said below
  }
  fail(path, "has a header that is not valid JSON");
}

// What the header says of one tensor.
struct Entry {
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t begin, end;  // bytes, counted from behind the header
  bool is_integer;
};

// The list of numbers under `key`.
std::vector<std::size_t> numbers(const std::string& path, const std::string& name,
                                 const Json& tensor, const char* key) {
  const auto found = tensor.find(key);
  const bool is_list = found != tensor.end() && found->is_array();
  if (!is_list || !std::all_of(found->begin(), found->end(),
                               [](const Json& number) { return number.is_number_unsigned(); }))
    fail(path, "has a tensor " + quoted(name) + " whose " + key + " is no list of sizes");
  return found->get<std::vector<std::size_t>>();
}

Entry to_entry(const std::string& path, const std::string& name, const Json& tensor, Types types) {
  const std::string who = "has a tensor " + quoted(name);
  if (!tensor.is_object()) fail(path, who + " that is not described by an object");
  const auto type = tensor.find("dtype");
  if (type == tensor.end() || !type->is_string()) fail(path, who + " without a dtype");
  const bool takes_integers = types == Types::f32_and_i64, is_integer = *type == "I64";
  if (*type != "F32" && !(takes_integers && is_integer))
    fail(path, who + " of type " + quoted(type->get<std::string>()) + "; " +
                   (takes_integers ? "F32 and I64" : "F32") + " can be read");
  Entry entry{name, numbers(path, name, tensor, "shape"), 0, 0, is_integer};
  const std::vector<std::size_t> offsets = numbers(path, name, tensor, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    fail(path, who + " whose data_offsets are not a begin and an end");
  entry.begin = offsets[0], entry.end = offsets[1];
  const std::optional<std::size_t> count = count_elements(entry.shape, is_integer);
  if (!count || *count * bytes_of_element(is_integer) != entry.end - entry.begin)
    fail(path, who + " of shape " + shape_text(entry.shape) + " in " +
                   std::to_string(entry.end - entry.begin) + " bytes");
  return entry;
}

std::map<std::string, std::string> to_metadata(const std::string& path, const Json& object) {
  std::map<std::string, std::string> metadata;
  if (!object.is_object()) fail(path, "has metadata that is no object");
  for (const auto& [key, text] : object.items()) {
    if (!text.is_string()) fail(path, "has metadata " + quoted(key) + " that is no text");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// The arrays must fill the rest of the file, each byte belonging to one of them. Sorts them.
void check_offsets(const std::string& path, std::vector<Entry>& entries, std::size_t bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
  });
  std::size_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end)
      fail(path, "has a tensor " + quoted(entry.name) + " at byte " + std::to_string(entry.begin) +
                     " of its data, where byte " + std::to_string(end) + " was due");
    end = entry.end;
  }
  if (end > bytes)
    fail(path, "is truncated: " + std::to_string(end) + " bytes of data are due, " +
                   std::to_string(bytes) + " are there");
  if (end < bytes)
    fail(path, "has " + std::to_string(bytes - end) + " bytes left over behind its tensors");
}

// Puts the file's next bytes into memory: its parts are read from front to back.
using Take = std::function<void(void* to, std::size_t bytes)>;

// What a file of `size` bytes holds.
File content_of(const std::string& path, std::size_t size, Types types, const Take& take) {
  if (size < kLengthBytes)
    fail(path,
         "is truncated: a tensor file begins with 8 bytes, " + std::to_string(size) + " are there");
  unsigned char length_bytes[kLengthBytes];
  take(length_bytes, kLengthBytes);
  const std::uint64_t length = to_length(length_bytes);
  if (length > kMaxHeaderBytes)
    fail(path, "is no tensor file: its header would have " + std::to_string(length) + " bytes");
  if (length > size - kLengthBytes)
    fail(path, "is truncated: a header of " + std::to_string(length) + " bytes is due, " +
                   std::to_string(size - kLengthBytes) + " are there");
  std::string text(static_cast<std::size_t>(length), '\0');
  take(&text[0], text.size());
  if (text.empty() || text[0] != '{') fail(path, "is no tensor file: its header begins with no {");

  File result;
  std::vector<Entry> entries;
  const Json header = parse_header(path, text);
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      result.metadata = to_metadata(path, value);
    else
      entries.push_back(to_entry(path, name, value, types));
  }
  check_offsets(path, entries, size - kLengthBytes - static_cast<std::size_t>(length));

  for (const Entry& entry : entries) {
    Tensor tensor{entry.name, entry.shape, {}, entry.is_integer};
    const std::size_t bytes = entry.end - entry.begin;
    if (entry.is_integer) {
      tensor.integers.resize(bytes / sizeof(std::int64_t));
      take(tensor.integers.data(), bytes);
    } else {
      tensor.values.resize(bytes / sizeof(float));
      take(tensor.values.data(), bytes);
    }
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

// ---- Writing ----------------------------------------------------------------------------------

std::string to_header(const File& file) {
  Json header = Json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  std::size_t end = 0;
  for (const Tensor& tensor : file.tensors) {
    const std::optional<std::size_t> count = count_elements(tensor.shape, tensor.is_integer);
    if (!count || *count != elements_of(tensor))
      throw std::invalid_argument("tensor " + quoted(tensor.name) + " of shape " +
                                  shape_text(tensor.shape) + " has " +
                                  std::to_string(elements_of(tensor)) + " values");
    if (tensor.name == "__metadata__" || header.contains(tensor.name))
      throw std::invalid_argument("there is already a tensor " + quoted(tensor.name));
    const std::size_t begin = end;
    end += *count * bytes_of_element(tensor.is_integer);
    header[tensor.name] = {{"dtype", tensor.is_integer ? "I64" : "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw std::invalid_argument("the names and the metadata of a tensor file must be UTF-8");
  }
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');  // data aligned
  if (text.size() > kMaxHeaderBytes)
    throw std::invalid_argument("the header of a tensor file must not be longer than 100 MB");
  return text;
}

// Hands the file's bytes to `put`, piece by piece, until it returns false.
bool put_all(const File& file, const std::string& header,
             const std::function<bool(const void* from, std::size_t bytes)>& put) {
  const std::string length = to_bytes(header.size());
  bool done = put(length.data(), length.size()) && put(header.data(), header.size());
  for (const Tensor& tensor : file.tensors) {
    const void* const from =
        tensor.is_integer ? static_cast<const void*>(tensor.integers.data()) : tensor.values.data();
    if (elements_of(tensor) > 0)
      done = done && put(from, elements_of(tensor) * bytes_of_element(tensor.is_integer));
  }
  return done;
}

}  // namespace

const Tensor* File::find(const std::string& name) const {
  for (const Tensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

std::string shape_text(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
    if (text.size() > kMaxShown) return "[" + text + ", ...]";
  }
  return "[" + text + "]";
}

std::string quoted(const std::string& text) {
  // As JSON in ASCII, where a line break is two letters, and may be cut anywhere.
  const std::string json = Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  return json.size() <= kMaxShown ? json : json.substr(0, kMaxShown) + "...\"";
}

File read(const std::string& path, Types types) {
  const input_file::Pointer file = input_file::open(path);
  std::error_code error;
  const std::size_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, "cannot be read: " + error.message());
  return content_of(path, size, types, [&](void* to, std::size_t bytes) {
    errno = 0;
    if (bytes == 0 || std::fread(to, 1, bytes, file.get()) == bytes) return;
    fail(path, std::string("cannot be read: ") +
                   (errno != 0 ? std::strerror(errno) : "it has become shorter meanwhile"));
  });
}

File parse_tensors(const std::string& path, std::string_view bytes, Types types) {
  std::string_view left = bytes;
  return content_of(path, bytes.size(), types, [&](void* to, std::size_t count) {
    left.copy(static_cast<char*>(to), count);
    left.remove_prefix(count);
  });
}

std::string bytes_of(const File& file) {
  std::string bytes;
  put_all(file, to_header(file), [&](const void* from, std::size_t count) {
    bytes.append(static_cast<const char*>(from), count);
    return true;
  });
  return bytes;
}

void write(const std::string& path, const File& file) {
  const std::string header = to_header(file);  // which may throw, before anything is written
  output_file::replace(path, [&](std::FILE* out) {
    return put_all(file, header, [&](const void* from, std::size_t bytes) {
      return std::fwrite(from, 1, bytes, out) == bytes;
    });
  });
}

}  // namespace safetensors
