// safetensors::read() and write(): what is written comes back bit for bit, files made byte by byte
// are read or refused with a line that names the file, and a disk that is full harms nothing.
#include "common/safetensors.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"

namespace {

std::string length_of(std::uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += static_cast<char>(static_cast<unsigned char>(length >> (8 * i)));
  return text;
}

// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data = 0) {
  return length_of(header.size()) + header + std::string(data, '\x3F');
}

safetensors::File read(const std::string& content) {
  const tests::Folder folder;
  const std::string path = folder / "x";
  std::ofstream(path, std::ios::binary) << content;
  return safetensors::read(path);
}

// What read() says about a bad file, less the file's name, which must be there.
std::string complaint_about(const std::string& path) {
  try {
    safetensors::read(path);
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    CHECK(text.rfind(path + " ", 0) == 0);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.size() < path.size() + 200);
    return text.substr(std::min(text.size(), path.size() + 1));
  }
  return "read without complaint";
}
std::string complaint(const std::string& content) {
  const tests::Folder folder;
  const std::string path = folder / "x";
  std::ofstream(path, std::ios::binary) << content;
  return complaint_about(path);
}

std::string entry(const std::string& name, const std::string& shape, size_t begin, size_t end,
                  const std::string& type = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

using Shape = std::vector<std::size_t>;

safetensors::File example() {
  safetensors::File file;
  file.metadata = {{"steps", "12"}, {"note", "line\nbreak, \"quotes\", \xC3\xA4"}, {"", ""}};
  file.tensors = {{"b", {2, 3}, {0, -0.0f, 1e-45f, 3e38f, -1.5f, 7}},
                  {"a", {1}, {std::numeric_limits<float>::infinity()}},
                  {"scalar", {}, {0.1f}},
                  {"empty", {3, 0, 5}, {}},
                  {"a \"strange\" name", {2}, {std::numeric_limits<float>::quiet_NaN(), 2}}};
  return file;
}

}  // namespace

TEST_CASE("safetensors: what is written comes back bit for bit") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  const safetensors::File wrote = example();
  safetensors::write(path, wrote);
  CHECK(folder.files() == std::vector<std::string>{"model.safetensors"});
  const safetensors::File read = safetensors::read(path);
  CHECK(read.metadata == wrote.metadata);
  REQUIRE(read.tensors.size() == wrote.tensors.size());
  for (const safetensors::Tensor& want : wrote.tensors) {
    const safetensors::Tensor* got = read.find(want.name);
    CAPTURE(want.name);
    REQUIRE(got != nullptr);
    CHECK(got->shape == want.shape);
    REQUIRE(got->values.size() == want.values.size());
    for (size_t i = 0; i < want.values.size(); ++i)
      CHECK(std::memcmp(&got->values[i], &want.values[i], sizeof(float)) == 0);
  }
  CHECK(read.find("no such") == nullptr);
  CHECK(tests::read_file(path).size() % 4 == 0);
  CHECK((safetensors::bytes_of(wrote) == tests::read_file(path)));
  CHECK((safetensors::bytes_of(read) == safetensors::bytes_of(wrote)));

  safetensors::write(path, {});  // replaces it
  CHECK(tests::read_file(path) == file_of("{}      "));
  CHECK(safetensors::read(path).tensors.empty());
}

TEST_CASE("safetensors: files that others wrote") {
  // Keys in another order, white space, data in another order than the header.
  const std::string header =
      " {\"y\" : {\"data_offsets\":[8,12], \"shape\":[], \"dtype\":\"F32\"} ,\n" +
      entry("x", "[1,2]", 0, 8) + "}   ";
  const safetensors::File file = read(file_of(header.substr(1), 12));
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.find("x")->shape == Shape{1, 2});
  CHECK(file.find("y")->shape.empty());
  CHECK(file.metadata.empty());
  const float value = file.find("y")->values[0];
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  CHECK(bits == 0x3F3F3F3Fu);
}

TEST_CASE("safetensors: truncated at every byte") {
  const std::string whole = file_of("{" + entry("x", "[3]", 0, 12) + "}", 12);
  for (size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    REQUIRE(contains_text(complaint(whole.substr(0, length)), "is truncated"));
  }
  CHECK(read(whole).tensors.size() == 1);
  CHECK(contains_text(complaint(whole + "x"), "has 1 bytes left over"));
}

