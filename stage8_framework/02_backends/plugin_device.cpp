#include "stage8_framework/02_backends/plugin_device.h"

#include <stdexcept>

#include "common/error.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/best.h"
#include "stage8_framework/02_backends/dispatch.h"

namespace framework {

namespace {

// Where the pool gets its segments: from the plug-in.
class FromTable : public memory_pool::Allocator {
 public:
  explicit FromTable(const Seat& seat) : table_(*seat.table), state_(seat.state) {}
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    CourseError error;
    if (table_.allocate(state_, bytes, &block, &error) != 0)
      throw gpu::Error(error.code, error.text);
    return block;
  }
  void free(void* block) override { table_.free(state_, block); }

 private:
  const CourseBackend& table_;
  void* state_;
};

}  // namespace

void throw_error(const CourseError& error, const std::string& who) {
  const std::string text = who + ": " + error.text;
  if (error.code != -1) throw gpu::Error(error.code, text);
  throw std::runtime_error(text);
}

void Seat::open() {
  if (state != nullptr) return;
  CourseError error;
  if (table->open(number, &state, &error) != 0) {
    state = nullptr;
    throw_error(error, name + " can't open its device " + std::to_string(number));
  }
  for (int row = 0; row < kOpCount; ++row) ops.push_back(table->find(state, kOps[row].name));
  kernels.assign(ops.size(), 0);
}

PluginDevice::PluginDevice(std::string name, std::vector<Seat> seats)
    : best(std::make_unique<BestChoices>()), name_(std::move(name)), seats_(std::move(seats)) {
  seats_[0].open();
  if (table().stream_create != nullptr) {
    CourseError error;
    if (table().stream_create(state(), &stream_, &error) != 0) throw_error(error, name_);
  }
  pool_ = std::make_unique<tensor::Splitting>(std::make_unique<FromTable>(seats_[0]));
  policy = default_policy();
}

PluginDevice::~PluginDevice() = default;

void* PluginDevice::allocate(size_t bytes) { return pool_->allocate(bytes); }
void PluginDevice::free(void* block) noexcept { pool_->free(block); }
void PluginDevice::release() { pool_->release(); }

void PluginDevice::to_device(void* to, const void* host, size_t bytes) {
  if (call_watcher != nullptr) call_watcher->host_access(*this, false, bytes);
  CourseError error;
  if (bytes > 0 && table().to_device(state(), to, host, bytes, stream_, &error) != 0)
    throw_error(error, "a copy to " + name_);
}

void PluginDevice::to_host(void* host, const void* from, size_t bytes) {
  if (call_watcher != nullptr) call_watcher->host_access(*this, true, bytes);
  CourseError error;
  if (bytes > 0 && table().to_host(state(), host, from, bytes, stream_, &error) != 0)
    throw_error(error, "a copy from " + name_);
}

void PluginDevice::copy(const Tensor& out, const Tensor& a) {
  Call call;
  call.op = &op_named(out.dtype() == a.dtype() ? "copy" : "cast");
  call.input_count = call.output_count = 1;
  call.inputs[0] = a, call.outputs[0] = out;
  call.attributes[0] = static_cast<double>(out.dtype());
  run_on(*this, call, {&seats_[0]});
}

std::vector<Seat*> PluginDevice::default_policy() {
  std::vector<Seat*> order{&seats_[0]};
  for (Seat& seat : seats_)
    if (seat.name == "reference" && &seat != &seats_[0]) seat.open(), order.push_back(&seat);
  return order;
}

void PluginDevice::wait() {
  CourseError error;
  if (table().stream_wait != nullptr && table().stream_wait(state(), stream_, &error) != 0)
    throw_error(error, name_);
}

bool PluginDevice::is_host_memory() const {
  const std::string memory = table().memory;
  return memory == "host" || memory == "cpu";
}

Seat& PluginDevice::seat(const std::string& plugin) {
  std::string names;
  for (Seat& seat : seats_) {
    if (seat.name == plugin) {
      seat.open();
      return seat;
    }
    names += (names.empty() ? "" : ", ") + seat.name;
  }
  throw std::invalid_argument("no plug-in " + plugin + " works in the memory of " + name_ +
                              ": there is " + names);
}

}  // namespace framework
