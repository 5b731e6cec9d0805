#include "stage8_framework/02_backends/best.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "common/error.h"
#include "stage8_framework/02_backends/c_call.h"

namespace framework {

namespace {

constexpr int kRuns = 5;

// An event of the device's plug-in.
class Event {
 public:
  explicit Event(PluginDevice& device) : device_(device) {
    CourseError error;
    if (device.table().event_create(device.state(), &event_, &error) != 0)
      throw_error(error, device.name());
  }
  ~Event() { device_.table().event_destroy(device_.state(), event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record() {
    CourseError error;
    if (device_.table().event_record(device_.state(), event_, device_.stream(), &error) != 0)
      throw_error(error, device_.name());
  }
  double seconds_until(const Event& end) const {
    double seconds = 0;
    CourseError error;
    if (device_.table().event_seconds(device_.state(), event_, end.event_, &seconds, &error) != 0)
      throw_error(error, device_.name());
    return seconds;
  }

 private:
  PluginDevice& device_;
  void* event_ = nullptr;
};

// The least of a few runs, after one that loads code: whatever else the machine does only adds.
double seconds_of(PluginDevice& device, Seat& seat, const Call& call, CCall& c) {
  double times[kRuns];
  queue(device, seat, call, c, false);
  device.wait();
  for (double& seconds : times) {
    if (device.table().event_create != nullptr) {
      Event begin(device), end(device);
      begin.record();
      queue(device, seat, call, c, false);
      end.record();
      seconds = begin.seconds_until(end);
    } else {
      const auto begin = std::chrono::steady_clock::now();
      queue(device, seat, call, c, false);
      device.wait();
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
  }
  return *std::min_element(times, times + kRuns);
}

}  // namespace

size_t BestChoices::Hash::operator()(const Key& key) const {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a, number by number
  for (const std::int64_t number : key)
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211u;
  return hash ^ hash >> 32;
}

// Strides count by their kind: row-major, with an axis that repeats elements, or any others.
void BestChoices::write_key(const Call& call, Key& key) {
  key.clear();
  key.push_back(row_of(*call.op));
  for (const double attribute : call.attributes) {
    std::int64_t bits;
    std::memcpy(&bits, &attribute, sizeof bits);
    key.push_back(bits);
  }
  const auto write = [&](const Tensor& t) {
    if (!t.is_defined()) return key.push_back(-1);
    const Shape& strides = t.strides();
    const int kind = t.is_contiguous()                                               ? 0
                     : std::find(strides.begin(), strides.end(), 0) != strides.end() ? 1
                                                                                     : 2;
    key.push_back(static_cast<std::int64_t>(t.rank()) * 256 +
                  static_cast<std::int64_t>(t.dtype()) * 4 + kind);
    key.insert(key.end(), t.shape().begin(), t.shape().end());
  };
  for (int i = 0; i < call.input_count; ++i) write(call.inputs[i]);
  for (int i = 0; i < call.output_count; ++i) write(call.outputs[i]);
}

Seat* BestChoices::measured(PluginDevice& device, const Call& call, CCall& c) {
  Choice choice;
  Seat* fastest = nullptr;
  double least = 0;
  for (Seat& seat : device.seats()) {
    if (std::strcmp(seat.table->memory, device.table().memory) != 0) continue;  // the reference
    try {
      seat.open();
    } catch (const std::runtime_error&) {
      continue;  // a plug-in that has no such device
    }
    if (refusal(seat, call, c) != nullptr) continue;
    const double seconds = seconds_of(device, seat, call, c);
    choice.times.push_back({seat.name, seconds});
    if (fastest == nullptr || seconds < least) fastest = &seat, least = seconds;
  }
  choice.call = described(call);
  choice.chosen = fastest == nullptr ? "" : fastest->name;
  list_.push_back(std::move(choice));
  return fastest;
}

Seat* BestChoices::of(PluginDevice& device, const Call& call, CCall& c) {
  write_key(call, key_);
  const auto found = chosen_.find(key_);
  if (found != chosen_.end()) return found->second;
  const Key key = key_;
  return chosen_[key] = measured(device, call, c);
}

}  // namespace framework