TEST_CASE("safetensors: every flipped bit of a header is survived") {
  const std::string header = "{\"__metadata__\":{\"k\":\"v\"}," + entry("x", "[2]", 0, 8) + "," +
                             entry("y", "[1]", 8, 12) + "}";
  const std::string whole = file_of(header, 12);
  size_t refused = 0;
  for (size_t i = 0; i < 8 + header.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      CAPTURE(i, bit);
      try {
        const size_t tensors = read(damaged).tensors.size();
        REQUIRE(tensors >= 2);  // a name or a text has become another one
      } catch (const std::runtime_error&) {
        ++refused;
      }
    }
  CHECK(refused > 8 * header.size() * 3 / 4);
}

TEST_CASE("safetensors: headers that are none") {
  CHECK(contains_text(complaint(length_of(100000001) + "{}"), "would have 100000001 bytes"));
  CHECK(contains_text(complaint(length_of(~std::uint64_t{0}) + "{}"), "is no tensor file"));
  CHECK(contains_text(complaint(length_of(100000000) + "{}"), "100000000 bytes is due, 2 are"));
  CHECK(contains_text(complaint("PK\x03\x04 is another kind of file"), "is no tensor file"));
  CHECK(contains_text(complaint(file_of("")), "begins with no {"));
  CHECK(contains_text(complaint(file_of(" {}")), "begins with no {"));
  CHECK(contains_text(complaint(file_of("[1, 2]")), "begins with no {"));
  for (const std::string text : {"{", "{}}", "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":NaN}",
                                 "{\"\xFF\":1}", "{\"\xC3\":1}", "{\"a\nb\":1}", "{}x"})
    CHECK(complaint(file_of(text)) == "has a header that is not valid JSON");
  CHECK(complaint(file_of(std::string("{}\0", 3))) == "has a header that is not valid JSON");
  CHECK(contains_text(complaint(file_of("{\"a\":" + std::string(100000, '['))), "too deeply"));
  CHECK(contains_text(complaint(file_of("{\"a\":{\"b\":[{\"c\":1}]}}")), "too deeply"));
}

TEST_CASE("safetensors: keys that are there twice") {
  CHECK(complaint(file_of("{" + entry("x", "[1]", 0, 4) + "," + entry("x", "[1]", 4, 8) + "}",
                          8)) == "has \"x\" twice in its header");
  CHECK(complaint(file_of("{\"__metadata__\":{},\"__metadata__\":{}}")) ==
        "has \"__metadata__\" twice in its header");
  CHECK(complaint(file_of("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}")) ==
        "has \"a\" twice in its header");
  CHECK(contains_text(complaint(file_of("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
                                        "\"data_offsets\":[0,4]}}",
                                        4)),
                      "has \"dtype\" twice"));
}

TEST_CASE("safetensors: tensors that are described wrongly") {
  const auto says = [](const std::string& description) {
    return complaint(file_of("{\"x\":" + description + "}", 4));
  };
  const std::string offsets = "\"data_offsets\":[0,4]}", type = "{\"dtype\":\"F32\",";
  CHECK(contains_text(says("7"), "not described by an object"));
  CHECK(contains_text(says("[1]"), "not described by an object"));
  CHECK(contains_text(says("{\"shape\":[1]," + offsets), "without a dtype"));
  CHECK(contains_text(says("{\"dtype\":32,\"shape\":[1]," + offsets), "without a dtype"));
  CHECK(contains_text(says("{\"dtype\":\"F16\",\"shape\":[2]," + offsets), "of type \"F16\"; F32"));
  CHECK(contains_text(says("{\"dtype\":\"f32\",\"shape\":[1]," + offsets), "of type \"f32\"; F32"));
  for (const std::string shape : {"1", "\"1\"", "null", "{}", "[-1]", "[1.0]", "[true]", "[\"1\"]",
                                  "[[]]", "[1e0]", "[99999999999999999999999]"}) {
    CAPTURE(shape);
    CHECK(contains_text(says(type + "\"shape\":" + shape + "," + offsets),
                        "whose shape is no list of sizes"));
  }
  CHECK(contains_text(says(type + offsets), "whose shape is no list"));
  CHECK(contains_text(says(type + "\"shape\":[1]}"), "whose data_offsets is no list"));
  CHECK(contains_text(says(type + "\"shape\":[1],\"data_offsets\":[-4,4]}"), "is no list"));
  for (const std::string bad : {"[]", "[4]", "[0,4,8]", "[4,0]"})
    CHECK(contains_text(says(type + "\"shape\":[1],\"data_offsets\":" + bad + "}"),
                        "are not a begin and an end"));
  CHECK(contains_text(says(type + "\"shape\":[2]," + offsets), "of shape [2] in 4 bytes"));
  CHECK(contains_text(says(type + "\"shape\":[]," + "\"data_offsets\":[0,0]}"), "shape [] in 0"));
  // Products that wrap around to the 1 that would fit.
  CHECK(contains_text(says(type + "\"shape\":[4294967296,4294967296]," + offsets), "in 4 bytes"));
  CHECK(contains_text(says(type + "\"shape\":[4611686018427387905]," + offsets), "in 4 bytes"));
  const std::string hostile = "{\"a\\nb" + std::string(500, 'x') + "\":7}";
  CHECK(contains_text(complaint(file_of(hostile)), "has a tensor \"a\\nbxxx"));
}

