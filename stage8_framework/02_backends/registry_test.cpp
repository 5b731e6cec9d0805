// Plug-ins that can't be used, and devices by name.
#include "stage8_framework/02_backends/registry.h"

#include <fstream>
#include <iterator>

#include "common/testing.h"
#include "common/tests/child.h"
#include "stage8_framework/02_backends/functions.h"

using framework::Plugin;
using framework::Tensor;

namespace {

const std::string kBroken = COURSE_BROKEN_FOLDER;

void require_refused(const std::string& path, const std::string& words) {
  const Plugin plugin = framework::load_plugin("some", path);
  CAPTURE(path, plugin.refused);
  REQUIRE(plugin.table == nullptr);
  REQUIRE(contains_text(plugin.refused, words));
  REQUIRE(plugin.refused.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("a plug-in that can't be used says why in one line") {
  require_refused(kBroken + "/libcourse_none.so", "No such file");
  require_refused(kBroken + "/libcourse_broken_symbol.so", "exports no course_backend()");
  require_refused(kBroken + "/libcourse_broken_version.so",
                  "version of the table is " + std::to_string(COURSE_ABI_VERSION + 1) +
                      ", this program's is " + std::to_string(COURSE_ABI_VERSION) +
                      ": build it again");
  require_refused(kBroken + "/libcourse_broken_bytes.so", "size of the table is 8, this program's");
  require_refused(kBroken + "/libcourse_broken_empty.so", "lacks a function");
  require_refused(kBroken + "/libcourse_broken_null.so", "returned no table");

  // A real file, of which the end is missing.
  std::ifstream in(kBroken + "/libcourse_broken_empty.so", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  REQUIRE(bytes.size() > 1000);
  const std::string part = kBroken + "/part";
  for (const size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{100}}) {
    std::ofstream(part, std::ios::binary) << bytes.substr(0, size);
    require_refused(part, "the file is truncated");
  }
  std::ofstream(part, std::ios::binary) << bytes.substr(0, 10);
  require_refused(part, "file too short");
  std::ofstream(part) << std::string(5000, 'x');
  require_refused(part, "invalid ELF header");
}

TEST_CASE("the devices of broken plug-ins", "[.child]") {
  for (const Plugin& plugin : framework::plugins())
    std::printf("plug-in %s: %s\n", plugin.name.c_str(), plugin.refused.c_str());
  for (const char* name : {"broken_version", "reference"}) try {
      framework::device(name);
      std::printf("%s is there\n", name);
    } catch (const std::runtime_error& error) {
      std::printf("runtime_error %s\n", error.what());
    }
}

TEST_CASE("$COURSE_BACKENDS is searched first, and what it has is said") {
  const Outcome outcome =
      run_child("the devices of broken plug-ins", "COURSE_BACKENDS='" + kBroken + "'");
  CAPTURE(outcome.text);
  REQUIRE(outcome.says("plug-in broken_symbol: it exports no course_backend()"));
  REQUIRE(outcome.says("runtime_error device broken_version: " + kBroken +
                       "/libcourse_broken_version.so: its version of the table is " +
                       std::to_string(COURSE_ABI_VERSION + 1)));
  REQUIRE(outcome.says("reference is there"));  // beside the program
}

TEST_CASE("a device has a plug-in's name and a number") {
  framework::Device& reference = framework::device("reference");
  REQUIRE(&reference == &framework::device("reference:0"));
  REQUIRE(&reference == &framework::device("own:reference"));
  REQUIRE(std::string(reference.name()) == "reference");
  const auto says = [](const char* name) {
    return testing::what_of<std::invalid_argument>([&] { framework::device(name); });
  };
  REQUIRE(says("reference:7") == "device reference:7: reference has 1 device");
  REQUIRE(contains_text(says("nobody"), "device nobody: there is no libcourse_nobody.so in "));
  REQUIRE(contains_text(says("own:nobody"), "there is no libcourse_nobody.so in "));
  REQUIRE(contains_text(says("nobody"), "; there is "));
  REQUIRE(contains_text(says(""), "there is no libcourse_.so"));
}

TEST_CASE("a plug-in is found by its name") {
  REQUIRE(framework::usable_plugin("reference").name == "reference");
  REQUIRE(framework::usable_plugin("own").table != framework::usable_plugin("reference").table);
  const std::string none =
      testing::what_of<std::invalid_argument>([] { framework::usable_plugin("nobody"); });
  REQUIRE(contains_text(none, "plug-in nobody: there is no libcourse_nobody.so in "));
}

TEST_CASE("a tensor goes from device to device") {
  framework::Device &own = framework::device("own"), &reference = framework::device("reference");
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Tensor x = Tensor::from_host(reference, values, {2, 3});
  REQUIRE(framework::to(x, reference).shares_storage(x));
  const Tensor y = framework::to(x.transpose(0, 1), own);  // only the values that it shows
  REQUIRE(&y.device() == &own);
  REQUIRE(y.to_host<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  const Tensor back = framework::to(y.transpose(0, 1), "reference");
  REQUIRE(&back.device() == &reference);
  REQUIRE(back.to_host<float>() == values);
  const Tensor none = framework::to(Tensor::empty(own, {0, 3}, framework::Dtype::u8), reference);
  REQUIRE(none.elements() == 0);
  const std::string text =
      testing::what_of<std::invalid_argument>([&] { framework::add(x, y.transpose(0, 1)); });
  REQUIRE(text ==
          "add of f32 (2,3) and f32 (2,3): one tensor is on reference, one on own: bring them "
          "together by to()");
}
