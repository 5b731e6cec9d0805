// capture(): who watches what a thread queues, and keeps it.
#include <algorithm>
#include <exception>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "common/error.h"
#include "stage8_framework/02_backends/dispatch.h"
#include "stage8_framework/05_capture/graph.h"

namespace framework {

namespace {

// Watches from its construction to its end. It keeps no tensor that a call has made, so that memory
// is free as early as ever: a storage that is gone when the work is done was an intermediate.
class Recording : public CallWatcher {
 public:
  Recording() {
    if (call_watcher != nullptr)
      throw std::runtime_error("capture: a capture is under way in this thread already");
    call_watcher = this;
  }
  ~Recording() override { call_watcher = nullptr; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void queued(PluginDevice& device, Seat& seat, const Call& call, std::int32_t kernel,
              size_t workspace) override {
    GraphRecord& record = *record_;
    if (record.device == nullptr) record.device = &device;
    if (record.device != &device)
      refuse(framework::described(call) + " is on " + device.name() + ", the calls before it on " +
             record.device->name() + ": a graph is of one device");
    GraphCall now;
    now.op = call.op, now.input_count = call.input_count, now.output_count = call.output_count;
    std::copy(call.attributes, call.attributes + kMaxAttributes, now.attributes);
    now.seat = &seat, now.kernel = kernel, now.workspace = workspace;
    for (int i = 0; i < call.input_count; ++i)
      if (call.inputs[i].is_defined()) now.inputs[i] = seen(call.inputs[i], false);
    for (int i = 0; i < call.output_count; ++i) {
      now.outputs[i] = seen(call.outputs[i], !call.op->updates);
      if (call.op->updates) updated_.push_back({now.outputs[i].place, record.calls.size()});
    }
    record.calls.push_back(now);
  }

  void host_access(const PluginDevice& device, bool reads, size_t bytes) override {
    refuse("the host " + std::string(reads ? "reads " : "writes ") + std::to_string(bytes) +
           " bytes " + (reads ? "from " : "to ") + device.name() + behind() +
           ", and what it does can't be replayed: do that before or after");
  }

  // ", behind 17  %4 f32 () = ...": where the work is.
  std::string behind() const {
    const size_t count = record_->calls.size();
    return count == 0 ? ", before the first call"
                      : ", behind call " + framework::described(*record_, count - 1);
  }

  // Throws what was refused, though `work` may have caught it.
  void require_all_recorded() const {
    if (!refused_.empty()) throw std::runtime_error(refused_);
  }
  // What was recorded.
  std::shared_ptr<const GraphRecord> done() {
    require_all_recorded();
    for (size_t i = 0; i < storages_.size(); ++i)
      record_->places[i].storage = storages_[i].lock();  // nullptr: nobody holds it
    for (const auto& [place, call] : updated_) {
      const auto at = static_cast<size_t>(place);
      if (is_made_[at] && record_->places[at].storage != nullptr)
        refuse("call " + framework::described(*record_, call) + " updates %" +
               std::to_string(place) +
               ", which was made meanwhile and is still held: each replay " +
               "would begin with it anew; make it before, by a step that is not recorded");
    }
    return std::move(record_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) {
    if (refused_.empty()) refused_ = "capture: " + reason;
    throw std::runtime_error(refused_);
  }

  // is_written: the call writes the tensor and does not read it.
  GraphTensor seen(const Tensor& tensor, bool is_written) {
    const std::shared_ptr<Storage>& storage = tensor.storage();
    // No other storage has this address as long as there is a weak pointer to it: make_shared()
    // puts both into one piece of memory.
    const auto [found, is_new] =
        numbers_.try_emplace(storage.get(), static_cast<int>(storages_.size()));
    if (is_new) {
      storages_.emplace_back(storage);
      record_->places.push_back({storage->bytes(), nullptr});
      // What was there before is needed again, unless all of it is written now.
      const bool is_whole =
          tensor.is_contiguous() &&
          static_cast<size_t>(tensor.elements()) * size_of(tensor.dtype()) == storage->bytes();
      is_made_.push_back(is_written && is_whole);
      if (!is_made_.back()) needed_.push_back(storage);
    }
    return {found->second, tensor.layout(), tensor.dtype()};
  }

  std::shared_ptr<GraphRecord> record_ = std::make_shared<GraphRecord>();
  std::unordered_map<const Storage*, int> numbers_;
  std::vector<std::weak_ptr<Storage>> storages_;
  std::vector<bool> is_made_;  // by a recorded call, as a whole
  std::vector<std::shared_ptr<Storage>> needed_;
  std::vector<std::pair<int, size_t>> updated_;  // places that calls have updated
  std::string refused_;
};

}  // namespace

Graph capture(const std::function<void()>& work) {
  Recording recording;
  const auto where = [&](const char* what) {
    return std::string("capture") + recording.behind() + ": " + what;
  };
  try {
    work();
  } catch (const gpu::Error& error) {
    throw gpu::Error(error.code, where(error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(where(error.what()));
  } catch (const std::exception& error) {
    recording.require_all_recorded();  // its line says where it was
    throw std::runtime_error(where(error.what()));
  }
  return Graph(recording.done());
}

}  // namespace framework
