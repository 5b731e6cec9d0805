// Loaders: which samples a step takes, and that host and device hand out the same batches.
#include "stage8_framework/04_modules/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "stage5_training/06_train_toy/sampler.h"
#include "stage8_framework/04_modules/modules_for_tests.h"

using namespace modules_test;

namespace {

Integers rows_of(const Order& order, std::uint64_t step, std::int64_t batch) {
  Integers rows(static_cast<size_t>(batch), -1);
  order(step, rows.data());
  return rows;
}

// Sample i of a column is i, or has it in front.
Tensor numbered(std::int64_t samples, Device& on) {
  Integers values(static_cast<size_t>(samples));
  std::iota(values.begin(), values.end(), 0);
  return ids(values, {samples}, on);
}

// The same bytes, types and places.
void require_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t c = 0; c < a.size(); ++c) {
    REQUIRE((a[c].shape() == b[c].shape() && a[c].dtype() == b[c].dtype()));
    REQUIRE(&a[c].device() == &b[c].device());
    const auto bytes = [](const Tensor& t) {
      std::vector<unsigned char> all(static_cast<size_t>(t.elements()) * size_of(t.dtype()));
      t.contiguous().to_host(all.data());
      return all;
    };
    REQUIRE(bytes(a[c]) == bytes(b[c]));
  }
}

}  // namespace

TEST_CASE("shuffled takes every sample once per epoch, in 5.6's order") {
  for (const auto& [samples, batch] :
       {std::pair{12, 4}, std::pair{13, 4}, std::pair{7, 7}, std::pair{5, 1}, std::pair{1, 1}}) {
    INFO(batch << " of " << samples);
    const Order order = shuffled(samples, batch, 9);
    const train_toy::Sampler want{static_cast<size_t>(samples), static_cast<size_t>(batch), 9};
    const std::uint64_t per_epoch = want.steps_per_epoch();
    std::vector<Integers> epochs;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      Integers& seen = epochs.emplace_back();
      for (std::uint64_t step = epoch * per_epoch; step < (epoch + 1) * per_epoch; ++step) {
        const Integers rows = rows_of(order, step, batch);
        for (size_t i = 0; i < rows.size(); ++i)
          REQUIRE(rows[i] == static_cast<std::int32_t>(want.row(step, i)));
        seen.insert(seen.end(), rows.begin(), rows.end());
      }
      REQUIRE(std::set<std::int32_t>(seen.begin(), seen.end()).size() == seen.size());
      REQUIRE((*std::min_element(seen.begin(), seen.end()) >= 0 &&
               *std::max_element(seen.begin(), seen.end()) < samples));
      REQUIRE(static_cast<std::int64_t>(seen.size()) == samples / batch * batch);
    }
    if (samples > 2) REQUIRE((epochs[0] != epochs[1] && epochs[1] != epochs[2]));
  }
  REQUIRE(rows_of(shuffled(50, 50, 1), 0, 50) != rows_of(shuffled(50, 50, 2), 0, 50));
}

TEST_CASE("in_order goes through the samples again and again") {
  const Order order = in_order(5, 3);
  REQUIRE(rows_of(order, 0, 3) == Integers{0, 1, 2});
  REQUIRE(rows_of(order, 1, 3) == Integers{3, 4, 0});
  REQUIRE(rows_of(order, 4, 3) == Integers{2, 3, 4});
  REQUIRE(rows_of(in_order(2, 5), 0, 5) == Integers{0, 1, 0, 1, 0});
  REQUIRE(rows_of(in_order(7, 2), std::uint64_t{1} << 40, 2) == Integers{4, 5});
}

TEST_CASE("host and device hand out the same batches") {
  Device& on = device(GENERATE("own", "reference"));
  const std::int64_t samples = 20, batch = 6;
  for (const Order& order : {shuffled(samples, batch, 3), in_order(samples, batch)}) {
    std::vector<Tensor> columns{random_tensor({samples, 2, 3}, 1, reference()),
                                numbered(samples, reference()),
                                random_tensor({samples, 2}, 2, reference()).to(Dtype::f64)};
    std::vector<Tensor> on_device;
    for (const Tensor& column : columns) on_device.push_back(to(column, on));
    HostLoader host_loader(columns, batch, order, on);
    DeviceLoader all(on_device, batch, order, 500), some(on_device, batch, order, 4);
    for (std::uint64_t step = 0; step < 10; ++step) {
      INFO(on.name() << " step " << step);
      const std::vector<Tensor> want = host_loader.next();
      const Integers rows = rows_of(order, step, batch);
      REQUIRE(want[1].to_host<std::int32_t>() == rows);
      const Floats images = host(columns[0]), got = host(want[0]);
      for (size_t i = 0; i < rows.size(); ++i)
        REQUIRE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(6 * i),
                           got.begin() + static_cast<std::ptrdiff_t>(6 * i + 6),
                           images.begin() + 6 * rows[i]));
      require_same(all.next(), want);
      require_same(some.next(), want);
    }
  }
}

TEST_CASE("one column is enough") {
  const Order order = shuffled(20, 6, 3);
  HostLoader from_host({numbered(20, reference())}, 6, order, own());
  DeviceLoader from_device({numbered(20, own())}, 6, order, 2);
  for (int step = 0; step < 5; ++step) require_same(from_device.next(), from_host.next());
}

