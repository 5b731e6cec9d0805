// Views held against lists of element numbers that know no stride; writes through views; versions,
// owners and errors.
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/01_tensor/gpu_device.h"
#include "stage8_framework/01_tensor/handle.h"
#include "stage8_framework/01_tensor/views_for_tests.h"

using framework::Dtype;
using framework::Layout;
using framework::Shape;
using framework::Tensor;
using tensor::GpuDevice;
using tensor_test::Random;

namespace {

using Indices = std::vector<std::int64_t>;

// A view as NumPy would show it if it held the numbers of its elements: their list, row by row.
struct Model {
  Indices shape;
  Indices numbers;

  // The number at a place.
  std::int64_t at(const Indices& place) const {
    std::int64_t row = 0;
    for (size_t d = 0; d < shape.size(); ++d) row = row * shape[d] + place[d];
    return numbers[static_cast<size_t>(row)];
  }
  // The model of `wanted` whose element at a place is this one's at source(place).
  Model shown(const Indices& wanted, const std::function<Indices(const Indices&)>& source) const {
    Model result{wanted, {}};
    const std::int64_t count =
        std::accumulate(wanted.begin(), wanted.end(), std::int64_t{1}, std::multiplies<>());
    for (std::int64_t i = 0; i < count; ++i) {
      Indices place(wanted.size());
      std::int64_t left = i;
      for (size_t d = wanted.size(); d-- > 0;) place[d] = left % wanted[d], left /= wanted[d];
      result.numbers.push_back(at(source(place)));
    }
    return result;
  }
};

Model rows(const Shape& shape) {
  Model model{{shape.begin(), shape.end()}, {}};
  model.numbers.resize(static_cast<size_t>(Layout::contiguous(shape).elements()));
  std::iota(model.numbers.begin(), model.numbers.end(), 0);
  return model;
}

// What a layout shows, by its strides.
Indices numbers_of(const Layout& layout) {
  Indices result;
  const std::int64_t count = layout.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t left = i, number = layout.offset;
    for (size_t d = layout.shape.rank(); d-- > 0;)
      number += left % layout.shape[d] * layout.strides[d], left /= layout.shape[d];
    result.push_back(number);
  }
  return result;
}

Shape extents_of(const Model& model) { return Shape(model.shape); }

// Whether some strides show the model's numbers in this shape.
bool has_strides(const Model& model, const Shape& wanted) {
  if (model.numbers.empty()) return true;
  Layout layout = Layout::contiguous(wanted);
  const Layout places = layout;
  layout.offset = model.numbers[0];
  for (size_t d = 0; d < wanted.rank(); ++d)
    if (wanted[d] > 1)
      layout.strides[d] = model.numbers[static_cast<size_t>(places.strides[d])] - model.numbers[0];
  return numbers_of(layout) == model.numbers;
}

// Random extents of `count` elements.
Shape factored(std::int64_t count, Random& random) {
  if (count == 0) return Shape{random.between(0, 3), 0, random.between(0, 3)};
  Shape shape;
  while (shape.rank() < 6 && (count > 1 || random(3) == 0)) {
    std::int64_t extent = random.between(1, std::min(count, std::int64_t{7}));
    while (count % extent != 0) --extent;
    shape.insert(shape.rank(), extent);
    count /= extent;
  }
  if (count != 1) shape.insert(random(shape.rank() + 1), count);
  return shape;
}

