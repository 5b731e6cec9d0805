#include "stage8_framework/02_backends/listing.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "common/option_values.h"
#include "common/output_file.h"
#include "stage8_framework/02_backends/ops.h"
#include "stage8_framework/02_backends/registry.h"

namespace backends {

using framework::Op;
using framework::Plugin;

namespace {

// Device 0 of a plug-in, as long as its operations are asked for.
class Opened {
 public:
  explicit Opened(const Plugin& plugin) : table_(*plugin.table), name_(plugin.name) {
    CourseError error;
    is_open_ = table_.device_count() > 0 && table_.open(0, &state_, &error) == 0;
  }
  Opened(Opened&& other) noexcept
      : table_(other.table_), name_(other.name_), state_(other.state_), is_open_(other.is_open_) {
    other.is_open_ = false;
  }
  ~Opened() {
    if (is_open_) table_.close(state_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  Opened& operator=(Opened&&) = delete;

  const std::string& name() const { return name_; }
  bool has(const char* op) const { return is_open_ && table_.find(state_, op) >= 0; }
  std::vector<std::string> kernels(const Op& op) const {
    std::vector<std::string> names;
    if (!has(op.name)) return names;
    const std::int32_t number = table_.find(state_, op.name);
    for (std::int32_t kernel = 1; const char* name = table_.kernel_name(state_, number, kernel);
         ++kernel)
      names.emplace_back(name);
    return names;
  }

 private:
  const CourseBackend& table_;
  std::string name_;
  void* state_ = nullptr;
  bool is_open_ = false;
};

std::vector<Opened> open_all() {
  std::vector<Opened> opened;
  for (const Plugin& plugin : framework::plugins())
    if (plugin.table != nullptr) opened.emplace_back(plugin);
  return opened;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

constexpr size_t kNameWidth = 26, kWidth = 12;

}  // namespace

bool has_operation(const std::string& plugin, const char* op) {
  const std::vector<Opened> opened = open_all();
  return std::any_of(opened.begin(), opened.end(), [&](const Opened& backend) {
    return backend.name() == plugin && backend.has(op);
  });
}

void show_backends(Report& report) {
  for (const Plugin& plugin : framework::plugins()) {
    if (plugin.table == nullptr) {
      report.line(padded(plugin.name, kWidth) + "refused: " + plugin.refused);
      continue;
    }
    const int devices = plugin.table->device_count();
    report.line(padded(plugin.name, kWidth) + plugin.table->memory + " memory, " +
                std::to_string(devices) + (devices == 1 ? " device, " : " devices, ") +
                plugin.path);
  }
  // How many kernels each backend has for an operation; "yes" where there is only one.
  const std::vector<Opened> opened = open_all();
  std::string heading = padded("operation", kNameWidth);
  for (const Opened& backend : opened) heading += padded(backend.name(), kWidth);
  report.line(heading);
  for (int i = 0; i < framework::kOpCount; ++i) {
    const Op& op = framework::kOps[i];
    std::string line = padded(op.name, kNameWidth);
    for (const Opened& backend : opened) {
      const size_t kernels = backend.kernels(op).size();
      line += padded(!backend.has(op.name) ? "-"
                     : kernels < 2         ? "yes"
                                           : std::to_string(kernels) + " kernels",
                     kWidth);
    }
    report.line(line);
  }
}

void write_operations(const std::string& file) {
  option_values::check_output_path("--operations", file);
  std::string text =
      "| operation | inputs | attributes | outputs | promise | bound | formula | kernels of own |\n"
      "|:--|:--|:--|--:|:--|:--|:--|:--|\n";
  const std::vector<Opened> opened = open_all();
  const auto own = std::find_if(opened.begin(), opened.end(),
                                [](const Opened& backend) { return backend.name() == "own"; });
  for (int i = 0; i < framework::kOpCount; ++i) {
    const Op& op = framework::kOps[i];
    std::string kernels;
    if (own != opened.end())
      for (const std::string& kernel : own->kernels(op))
        kernels += (kernels.empty() ? "" : ", ") + kernel;
    if (kernels.empty()) kernels = own != opened.end() && own->has(op.name) ? "its own" : "-";
    text += std::string("| `") + op.name + "` | " + op.inputs +
            (op.narrow == framework::Narrow::factors ? ", also in bf16 and f16"
             : op.narrow == framework::Narrow::heads ? ", also in bf16"
                                                     : "") +
            " | " + op.attributes + " | " + std::to_string(op.output_count) +
            (op.updates ? ", in place" : "") + " | " +
            (op.promise == framework::Promise::exact ? "exact" : "fixed") + " | " +
            (op.scale == framework::Magnitude::result ? "of the result" : "of the terms") + " | " +
            (op.formula != nullptr ? "`" + std::string(op.formula) + "`" : "") + " | " + kernels +
            " |\n";
  }
  output_file::replace(file, [&](std::FILE* to) {
    return std::fwrite(text.data(), 1, text.size(), to) == text.size();
  });
}

}  // namespace backends