TEST_CASE("pieces of a text overlap, and take no memory") {
  const std::int64_t n = 30, T = 4, batch = 5, count = n - T;
  const auto pieces = [&](Device& on) {
    const Tensor text = numbered(n, on);
    return std::vector<Tensor>{text.view(Layout{{count, T}, {1, 1}, 0}),
                               text.view(Layout{{count, T}, {1, 1}, 1})};
  };
  for (const Order& order : {shuffled(count, batch, 1), in_order(count, batch)}) {
    HostLoader from_host(pieces(reference()), batch, order, own());
    DeviceLoader from_device(pieces(own()), batch, order, 3);
    for (std::uint64_t step = 0; step < 8; ++step) {
      INFO("step " << step);
      const std::vector<Tensor> want = from_host.next();
      const Integers rows = rows_of(order, step, batch), x = want[0].to_host<std::int32_t>(),
                     y = want[1].to_host<std::int32_t>();
      for (size_t i = 0; i < x.size(); ++i) {
        const std::int32_t at = rows[i / 4] + static_cast<std::int32_t>(i % 4);
        REQUIRE((x[i] == at && y[i] == at + 1));
      }
      require_same(from_device.next(), want);
    }
  }
}

// The first column's rows are so large that kMostBytes holds so many steps of two samples.
TEST_CASE("a device loader fetches as many steps as fit, and asks for each step once") {
  struct Fetch {
    std::int64_t bytes;  // of a row
    std::uint64_t steps, fetched;
  };
  const std::int64_t most = DeviceLoader::kMostBytes;
  // A large row is an expanded one: all samples are one element in memory.
  for (const Fetch& f : {Fetch{most / 4 - 64, 99, 2}, Fetch{most / 2 + 8, 99, 1},
                         Fetch{most / 4 - 64, 1, 1}, Fetch{16, 3, 3}, Fetch{16, 0, 1}}) {
    INFO(f.bytes << " bytes, " << f.steps << " steps");
    std::vector<std::uint64_t> asked;
    const Order order = [&](std::uint64_t step, std::int32_t* rows) {
      asked.push_back(step);
      rows[0] = static_cast<std::int32_t>(step % 3);
      rows[1] = static_cast<std::int32_t>((step + 1) % 3);
    };
    const Tensor wide = full(own(), {1, 1}, 7, Dtype::f64).expand({3, f.bytes / 8});
    DeviceLoader loader({numbered(3, own()), wide}, 2, order, f.steps);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const std::vector<Tensor> batch = loader.next();
      REQUIRE(batch[1].shape() == Shape{2, f.bytes / 8});
      REQUIRE(
          batch[0].to_host<std::int32_t>() ==
          Integers{static_cast<std::int32_t>(step % 3), static_cast<std::int32_t>((step + 1) % 3)});
      REQUIRE(asked.size() == (step / f.fetched + 1) * f.fetched);
    }
    for (std::uint64_t step = 0; step < asked.size(); ++step) REQUIRE(asked[step] == step);
  }
}

TEST_CASE("what loaders and orders refuse") {
  for (const auto& [samples, batch] : {std::pair{0, 1}, std::pair{-1, 1}, std::pair{5, 0}}) {
    const std::string line =
        "batches of " + std::to_string(batch) + " of " + std::to_string(samples) + " samples";
    REQUIRE(error_of([&, s = samples, b = batch] { shuffled(s, b, 1); }) == line);
    REQUIRE(error_of([&, s = samples, b = batch] { in_order(s, b); }) == line);
  }
  REQUIRE(error_of([] { shuffled(5, 6, 1); }) == "batches of 6 of 5 samples");
  const Order order = in_order(4, 2);
  const auto refusal = [&](const std::vector<Tensor>& columns, std::int64_t batch) {
    const std::string line = error_of([&] { DeviceLoader(columns, batch, order); });
    REQUIRE(error_of([&] { HostLoader(columns, batch, order, own()); }) == line);
    return line;
  };
  const Tensor four = full(reference(), {4, 2}, 0), five = full(reference(), {5}, 0);
  REQUIRE(refusal({}, 2) == "a loader of nothing");
  REQUIRE(refusal({four}, 0) == "a loader of nothing");
  REQUIRE(refusal({four}, -2) == "a loader of nothing");
  REQUIRE(refusal({four, five}, 2) ==
          "a loader of f32 (4,2) and f32 (5): their first extents differ");
  REQUIRE(refusal({four, full(reference(), {}, 0)}, 2) ==
          "a loader of f32 (4,2) and f32 (): their first extents differ");
  REQUIRE(refusal({full(reference(), {0, 2}, 0)}, 2) ==
          "a loader of f32 (0,2): it takes from 1 to 2^31 - 1 samples");
  const std::int64_t many = std::int64_t{1} << 31;
  REQUIRE(refusal({full(reference(), {1}, 0).expand({many})}, 2) ==
          "a loader of f32 (" + std::to_string(many) + "): it takes from 1 to 2^31 - 1 samples");
  const Tensor turned = full(reference(), {2, 4}, 0).transpose(0, 1);
  REQUIRE(error_of([&] { HostLoader({turned}, 2, order, own()); }) ==
          "a loader of f32 (4,2) with strides (1,4): a row must be without gaps");
}