// One random step on both sides.
void step(Tensor& tensor, Model& model, Random& random) {
  const size_t rank = model.shape.size();
  const size_t d = random(std::max(rank, size_t{1}));
  const auto axis = static_cast<std::int64_t>(random(2) == 0 || rank == 0 ? d : d - rank);
  Indices shape = model.shape;
  switch (random(rank == 0 ? 3 : 8)) {
    case 0: {
      if (rank == framework::kMaxRank) return;
      const size_t at = random(rank + 1);
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), 1);
      tensor = tensor.unsqueeze(static_cast<std::int64_t>(at));
      model.shape = shape;
      return;
    }
    case 1: {
      for (std::int64_t& extent : shape)
        if (extent == 1 && random(2) == 0 && model.numbers.size() < 100)
          extent = random.between(0, 4);
      if (rank < framework::kMaxRank && model.numbers.size() < 100 && random(2) == 0)
        shape.insert(shape.begin(), random.between(1, 3));
      tensor = tensor.expand(Shape(shape));
      const Indices narrow = model.shape;
      model = model.shown(shape, [&](const Indices& place) {
        Indices source(place.end() - static_cast<std::ptrdiff_t>(rank), place.end());
        for (size_t i = 0; i < rank; ++i) source[i] = narrow[i] == 1 ? 0 : source[i];
        return source;
      });
      return;
    }
    case 2: {
      const Shape wanted = factored(static_cast<std::int64_t>(model.numbers.size()), random);
      Tensor reshaped;
      try {
        reshaped = tensor.reshape(wanted);
      } catch (const std::invalid_argument&) {
        REQUIRE(!has_strides(model, wanted));
        tensor = tensor.contiguous();
        std::iota(model.numbers.begin(), model.numbers.end(), 0);
        reshaped = tensor.reshape(wanted);
      }
      tensor = reshaped;
      model.shape.assign(wanted.begin(), wanted.end());
      return;
    }
    case 3: {
      const Shape order = random.order(rank);
      for (size_t i = 0; i < rank; ++i) shape[i] = model.shape[static_cast<size_t>(order[i])];
      tensor = tensor.permute(order);
      model = model.shown(shape, [&](const Indices& place) {
        Indices source(rank);
        for (size_t i = 0; i < rank; ++i) source[static_cast<size_t>(order[i])] = place[i];
        return source;
      });
      return;
    }
    case 4: {
      const size_t other = random(rank);
      std::swap(shape[d], shape[other]);
      tensor = tensor.transpose(axis, static_cast<std::int64_t>(other));
      model = model.shown(shape, [&](Indices place) {
        std::swap(place[d], place[other]);
        return place;
      });
      return;
    }
    case 5: {
      const Random::Slice s = random.slice(shape[d]);
      Indices taken;  // as a loop takes them
      for (std::int64_t i = s.begin; s.step > 0 ? i < s.end : i > s.end; i += s.step)
        taken.push_back(i);
      shape[d] = static_cast<std::int64_t>(taken.size());
      tensor = tensor.slice(axis, s.begin, s.end, s.step);
      model = model.shown(shape, [&](Indices place) {
        place[d] = taken[static_cast<size_t>(place[d])];
        return place;
      });
      return;
    }
    case 6: {
      if (shape[d] == 0) return;
      const std::int64_t index = random.between(0, shape[d] - 1);
      tensor = tensor.select(axis, random(2) == 0 ? index : index - shape[d]);
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
      model = model.shown(shape, [&](Indices place) {
        place.insert(place.begin() + static_cast<std::ptrdiff_t>(d), index);
        return place;
      });
      return;
    }
    default:
      if (shape[d] != 1) return;
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
      tensor = tensor.squeeze(axis);
      model.shape = shape;
  }
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

Tensor numbered(GpuDevice& device, const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<size_t>(Layout::contiguous(shape).elements()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from_host(device, values, shape);
}

}  // namespace

TEST_CASE("10000 random chains of views show what lists of numbers show") {
  GpuDevice device;
  Random random(1);
  for (int chain = 0; chain < 10000; ++chain) {
    const Shape shape = random.shape(random(framework::kMaxRank + 1), 120);
    const Model base = rows(shape);
    Tensor tensor = numbered(device, shape);
    Model model = base;
    for (size_t steps = 1 + random(6); steps > 0; --steps) {
      step(tensor, model, random);
      CAPTURE(chain, shape.text(), tensor.shape().text(), tensor.strides().text());
      REQUIRE(tensor.shape() == extents_of(model));
      REQUIRE(numbers_of(tensor.layout()) == model.numbers);
    }
    if (chain % 10 == 0 && !model.numbers.empty()) {  // the bytes, too: a copy of what it shows
      const Layout all = Layout::contiguous({tensor.layout().span().end});
      const std::vector<std::int32_t> values = tensor.view(all).to_host<std::int32_t>();
      const std::vector<std::int32_t> got = tensor.to_host<std::int32_t>();
      std::vector<std::int32_t> want;
      for (const std::int64_t number : model.numbers)
        want.push_back(values[static_cast<size_t>(number)]);
      REQUIRE(got == want);
    }
  }
}

TEST_CASE("what a chain shows can be written, and nothing else is") {
  GpuDevice device;
  Random random(2);
  for (int chain = 0; chain < 500; ++chain) {
    const Shape shape = random.shape(1 + random(5), 120);
    const Tensor base = numbered(device, shape);
    std::vector<std::int32_t> want = base.to_host<std::int32_t>();
    Layout layout = base.layout();
    for (size_t steps = random(5); steps > 0; --steps)
      layout = tensor_test::random_view(layout, random, 120);
    const Tensor view = base.view(layout);
    const Indices numbers = numbers_of(layout);
    const std::uint64_t version = base.version();
    std::vector<std::int32_t> values(numbers.size());
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(1000 + random(1000));
    const Tensor source = Tensor::from_host(device, values, view.shape());
    Indices sorted = numbers;
    std::sort(sorted.begin(), sorted.end());
    const bool repeats = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    CAPTURE(chain, shape.text(), layout.shape.text(), layout.strides.text());
    if (repeats) {
      REQUIRE_THROWS_AS(view.copy_from(source), std::invalid_argument);
      REQUIRE(base.version() == version);
    } else {
      view.copy_from(source);
      for (size_t i = 0; i < numbers.size(); ++i) want[static_cast<size_t>(numbers[i])] = values[i];
      REQUIRE(base.version() == version + (numbers.empty() ? 0 : 1));
    }
    REQUIRE(base.to_host<std::int32_t>() == want);
  }
}