TEST_CASE("safetensors: data that overlaps, has holes or ends early") {
  const auto says = [](size_t begin, size_t end, size_t bytes) {
    return complaint(
        file_of("{" + entry("x", "[1]", 0, 4) + "," + entry("y", "[2]", begin, end) + "}", bytes));
  };
  CHECK(says(4, 12, 12) == "read without complaint");
  CHECK(contains_text(says(0, 8, 8), "where byte"));
  CHECK(contains_text(says(2, 10, 10), "\"y\" at byte 2 of its data, where byte 4 was due"));
  CHECK(contains_text(says(5, 13, 13), "\"y\" at byte 5 of its data, where byte 4 was due"));
  CHECK(contains_text(says(4, 12, 11), "truncated: 12 bytes of data are due, 11 are there"));
  CHECK(contains_text(says(4, 12, 13), "has 1 bytes left over"));
  CHECK(
      contains_text(complaint(file_of("{" + entry("x", "[1]", 4, 8) + "}", 8)), "byte 0 was due"));
  CHECK(contains_text(
      complaint(
          file_of("{" + entry("x", "[4611686018427387903]", 0, 18446744073709551612u) + "}", 4)),
      "is truncated: 18446744073709551612 bytes"));
}

TEST_CASE("safetensors: metadata holds texts") {
  CHECK(contains_text(complaint(file_of("{\"__metadata__\":7}")), "metadata that is no object"));
  CHECK(contains_text(complaint(file_of("{\"__metadata__\":[]}")), "metadata that is no object"));
  CHECK(complaint(file_of("{\"__metadata__\":{\"steps\":7}}")) ==
        "has metadata \"steps\" that is no text");
}

