// State dicts as files: round trips, files that others wrote, what is refused, and a process that
// is killed while it saves.
#include "stage8_framework/04_modules/state_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "common/safetensors.h"
#include "common/tests/programs.h"
#include "stage8_framework/04_modules/layers.h"
#include "stage8_framework/04_modules/modules_for_tests.h"
#include "stage8_framework/04_modules/optimizer.h"

using namespace modules_test;

namespace {

// A model with an integer buffer.
std::unique_ptr<Sequential> net(std::uint64_t seed = 1) {
  return std::make_unique<Sequential>(std::make_unique<Conv2d>(own(), 1, 2, 3, 1, 0, true, seed),
                                      std::make_unique<BatchNorm2d>(own(), 2),
                                      std::make_unique<Flatten>(),
                                      std::make_unique<Linear>(own(), 8, 3, true, seed + 1));
}

// All tensors' bits, by name.
std::map<std::string, std::string> bits_of(const StateDict& state) {
  std::map<std::string, std::string> bits;
  for (const auto& [name, tensor] : state) {
    std::string& bytes = bits[name + " " + tensor.text()];
    bytes.resize(static_cast<size_t>(tensor.elements()) * size_of(tensor.dtype()));
    tensor.contiguous().to_host(&bytes[0]);
  }
  return bits;
}

std::string length_of(std::uint64_t length) {
  std::string bytes(sizeof length, '\0');
  std::memcpy(&bytes[0], &length, sizeof length);
  return bytes;
}
template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// What load() into a model says of a file of these bytes, less its name. The model stays as it was.
std::string complaint(const std::string& bytes) {
  const tests::Folder folder;
  const std::string path = folder / "x";
  tests::write_file(path, bytes);
  const auto model = net();
  const auto before = bits_of(model->state_dict());
  const std::string line = error_of<std::runtime_error>([&] { load(path, *model); });
  REQUIRE(bits_of(model->state_dict()) == before);
  REQUIRE(line.rfind(path, 0) == 0);
  return line.substr(path.size());
}

}  // namespace

TEST_CASE("a module comes back from its file bit for bit") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  const auto model = net(), other = net(7);
  (*model)(random_tensor({3, 1, 4, 4}, 1));  // its statistics have moved
  save(path, *model);
  REQUIRE(folder.files() == std::vector<std::string>{"model.safetensors"});
  const auto want = bits_of(model->state_dict());
  REQUIRE(bits_of(other->state_dict()) != want);
  load(path, *other);
  REQUIRE(bits_of(other->state_dict()) == want);
  REQUIRE(bits_of(load(path, own())) == want);
  const StateDict state = load(path, reference());
  REQUIRE(bits_of(state) == want);
  for (const auto& [name, tensor] : state) REQUIRE(&tensor.device() == &reference());
  (*other)(random_tensor({3, 1, 4, 4}, 1));
  REQUIRE(other->state_dict().at("1.num_batches_tracked").to_host<std::int64_t>()[0] == 2);

  // The larger elements come first, so that all are aligned.
  const std::string bytes = tests::read_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  REQUIRE(header % 8 == 0);
  std::int64_t count = 0;
  std::memcpy(&count, bytes.data() + 8 + header, sizeof count);
  REQUIRE(count == 1);
}

TEST_CASE("tensors of any strides and real types, and of extreme values") {
  const tests::Folder folder;
  const std::string path = folder / "x";
  StateDict state;
  state["f64"] = Tensor::from_host(reference(), Doubles{0.5, 1e300, -0.0}, {3});
  state["turned"] = Tensor::from_host(own(), Floats{1, 2, 3, 4, 5, 6}, {2, 3}).transpose(0, 1);
  state["scalar"] = full(own(), {}, 3);
  state["empty"] = full(own(), {0, 4}, 3);
  state["i64"] =
      Tensor::from_host(own(),
                        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(),
                                                  (std::int64_t{1} << 53) + 1},
                        {2});
  save(path, state);
  const StateDict back = load(path, own());
  REQUIRE(back.size() == 5);
  REQUIRE(testing::same_bits(host(back.at("f64")), Floats{0.5f, INFINITY, -0.0f}));
  REQUIRE(host(back.at("turned")) == Floats{1, 4, 2, 5, 3, 6});
  REQUIRE(back.at("turned").shape() == Shape{3, 2});
  REQUIRE((back.at("scalar").rank() == 0 && host(back.at("scalar")) == Floats{3}));
  REQUIRE(back.at("empty").shape() == Shape{0, 4});
  REQUIRE(back.at("i64").to_host<std::int64_t>() == state["i64"].to_host<std::int64_t>());
  for (const auto& [name, tensor] : back)
    REQUIRE(tensor.dtype() == (name == "i64" ? Dtype::i64 : Dtype::f32));
}

TEST_CASE("an optimizer comes back from its file") {
  const tests::Folder folder;
  const std::string path = folder / "optimizer";
  const auto model = net(), other = net();
  ArenaOptimizer of_model(model->parameters(), {kAdam}), of_other(other->parameters(), {kAdam});
  sum(square((*model)(random_tensor({3, 1, 4, 4}, 1)))).backward();
  of_model.step(0.1);
  save(path, of_model.state_dict());
  of_other.load_state_dict(load(path, own()));
  REQUIRE(bits_of(of_other.state_dict()) == bits_of(of_model.state_dict()));
}