TEST_CASE("a copy within one storage reads everything before it writes") {
  GpuDevice device;
  const auto check = [&](const std::function<std::pair<Layout, Layout>(const Layout&)>& pair) {
    const Tensor x = numbered(device, {6, 6});
    const auto [to, from] = pair(x.layout());
    std::vector<std::int32_t> want = x.to_host<std::int32_t>();
    const std::vector<std::int32_t> before = want;
    const Indices written = numbers_of(to), read = numbers_of(from);
    for (size_t i = 0; i < written.size(); ++i)
      want[static_cast<size_t>(written[i])] = before[static_cast<size_t>(read[i])];
    x.view(to).copy_from(x.view(from));
    REQUIRE(x.to_host<std::int32_t>() == want);
  };
  check([](const Layout& x) { return std::pair(x.slice(0, 1, 6), x.slice(0, 0, 5)); });
  check([](const Layout& x) { return std::pair(x.slice(0, 0, 5), x.slice(0, 1, 6)); });
  check([](const Layout& x) { return std::pair(x, x.transpose(0, 1)); });
  check([](const Layout& x) { return std::pair(x, x.slice(1, 5, -1, -1)); });
  check([](const Layout& x) { return std::pair(x, x.select(0, 3).expand({6, 6})); });
  check([](const Layout& x) { return std::pair(x.slice(1, 0, 6, 2), x.slice(1, 1, 6, 2)); });
  const Tensor x = numbered(device, {6, 6});
  x.copy_from(x);  // onto itself: nothing is written
  REQUIRE(x.version() == 0);
}

TEST_CASE("values are broadcast and converted where they are copied") {
  GpuDevice device;
  const Tensor x = Tensor::from_host(device, std::vector<float>(12, 7.5f), {3, 4});
  x.slice(1, 1, 3).copy_from(Tensor::from_host(device, std::vector<std::int64_t>{1, 2, 3}, {3, 1}));
  REQUIRE(x.to_host<float>() ==
          std::vector<float>{7.5f, 1, 1, 7.5f, 7.5f, 2, 2, 7.5f, 7.5f, 3, 3, 7.5f});
  REQUIRE(x.to(Dtype::i32).to_host<std::int32_t>() ==
          std::vector<std::int32_t>{7, 1, 1, 7, 7, 2, 2, 7, 7, 3, 3, 7});
  REQUIRE(x.to(Dtype::f32).data() == x.data());  // it is so already
  REQUIRE(x.to(Dtype::bf16).to(Dtype::f64).to_host<double>()[0] == 7.5);
}

TEST_CASE("from rank 0 to rank 8, with axes of no element") {
  GpuDevice device;
  const Tensor scalar = Tensor::from_host(device, std::vector<double>{3.5}, {});
  REQUIRE((scalar.rank() == 0 && scalar.elements() == 1));
  REQUIRE(scalar.to_host<double>() == std::vector<double>{3.5});
  REQUIRE(scalar.expand({2, 3}).to_host<double>() == std::vector<double>(6, 3.5));
  REQUIRE(scalar.reshape({1, 1}).squeeze(0).squeeze(-1).shape() == Shape{});
  const Tensor deep = numbered(device, {2, 1, 3, 1, 2, 1, 1, 2});
  REQUIRE(deep.permute({7, 6, 5, 4, 3, 2, 1, 0}).reshape({2, 2, 3, 2}).to_host<std::int32_t>()[1] ==
          12);
  const Tensor none = Tensor::empty(device, {3, 0, 4}, Dtype::u8);
  REQUIRE((none.elements() == 0 && none.data() == nullptr && none.is_contiguous()));
  REQUIRE(none.transpose(0, 1).reshape({0, 12}).to_host<std::uint8_t>().empty());
  none.copy_from(none.clone());
  REQUIRE(none.version() == 0);
  REQUIRE(device.pool().statistics().live <= 3 * 256);
}

