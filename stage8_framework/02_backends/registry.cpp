#include "stage8_framework/02_backends/registry.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include "stage8_framework/02_backends/plugin_device.h"

namespace framework {

namespace {

namespace fs = std::filesystem;

const std::string kPrefix = "libcourse_", kSuffix = ".so";

// Why a table can't be used; "" where it can. The first two fields are where they always were.
std::string refusal_of(const CourseBackend* table) {
  if (table == nullptr) return "course_backend() returned no table";
  const auto differs = [](const char* what, std::uint32_t is, size_t wanted) {
    return std::string("its ") + what + " is " + std::to_string(is) + ", this program's is " +
           std::to_string(wanted) + ": build it again";
  };
  if (table->abi_version != COURSE_ABI_VERSION)
    return differs("version of the table", table->abi_version, COURSE_ABI_VERSION);
  if (table->struct_bytes != sizeof(CourseBackend))
    return differs("size of the table", table->struct_bytes, sizeof(CourseBackend));
  const bool is_whole = table->name && table->memory && table->device_count && table->open &&
                        table->close && table->find && table->kernel_name && table->supports &&
                        table->workspace && table->run;
  const bool has_memory = table->allocate && table->free && table->to_device && table->to_host;
  const bool has_part = table->allocate || table->free || table->to_device || table->to_host;
  const bool has_stream = table->stream_create && table->stream_destroy && table->stream_wait;
  const bool has_graphs = table->capture_end && table->graph_launch && table->graph_destroy;
  if (!is_whole || (has_part && !has_memory) || (table->stream_create && !has_stream) ||
      (table->capture_begin && !has_graphs))
    return "its table lacks a function";
  return "";
}

// Whether a library ends before what its headers promise, as after a copy that was cut off.
// dlopen() would map it, and touching what is missing ends the process.
bool is_truncated(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  const auto read = [&](std::uint64_t at, auto& to) {
    file.seekg(static_cast<std::streamoff>(at));
    return static_cast<bool>(file.read(reinterpret_cast<char*>(&to), sizeof to));
  };
  ElfW(Ehdr) header;
  if (!file.is_open() || !read(0, header)) return false;  // dlopen() says why
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize > size) return true;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    if (!read(header.e_phoff + i * sizeof part, part) || part.p_offset + part.p_filesz > size)
      return true;
  }
  return false;
}

// Folders in which plug-ins lie, the most important first.
std::vector<fs::path> folders() {
  std::vector<fs::path> list;
  const char* const asked = std::getenv("COURSE_BACKENDS");
  if (asked != nullptr && *asked != '\0') list.emplace_back(asked);
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed).parent_path();
  if (!failed) list.insert(list.end(), {program / "../backends", program / "../../backends"});
  list.emplace_back(COURSE_PLUGIN_FOLDER);
  return list;
}

std::vector<Plugin> found_in(const std::vector<fs::path>& list) {
  std::map<std::string, std::string> paths;  // by name
  for (const fs::path& folder : list) {
    std::error_code failed;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
      const std::string file = entry.path().filename().string();
      if (file.size() <= kPrefix.size() + kSuffix.size() ||
          file.compare(0, kPrefix.size(), kPrefix) != 0 || entry.path().extension() != kSuffix)
        continue;
      paths.try_emplace(file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size()),
                        entry.path().lexically_normal().string());
    }
  }
  std::vector<Plugin> plugins;
  for (const auto& [name, path] : paths) plugins.push_back(load_plugin(name, path));
  return plugins;
}

// Never destroyed: tensors that are static give their memory back when the program ends.
struct Registry {
  std::mutex mutex;
  std::vector<Plugin> plugins = found_in(folders());
  std::map<std::string, PluginDevice*> devices;
};
Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

// A name of device() in its parts.
struct DeviceName {
  std::string plugin;
  std::int32_t number = 0;
};
DeviceName parsed(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, 0};
  const std::string rest = name.substr(colon + 1);
  const bool is_number =
      !rest.empty() && rest.size() < 6 && rest.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) return {name.substr(0, colon), std::stoi(rest)};
  return {rest, 0};
}

const Plugin& plugin_named(const Registry& all, const std::string& name, const std::string& who) {
  std::string names;
  for (const Plugin& plugin : all.plugins) {
    names += (names.empty() ? "" : ", ") + plugin.name;
    if (plugin.name != name) continue;
    if (plugin.table != nullptr) return plugin;
    throw std::runtime_error(who + ": " + plugin.path + ": " + plugin.refused);
  }
  std::string places;
  for (const fs::path& folder : folders())
    places += (places.empty() ? "" : ", ") + folder.lexically_normal().string();
  throw std::invalid_argument(who + ": there is no " + kPrefix + name + kSuffix + " in " + places +
                              (names.empty() ? "" : "; there is " + names));
}