// As Python's package writes it: metadata, white space, and tensors in another order than the data.
TEST_CASE("a file that others wrote is loaded") {
  const tests::Folder folder;
  const std::string path = folder / "torch.safetensors";
  const std::string header =
      R"({"__metadata__":{"format":"pt"}, "weight":{"shape":[2],"data_offsets":[16,24],"dtype":"F32"},)"
      R"("running_var":{"dtype":"F32","shape":[2],"data_offsets":[32,40]},)"
      R"("num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)"
      R"("running_mean":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}    )";
  tests::write_file(path, length_of(header.size()) + header +
                              raw_bytes(std::vector<std::int64_t>{12}) +
                              raw_bytes(Floats{1, 2, 3, 4, 5, 6, 7, 8}));
  BatchNorm2d layer(own(), 2);
  load(path, layer);
  REQUIRE(host(layer.running_mean) == Floats{1, 2});
  REQUIRE(host(layer.weight) == Floats{3, 4});
  REQUIRE(host(layer.bias) == Floats{5, 6});
  REQUIRE(host(layer.running_var) == Floats{7, 8});
  REQUIRE(layer.num_batches_tracked.to_host<std::int64_t>()[0] == 12);
  REQUIRE(layer.weight.requires_grad());
}

TEST_CASE("files that don't fit are refused in a line, and the module stays as it was") {
  const auto model = net(5);
  safetensors::File file;
  {
    const tests::Folder folder;
    save(folder / "x", *model);
    file = safetensors::read(folder / "x", safetensors::Types::f32_and_i64);
  }
  const auto changed = [&](auto change) {
    safetensors::File other = file;
    for (auto it = other.tensors.begin(); it != other.tensors.end(); ++it)
      if (it->name == "3.bias") {
        change(other, it);
        break;
      }
    return complaint(safetensors::bytes_of(other));
  };
  REQUIRE(changed([](auto& f, auto it) { f.tensors.erase(it); }) ==
          ": load_state_dict: 3.bias is missing");
  REQUIRE(changed([](auto& f, auto) {
            f.tensors.push_back({"extra", {1}, {1}});
          }) == ": load_state_dict: the module has no extra");
  REQUIRE(changed([](auto&, auto it) {
            it->shape = {3, 1};
          }) == ": load_state_dict: 3.bias is f32 (3,1), not f32 (3)");
  REQUIRE(changed([](auto&, auto it) { it->name = "3.biax"; }) ==
          ": load_state_dict: 3.bias is missing");
  REQUIRE(changed([](auto&, auto it) {
            *it = {"3.bias", {3}, {}, true, {1, 2, 3}};
          }) == ": load_state_dict: 3.bias is i64 (3), not f32 (3)");
  REQUIRE(changed([](auto&, auto it) { it->shape = {3, 1, 1, 1, 1, 1, 1, 1, 1}; }) ==
          " has a tensor \"3.bias\" of rank 9; 8 axes are the most");
  const std::string whole = safetensors::bytes_of(file);
  for (const size_t length : {size_t{0}, size_t{7}, size_t{100}, whole.size() - 1})
    REQUIRE(contains_text(complaint(whole.substr(0, length)), " is truncated: "));
  std::string header = R"({"3.bias":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
  REQUIRE(complaint(length_of(header.size()) + header + "1234") ==
          " has a tensor \"3.bias\" of type \"F16\"; F32 and I64 can be read");
  const tests::Folder folder;
  const std::string none = folder / "none";
  REQUIRE(error_of<std::runtime_error>([&] { load(none, *model); }) ==
          none + " cannot be opened: No such file or directory");
}

TEST_CASE("a name that can't be written is refused in a line") {
  const tests::Folder folder;
  const auto model = net();
  REQUIRE(error_of<std::runtime_error>([&] {
            save(folder / "none/model", *model);
          }).rfind(folder / "none/model", 0) == 0);
  REQUIRE(error_of<std::runtime_error>([&] {
            save(folder.name(), *model);
          }).rfind(folder.name(), 0) == 0);
  REQUIRE(folder.files().empty());
}

// A child saves one model and then another, over and over, and is killed in the middle.
TEST_CASE("a process that is killed while it saves leaves a whole file") {
  const tests::Folder folder;
  const std::string path = folder / "model";
  StateDict ones, twos;
  for (const char* const name : {"a", "b"}) {
    ones[name] = full(reference(), {100000}, 1);
    twos[name] = full(reference(), {100000}, 2);
  }
  save(path, ones);
  size_t halves = 0;  // files that were not complete
  for (int round = 0; round < 12; ++round) {
    const pid_t child = fork();
    if (child == 0) try {
        for (;;) save(path, twos), save(path, ones);
      } catch (...) {
        _exit(1);
      }
    usleep(static_cast<useconds_t>(2000 + 1700 * round));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const StateDict state = load(path, reference());
    REQUIRE(state.size() == 2);
    const Floats a = host(state.at("a")), b = host(state.at("b"));
    REQUIRE((a == b && a == Floats(100000, a[0]) && (a[0] == 1 || a[0] == 2)));
    halves += folder.files().size() - 1;
  }
  REQUIRE(halves > 0);
  save(path, ones);  // what the killed ones have left is gone then
  REQUIRE(folder.files() == std::vector<std::string>{"model"});
}