TEST_CASE("safetensors: integers come back where a reader takes them, else they are refused") {
  const tests::Folder folder;
  const std::string path = folder / "x";
  using Integers = std::vector<std::int64_t>;
  const Integers values{std::numeric_limits<std::int64_t>::min(), -1, (std::int64_t{1} << 53) + 1};
  const safetensors::File wrote{
      {}, {{"i", {3}, {}, true, values}, {"none", {0, 2}, {}, true, {}}, {"f", {1}, {0.5f}}}};
  safetensors::write(path, wrote);
  const safetensors::File read = safetensors::read(path, safetensors::Types::f32_and_i64);
  REQUIRE(read.tensors.size() == 3);
  CHECK((read.find("i")->is_integer && read.find("i")->values.empty()));
  CHECK(read.find("i")->integers == values);
  CHECK(read.find("i")->shape == Shape{3});
  CHECK((read.find("none")->is_integer && read.find("none")->integers.empty()));
  CHECK((!read.find("f")->is_integer && read.find("f")->integers.empty()));
  CHECK(read.find("f")->values == std::vector<float>{0.5f});
  const std::string bytes = tests::read_file(path);
  CHECK(contains_text(bytes, "\"I64\""));
  CHECK((safetensors::bytes_of(wrote) == bytes && safetensors::bytes_of(read) == bytes));
  const safetensors::File parsed =
      safetensors::parse_tensors(path, bytes, safetensors::Types::f32_and_i64);
  CHECK(parsed.find("i")->integers == values);

  CHECK(complaint_about(path) == "has a tensor \"i\" of type \"I64\"; F32 can be read");
  const auto says = [&](const std::string& content) {
    try {
      safetensors::parse_tensors("x", content, safetensors::Types::f32_and_i64);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("read without complaint");
  };
  const auto of_shape = [&](const std::string& shape, size_t data, const std::string& type) {
    return says(file_of("{" + entry("x", shape, 0, data, type) + "}", data));
  };
  CHECK(of_shape("[2]", 16, "I64") == "read without complaint");
  CHECK(of_shape("[2]", 8, "I64") == "x has a tensor \"x\" of shape [2] in 8 bytes");
  CHECK(of_shape("[2]", 16, "F32") == "x has a tensor \"x\" of shape [2] in 16 bytes");
  CHECK(of_shape("[]", 4, "I64") == "x has a tensor \"x\" of shape [] in 4 bytes");
  CHECK(of_shape("[2305843009213693953]", 8, "I64") ==
        "x has a tensor \"x\" of shape [2305843009213693953] in 8 bytes");  // 2^64 + 8
  for (const std::string type : {"F16", "F64", "I32", "i64", "U64"})
    CHECK(of_shape("[1]", 8, type) ==
          "x has a tensor \"x\" of type \"" + type + "\"; F32 and I64 can be read");
  for (size_t length = 0; length < bytes.size(); ++length)
    REQUIRE(contains_text(says(bytes.substr(0, length)), "is truncated"));

  for (const safetensors::Tensor& wrong :
       {safetensors::Tensor{"x", {2}, {}, true, {1}}, safetensors::Tensor{"x", {1}, {1}, true, {}},
        safetensors::Tensor{"x", {1}, {}, false, {1}}})
    CHECK_THROWS_AS(safetensors::write(folder / "y", {{}, {wrong}}), std::invalid_argument);
}

TEST_CASE("safetensors: what is no file") {
  const tests::Folder folder;
  CHECK(contains_text(complaint_about(folder / "none"), "cannot be opened: No such file"));
  CHECK(complaint_about(folder / "") == "is a folder");
  CHECK(complaint_about("/dev/null") == "is not a regular file");
  const std::string pipe = folder / "pipe", secret = folder / "secret";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(complaint_about(pipe) == "is not a regular file");
  std::ofstream(secret) << "x";
  REQUIRE(chmod(secret.c_str(), 0) == 0);
  if (geteuid() != 0)  // root may read it
    CHECK(contains_text(complaint_about(secret), "cannot be opened: Permission denied"));
}

TEST_CASE("safetensors: what can't be written is refused before anything is") {
  const tests::Folder folder;
  const std::string path = folder / "x";
  const auto refuses = [&](const safetensors::File& file) {
    CHECK_THROWS_AS(safetensors::write(path, file), std::invalid_argument);
    CHECK(folder.files().empty());
  };
  refuses({{}, {{"x", {2}, {1}}}});
  refuses({{}, {{"x", {}, {}}}});
  refuses({{}, {{"x", {std::size_t{1} << 62, 4}, {}}}});
  refuses({{}, {{"x", {1}, {1}}, {"x", {1}, {1}}}});
  refuses({{}, {{"__metadata__", {1}, {1}}}});
  refuses({{}, {{"\xFF", {1}, {1}}}});
  refuses({{{"key", "\xC3("}}, {}});
  CHECK_THROWS_AS(safetensors::write(folder / "no/x", example()), std::runtime_error);
  CHECK_THROWS_AS(safetensors::write(folder / "", example()), std::runtime_error);
  CHECK_THROWS_AS(safetensors::write("/dev/null", example()), std::runtime_error);
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

// A limit on the size of files stands for the full disk.
TEST_CASE("safetensors: a full disk leaves the old file as it was") {
  const tests::Folder folder;
  const std::string path = folder / "model";
  safetensors::write(path, example());
  const std::string before = tests::read_file(path);

  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{64, limit.rlim_max};
  safetensors::File large = example();
  large.tensors[0] = {"b", {1000000}, std::vector<float>(1000000, 1)};
  std::string text;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  try {
    safetensors::write(path, large);
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(text == path + " cannot be written: File too large");
  CHECK(tests::read_file(path) == before);
  CHECK(folder.files() == std::vector<std::string>{"model"});
  safetensors::write(path, large);
  CHECK(safetensors::read(path).find("b")->shape == Shape{1000000});
}