PluginDevice* made(const Registry& all, const std::string& name, const DeviceName& parts) {
  const std::string who = "device " + name;
  const Plugin& plugin = plugin_named(all, parts.plugin, who);
  const CourseBackend& table = *plugin.table;
  const std::int32_t count = table.device_count();
  if (parts.number >= count)
    throw std::invalid_argument(who + ": " + plugin.name + " has " +
                                (count == 0 ? "no device" : std::to_string(count)) +
                                (count == 0   ? ""
                                 : count == 1 ? " device"
                                              : " devices"));
  if (table.allocate == nullptr)
    throw std::invalid_argument(who + ": " + plugin.name + " works in the memory of others (" +
                                table.memory + ") and has none");
  const std::string memory = table.memory;
  std::vector<Seat> seats{{plugin.name, &table, parts.number}};
  for (const Plugin& other : all.plugins) {
    if (other.table == nullptr || &other == &plugin) continue;
    const std::string theirs = other.table->memory;
    const bool is_host = memory == "cpu" && theirs == "host";
    if (theirs != memory && !is_host) continue;
    // The CPU backend is a part of each plug-in, and knows no streams but its own.
    const bool at_once = memory == "cpu" && other.table->stream_create == nullptr;
    if (memory == "cpu" && !at_once) continue;
    seats.push_back({other.name, other.table, is_host ? 0 : parts.number, at_once});
  }
  return new PluginDevice(name, std::move(seats));
}

// When the process ends. The devices stay, for static tensors that go even later.
void release_all() {
  for (const auto& [key, device] : registry().devices)
    if (device != nullptr) device->release();
}

}  // namespace

Plugin load_plugin(const std::string& name, const std::string& path) {
  Plugin plugin{name, path, "", nullptr};
  if (is_truncated(path)) {
    plugin.refused = "the file is truncated";
    return plugin;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    plugin.refused = dlerror();
    return plugin;
  }
  void* const symbol = dlsym(library, "course_backend");
  if (symbol == nullptr) {
    plugin.refused = "it exports no course_backend()";
  } else {
    plugin.table = reinterpret_cast<CourseBackendFunction>(symbol)();
    plugin.refused = refusal_of(plugin.table);
  }
  if (plugin.refused.empty()) return plugin;
  plugin.table = nullptr;
  dlclose(library);
  return plugin;
}

const std::vector<Plugin>& plugins() { return registry().plugins; }

const Plugin& usable_plugin(const std::string& name) {
  return plugin_named(registry(), name, "plug-in " + name);
}

void add_backend(const CourseBackend* table) {
  const std::string refused = refusal_of(table);
  if (!refused.empty()) throw std::invalid_argument("a backend of the program: " + refused);
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const Plugin& plugin : all.plugins)
    if (plugin.name == table->name)
      throw std::invalid_argument(std::string("a backend ") + table->name + " is there already");
  all.plugins.push_back({table->name, "in the program", "", table});
}

Device& device(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const DeviceName parts = parsed(name);
  const std::string key = parts.plugin + ":" + std::to_string(parts.number);
  PluginDevice*& found = all.devices[key];
  if (found == nullptr) found = made(all, name, parts);
  // Plug-ins are loaded now, so this runs before their runtimes look for what nobody has freed.
  static const int registered = std::atexit(release_all);
  static_cast<void>(registered);
  return *found;
}

Tensor to(const Tensor& tensor, Device& device) {
  if (&tensor.device() == &device) return tensor;
  const Tensor from = tensor.detach().contiguous();
  const Tensor result = Tensor::empty(device, from.shape(), from.dtype());
  const size_t bytes = static_cast<size_t>(from.elements()) * size_of(from.dtype());
  auto* target = dynamic_cast<PluginDevice*>(&device);
  if (target != nullptr && target->is_host_memory()) {
    target->wait();  // for what used this memory before
    from.device().to_host(result.data(), from.data(), bytes);
    return tensor.made(result, {Derivation::copy});
  }
  std::vector<unsigned char> staged(bytes);
  from.device().to_host(staged.data(), from.data(), bytes);
  device.to_device(result.data(), staged.data(), bytes);
  return tensor.made(result, {Derivation::copy});
}

}  // namespace framework