TEST_CASE("views share storage and version, copies have their own") {
  GpuDevice device;
  const Tensor x = numbered(device, {4, 5});
  const Tensor view = x.transpose(0, 1).slice(0, 1, 4), copy = x.clone();
  REQUIRE((view.shares_storage(x) && !copy.shares_storage(x)));
  REQUIRE(x.contiguous().shares_storage(x));
  REQUIRE(!view.contiguous().shares_storage(x));
  view.copy_from(view.clone());
  REQUIRE((x.version() == 1 && view.version() == 1 && copy.version() == 0));
  x.count_write("a test");
  REQUIRE(view.version() == 2);
}

TEST_CASE("the last view frees the storage") {
  GpuDevice device;
  const auto live = [&] { return device.pool().statistics().live; };
  Tensor view;
  {
    const Tensor x = Tensor::empty(device, {1024});
    REQUIRE(live() == 4096);
    view = x.slice(0, 10, 20);
    const Tensor again = view;
    REQUIRE(live() == 4096);
  }
  REQUIRE(live() == 4096);
  view = Tensor();
  REQUIRE(live() == 0);

  // Memory that somebody else owns is kept alive, and not freed by the storage.
  auto owner = std::make_shared<Tensor>(Tensor::empty(device, {64}));
  Tensor wrapped =
      Tensor::wrap(device, owner->data(), 256, Layout::contiguous({8, 8}), Dtype::f32, owner);
  owner.reset();
  REQUIRE(live() == 256);
  wrapped = Tensor();
  REQUIRE(live() == 0);
}

TEST_CASE("an error is one line with operation, shapes and reason") {
  GpuDevice device, other;
  const Tensor x = Tensor::empty(device, {3, 4});
  const auto fails = [](const std::string& want, const std::function<void()>& call) {
    const std::string text = message(call);
    REQUIRE(text.find('\n') == std::string::npos);
    CHECK(text == want);
  };
  fails("reshape of (3,4): (5,2) has another number of elements", [&] { x.reshape({5, 2}); });
  fails("reshape of (3,4): no extent in place of -1 fits (5,-1)", [&] { x.reshape({5, -1}); });
  fails("reshape of (-2,-6): an extent is negative", [&] { x.reshape({-2, -6}); });
  fails("reshape of (3,4): (-1,-1) has more than one -1", [&] { x.reshape({-1, -1}); });
  fails("reshape of (4,3): no strides show (12) in strides (1,4); make it contiguous first",
        [&] { x.transpose(0, 1).reshape({12}); });
  fails("permute of (3,4): (0,0) is no order of its axes", [&] { x.permute({0, 0}); });
  fails("permute of (3,4): (0) is no order of its axes", [&] { x.permute({0}); });
  fails("transpose of (3,4): axis 2 of 2 axes", [&] { x.transpose(0, 2); });
  fails("slice of (3,4): [0:5:1] leaves axis 1 of 4", [&] { x.slice(1, 0, 5); });
  fails("slice of (3,4): a step of 0", [&] { x.slice(1, 0, 4, 0); });
  fails("select of (3,4): index 3 of axis 0, which has 3", [&] { x.select(0, 3); });
  fails("expand of (3,4): (3,5) is no broadcast of it", [&] { x.expand({3, 5}); });
  fails("expand of (3,4): (4) is no broadcast of it", [&] { x.expand({4}); });
  fails("squeeze of (3,4): axis 1 has 4", [&] { x.squeeze(1); });
  fails(
      "copy of f32 (3,4) into f32 (5,3,4): several indices lead to one element (strides (0,4,1)); "
      "copy into what it was expanded from",
      [&] {
        x.expand({5, 3, 4}).copy_from(x);
      });
  fails("copy of (3,4): (4) is no broadcast of it", [&] { x.select(0, 1).copy_from(x); });
  const std::string backend = gpu::kBackend;
  fails("copy of f32 (3,4) into f32 (3,4): one is on " + backend + ", one on " + backend, [&] {
    x.copy_from(Tensor::empty(other, {3, 4}));
  });
  fails("a tensor of (1152921504606846976): too many elements",
        [&] { Tensor::empty(device, {std::int64_t{1} << 60}); });
  fails("a tensor of (2,-1): an extent is negative", [&] { Tensor::empty(device, {2, -1}); });
  fails("a shape of 9 axes: at most 8", [&] {
    Tensor::empty(device, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  });
  fails("an axis more than (1,1,1,1,1,1,1,1) has: at most 8", [&] {
    Tensor::empty(device, {1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0);
  });
  fails("view of f32 (4), strides (1), offset 9: the storage has 12 elements", [&] {
    x.view({{4}, {1}, 9});
  });
  fails("from_host of (2): 3 values were given",
        [&] { Tensor::from_host(device, std::vector<float>(3), {2}); });
  fails("to_host of f32 (3,4): asked for as f64", [&] { x.to_host<double>(); });
}
