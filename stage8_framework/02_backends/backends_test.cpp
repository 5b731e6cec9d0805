// Who runs a call, what is refused, and what an error leaves behind.
#include "stage8_framework/02_backends/dispatch.h"

#include <stdexcept>

#include "common/error.h"
#include "common/testing.h"
#include "stage8_framework/01_tensor/gpu_device.h"
#include "stage8_framework/02_backends/fake_for_tests.h"
#include "stage8_framework/02_backends/functions.h"

using namespace framework;
using fake::record;

namespace {

using Floats = std::vector<float>;

struct OnFake {
  Device& device = fake::device();
  Tensor a = Tensor::from_host(device, Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor b = Tensor::from_host(device, Floats{10, 20, 30, 40, 50, 60}, {2, 3});
  Tensor square = Tensor::from_host(device, Floats{1, 2, 3, 4}, {2, 2});

  OnFake() { use(device, "fake"); }
};

Call addition(const Tensor& a, const Tensor& b) {
  Call call;
  call.op = &op_named("add");
  call.input_count = 2;
  call.inputs[0] = a, call.inputs[1] = b;
  return call;
}

std::string refused(Call call) {
  const int outputs = call.output_count;
  const std::string text = testing::what_of<std::invalid_argument>([&] { run(call); });
  REQUIRE(call.output_count == outputs);
  for (int i = outputs; i < kMaxOutputs; ++i) REQUIRE(!call.outputs[i].is_defined());
  return text;
}

}  // namespace

TEST_CASE("outputs are allocated where they are undefined, and writes are counted") {
  const OnFake on;
  Call call = addition(on.a, on.b);
  run(call);
  REQUIRE(call.output_count == 1);
  const Tensor sum = call.outputs[0];
  REQUIRE(sum.to_host<float>() == Floats{11, 22, 33, 44, 55, 66});
  REQUIRE((sum.version() == 1 && on.a.version() == 0));
  run(call);  // into the output that is there
  REQUIRE((call.outputs[0].shares_storage(sum) && sum.version() == 2));
  REQUIRE((record.adds == 2 && !record.has_workspace));
  record.workspace = 1000;
  run(call);
  REQUIRE(record.has_workspace);
  REQUIRE(add(on.a.slice(0, 0, 0), on.b.slice(0, 0, 0)).shape() == Shape{0, 3});
  REQUIRE(record.adds == 3);  // of no elements nothing is run
}

TEST_CASE("a call that is wrong is refused in one line, and nothing has changed") {
  const OnFake on;
  REQUIRE(refused(addition(on.a, Tensor())) ==
          "add of f32 (2,3) and none: input 1 of \"a b\" is undefined");
  Call call = addition(on.a, on.b);
  call.input_count = 1;
  REQUIRE(contains_text(refused(call), "its inputs are \"a b\""));
  call.input_count = 2, call.output_count = 2;
  REQUIRE(contains_text(refused(call), "it has 1 outputs"));
  REQUIRE(contains_text(refused(addition(on.a, on.square)), "add of f32 (2,3) and f32 (2,2): "));
  const auto into = [&](const Tensor& out) {
    Call to = addition(on.a, on.b);
    to.output_count = 1, to.outputs[0] = out;
    return refused(to);
  };
  REQUIRE(contains_text(into(on.square), "output 0 is f32 (2,2), not f32 (2,3)"));
  REQUIRE(contains_text(into(Tensor::empty(on.device, {2, 3}, Dtype::f64)), "output 0 is f64"));
  REQUIRE(contains_text(into(on.a), "output 0 overlaps an input"));
  REQUIRE(contains_text(into(Tensor::empty(on.device, {1, 3}).expand({2, 3})),
                        "several indices of output 0"));
  tensor::GpuDevice other;
  REQUIRE(contains_text(into(Tensor::empty(other, {2, 3})), "one tensor is on fake, one on "));
  const Tensor elsewhere = Tensor::empty(other, {2});
  REQUIRE(contains_text(testing::what_of<std::invalid_argument>([&] { neg(elsewhere); }),
                        "is of no plug-in"));
  REQUIRE(record.adds == 0);
  REQUIRE(on.a.version() == 0);
}

TEST_CASE("halves of one storage do not overlap") {
  const OnFake on;
  const Tensor all = Tensor::from_host(on.device, Floats{1, 2, 0, 0}, {2, 2});
  Call call = addition(all.select(0, 0), all.select(0, 0));
  call.output_count = 1, call.outputs[0] = all.select(0, 1);
  run(call);
  REQUIRE(all.to_host<float>() == Floats{1, 2, 2, 4});
}

TEST_CASE("strides that nobody takes are made contiguous first") {
  const OnFake on;
  const Tensor t = on.square.transpose(0, 1);
  REQUIRE(add(t, on.square).to_host<float>() == Floats{2, 5, 5, 8});
  REQUIRE((record.adds == 1 && record.copies == 1));  // square is so already
  REQUIRE(t.version() == 0);
  const Tensor view = on.a.slice(1, 0, 2);  // a copy into strides
  view.copy_from(on.square);
  REQUIRE(on.a.to_host<float>() == Floats{1, 2, 3, 3, 4, 6});
  REQUIRE(on.a.version() == 1);
}

TEST_CASE("the policy says who is asked, and what ran elsewhere is counted") {
  const OnFake on;
  use(on.device, "fake_quick");
  add(on.a.transpose(0, 1), on.b.transpose(0, 1));
  REQUIRE((record.adds == 0 && record.copies == 0 && record.quick_adds == 1));
  const std::string nobody = testing::what_of<std::runtime_error>([&] { neg(on.a); });
  REQUIRE(
      contains_text(nobody, "neg of f32 (2,3) on fake: fake_quick: it has no such operation; "));
  REQUIRE(contains_text(nobody, "reference, fake would take it"));  // and others before them
  const size_t before = fallbacks(on.device).size();
  use(on.device, "fake_quick,fake");
  neg(on.a), neg(on.b);
  REQUIRE(fallbacks(on.device).size() == before + 1);
  const PluginDevice::Fallback row = fallbacks(on.device).back();
  REQUIRE((row.op == &op_named("neg") && row.wanted == "fake_quick" && row.by == "fake"));
  REQUIRE((row.reason == "it has no such operation" && row.times == 2));
  const std::string text =
      testing::what_of<std::invalid_argument>([&] { use(on.device, "fake,nobody"); });
  REQUIRE(text == "no plug-in nobody works in the memory of fake: there is fake, fake_quick");
  neg(on.a);  // the policy is as before
  REQUIRE(fallbacks(on.device).back().times == 3);
  const Tensor doubles = Tensor::empty(on.device, {2}, Dtype::f64);
  REQUIRE(contains_text(testing::what_of<std::runtime_error>([&] { add(doubles, doubles); }),
                        "fake_quick: only f32 is supported; fake: only f32 is supported; "));
}

TEST_CASE("best times each call once and keeps the fastest") {
  const OnFake on;
  use(on.device, "best");
  const size_t before = choices(on.device).size();
  const Tensor x = Tensor::from_host(on.device, Floats(14, 1.0f), {7, 2});
  REQUIRE(add(x, x).to_host<float>() == Floats(14, 2.0f));
  const int timed = record.adds, quick = record.quick_adds;
  REQUIRE((timed > 1 && quick == timed + 1));  // and the call itself
  add(x, x), add(x, x);
  REQUIRE((record.adds == timed && record.quick_adds == quick + 2));
  REQUIRE(choices(on.device).size() == before + 1);
  const Choice choice = choices(on.device).back();
  REQUIRE((choice.call == "add of f32 (7,2) and f32 (7,2)" && choice.chosen == "fake_quick"));
  REQUIRE((choice.times.size() == 2 && choice.times[0].plugin == "fake"));
  REQUIRE(choice.times[0].seconds >= 0.002);
  REQUIRE(choice.times[1].seconds < choice.times[0].seconds);
  add(x.reshape({2, 7}), x.reshape({2, 7}));  // another shape
  REQUIRE(record.adds == 2 * timed);
  const Tensor y = x.reshape({2, 7}).transpose(0, 1);
  add(y, y);  // strides that only one takes
  REQUIRE(choices(on.device).back().times.size() == 1);
  REQUIRE(neg(x).to_host<float>() == Floats(14, -1.0f));
  REQUIRE(choices(on.device).back().chosen == "fake");
}

TEST_CASE("a kernel is chosen by its name") {
  const OnFake on;
  use(on.device, "fake_quick");
  add(on.a, on.b);
  REQUIRE(record.kernel == 0);
  kernel(on.device, "add", "tiled");
  add(on.a, on.b);
  REQUIRE(record.kernel == 2);
  const std::string text =
      testing::what_of<std::invalid_argument>([&] { kernel(on.device, "add", "swift"); });
  REQUIRE(text == "kernel swift of add on fake: there is naive, tiled");
  add(on.a, on.b);
  REQUIRE(record.kernel == 2);
  kernel(on.device, "add", "");
  add(on.a, on.b);
  REQUIRE(record.kernel == 0);
  REQUIRE(contains_text(
      testing::what_of<std::invalid_argument>([&] { kernel(on.device, "neg", "naive"); }),
      "there is but one"));
  REQUIRE(contains_text(
      testing::what_of<std::invalid_argument>([&] { kernel(on.device, "matmull", "naive"); }),
      "matmul"));
}

TEST_CASE("a backend that fails leaves everything usable") {
  const OnFake on;
  Call call = addition(on.a, on.b);
  record.fail_code = 700;
  try {
    run(call);
    FAIL("nothing was thrown");
  } catch (const gpu::Error& error) {
    REQUIRE(error.code == 700);
    REQUIRE(error.what() ==
            std::string("add of f32 (2,3) and f32 (2,3) by fake on fake: it broke"));
  }
  REQUIRE((call.output_count == 0 && !call.outputs[0].is_defined()));
  record.fail_code = -1;
  REQUIRE(
      contains_text(testing::what_of<std::runtime_error>([&] { run(call); }), "by fake on fake"));
  run(call);
  REQUIRE(call.outputs[0].version() == 1);
  record.fail_code = -1;
  REQUIRE_THROWS(run(call));  // an output that was given stays, unwritten
  REQUIRE((call.outputs[0].is_defined() && call.outputs[0].version() == 1));
  record.is_out_of_memory = true;
  const std::string text =
      testing::what_of<gpu::Error>([&] { Tensor::empty(on.device, {1 << 28}); });
  REQUIRE(contains_text(text, "on fake: out of memory"));
  record.is_out_of_memory = false;
  REQUIRE(add(on.a, on.b).to_host<float>() == Floats{11, 22, 33, 44, 55, 66});
}

TEST_CASE("a plug-in without a device, and a name that is taken") {
  fake::device();
  REQUIRE(testing::what_of<std::invalid_argument>([] { device("fake_none"); }) ==
          "device fake_none: fake_none has no device");
  REQUIRE(contains_text(testing::what_of<std::invalid_argument>([] { device("fake_quick"); }),
                        "works in the memory of others (fake) and has none"));
  static const CourseBackend again = fake::table("fake");
  REQUIRE(contains_text(testing::what_of<std::invalid_argument>([] { add_backend(&again); }),
                        "fake is there already"));
  static CourseBackend part = fake::table("part");
  part.capture_begin = [](void*, void*, CourseError*) -> std::int32_t { return 0; };
  REQUIRE(contains_text(testing::what_of<std::invalid_argument>([] { add_backend(&part); }),
                        "lacks a function"));
  static CourseBackend old = fake::table("old");
  old.abi_version = 0;
  REQUIRE(
      contains_text(testing::what_of<std::invalid_argument>([] { add_backend(&old); }), "version"));
}
