// A report as JSON, letter by letter, and what happens where it can't be written.
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/report.h"
#include "common/testing.h"
#include "common/tests/programs.h"
#include "common/tests/reports.h"

namespace fs = std::filesystem;
using namespace tests;

TEST_CASE("report: the JSON, letter by letter") {
  const Folder folder;
  const std::string path = folder / "a.json";
  Printed printed(with_json(path));
  Report& report = printed.report;
  report.table("n=4096", 12.5, "all");
  report.add(peer(timed("cuBLAS", 2, {4e9, 0, Work::Limit::copy})));
  Row naive = checked(timed("naive", 4, {8.4e9, 0, Work::Limit::copy}), 0.25, 0.5, 9);
  naive.lesson = "say \"one\"\n", naive.note = "noted";
  report.add(naive);
  report.add(failed("tiled"));
  report.add(skipped("wgmma", "needs sm_90"));
  report.fact("overhead", 3.5, "us");
  CHECK(report.finish() == 1);
  CHECK(folder.files().size() == 1);  // nothing partial is left behind

  const std::string text = std::regex_replace(
      read_file(path), std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ"), "DATE");
  CHECK(
      std::regex_replace(text, std::regex("\n *"), " ") ==
      "{ \"schema\": 1, \"step\": \"2.3\", \"program\": \"gemm\", \"summary\": \"C = A*B\", "
      "\"date\": \"DATE\", \"commit\": \"" +
          build_commit() +
          "\", \"headline\": \"n=4096\", \"quick\": false, "
          "\"dimensions\": [ \"n\" ], \"seed\": 1, "
          "\"device\": { \"name\": \"NVIDIA H200\", \"backend\": \"cuda\", \"toolkit\": \"13.0\", "
          "\"wave_size\": 32, \"multiprocessors\": 132 }, "
          "\"limits\": { \"copy_bytes_per_s\": 4200000000000.0, \"read_bytes_per_s\": "
          "4400000000000.0, \"fma_operations_per_s\": 60300000000000.0 }, "
          "\"tables\": [ { \"problem\": \"n=4096\", \"sampled\": \"all\", \"reference_ms\": 12.5, "
          "\"rows\": [ "
          "{ \"name\": \"cuBLAS\", \"lesson\": \"\", \"peer\": true, \"status\": \"ok\", "
          "\"skipped\": \"\", \"ms\": 2.0, \"ms_p10\": 1.8, \"ms_p90\": 2.2, \"rate\": "
          "2000000000000.0, \"rate_unit\": \"B/s\", \"of_limit\": 0.47619047619047616, \"limit\": "
          "\"copy\", \"of_peer\": {}, \"max_error\": null, \"of_bound\": null, \"bound\": null, "
          "\"index\": 0, \"first\": "
          "0, "
          "\"compared\": 0, \"failed\": 0, \"unwritten\": 0, \"note\": \"\" }, "
          "{ \"name\": \"naive\", \"lesson\": \"say \\\"one\\\"\\n\", \"peer\": false, \"status\": "
          "\"ok\", \"skipped\": \"\", \"ms\": 4.0, \"ms_p10\": 3.6, \"ms_p90\": 4.4, \"rate\": "
          "2100000000000.0, \"rate_unit\": \"B/s\", \"of_limit\": 0.5, \"limit\": \"copy\", "
          "\"of_peer\": { \"cuBLAS\": 0.5 }, \"max_error\": 0.25, \"of_bound\": 0.5, \"bound\": "
          "0.5, "
          "\"index\": 9, "
          "\"first\": 0, "
          "\"compared\": 4096, \"failed\": 0, \"unwritten\": 0, \"note\": \"noted\" }, "
          "{ \"name\": \"tiled\", \"lesson\": \"\", \"peer\": false, \"status\": \"FAIL\", "
          "\"skipped\": \"\", \"ms\": null, \"ms_p10\": null, \"ms_p90\": null, \"rate\": null, "
          "\"rate_unit\": \"B/s\", \"of_limit\": null, \"limit\": \"copy\", \"of_peer\": {}, "
          "\"max_error\": null, \"of_bound\": null, \"bound\": 0.00049, \"index\": 7, \"first\": "
          "0, "
          "\"compared\": 4096, "
          "\"failed\": "
          "12, \"unwritten\": 3, \"note\": \"\" }, "
          "{ \"name\": \"wgmma\", \"lesson\": \"\", \"peer\": false, \"status\": \"skipped\", "
          "\"skipped\": \"needs sm_90\", \"ms\": null, \"ms_p10\": null, \"ms_p90\": null, "
          "\"rate\": null, \"rate_unit\": \"B/s\", \"of_limit\": null, \"limit\": \"copy\", "
          "\"of_peer\": {}, \"max_error\": null, \"of_bound\": null, \"bound\": null, \"index\": "
          "0, "
          "\"first\": 0, "
          "\"compared\": 0, "
          "\"failed\": 0, \"unwritten\": 0, \"note\": \"\" } ] } ], "
          "\"facts\": [ { \"name\": \"overhead\", \"value\": 3.5, \"unit\": \"us\" } ], "
          "\"series\": {} } ");
}

TEST_CASE("report: the headline is the table that the program names, or the first") {
  const Folder folder;
  const auto headline = [&](const std::vector<std::string>& tables, const std::string& wanted) {
    Printed printed(with_json(folder / "a.json"));
    if (!wanted.empty()) printed.report.headline(wanted);
    for (const std::string& table : tables) printed.report.table(table);
    printed.report.finish();
    const std::string text = read_file(folder / "a.json");
    const std::size_t at = text.find("\"headline\": \"") + 13;
    return text.substr(at, text.find('"', at) - at);
  };
  CHECK(headline({"n=1", "n=2"}, "") == "n=1");
  CHECK(headline({"n=1", "n=2"}, "n=2") == "n=2");
  CHECK(headline({"n=3", "n=4"}, "n=2") == "n=3");  // --size has asked for others
  CHECK(headline({}, "n=2").empty());
}

TEST_CASE("report: the environment names the commit where the build could not") {
  unsetenv("COURSE_COMMIT");
  const std::string built = build_commit();
  CHECK_FALSE(built.empty());
  setenv("COURSE_COMMIT", "", 1);
  CHECK(build_commit() == built);
  setenv("COURSE_COMMIT", "0123abc", 1);
  CHECK(build_commit() == (built == "unknown" ? "0123abc" : built));
  unsetenv("COURSE_COMMIT");
}

TEST_CASE("report: a series is in the JSON only, one line for each row") {
  const Folder folder;
  const std::string path = folder / "a.json";
  Printed printed(with_json(path), kGpu, {});
  Report& report = printed.report;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  report.series("loss", {"epoch", "the \"loss\""}, {{1, 0.25}, {2, 1e-9}, {3, nan}});
  report.series("nothing", {}, {});
  report.series("confusion", {"\xFF"}, {{7}});
  CHECK(report.finish() == 0);
  CHECK(printed.text() == "2.3 gemm   C = A*B   seed 1\nNVIDIA H200 (cuda 13.0)\n");
  const std::string text = read_file(path);
  CHECK(text.substr(text.find(" \"facts\"")) ==
        " \"facts\": [],\n"
        " \"series\": {\n"
        "  \"loss\": {\n"
        "   \"columns\": [\"epoch\",\"the \\\"loss\\\"\"],\n"
        "   \"rows\": [\n"
        "    [1.0,0.25],\n"
        "    [2.0,1e-09],\n"
        "    [3.0,null]\n"
        "   ]\n"
        "  },\n"
        "  \"nothing\": {\n"
        "   \"columns\": [],\n"
        "   \"rows\": []\n"
        "  },\n"
        "  \"confusion\": {\n"
        "   \"columns\": [\"\xEF\xBF\xBD\"],\n"
        "   \"rows\": [\n"
        "    [7.0]\n"
        "   ]\n"
        "  }\n"
        " }\n"
        "}\n");
}

TEST_CASE("report: a series that is no table is refused") {
  Printed printed;
  printed.report.series("loss", {"epoch", "loss"}, {{1, 2}});
  CHECK_THROWS_AS(printed.report.series("loss", {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(printed.report.series("short", {"epoch", "loss"}, {{1, 2}, {1}}),
                  std::invalid_argument);
  CHECK_THROWS_AS(printed.report.series("long", {"epoch"}, {{1, 2}}), std::invalid_argument);
}

TEST_CASE("report: what JSON has no number for is null") {
  const Folder folder;
  const std::string path = folder / "a.json";
  Printed printed(with_json(path), kGpu, {});
  Row row = checked(timed("naive", 1, kGemmWork), std::numeric_limits<double>::infinity(),
                    std::numeric_limits<double>::infinity(), 0);
  printed.report.table("n=1");
  printed.report.add(row);
  printed.report.fact("not a number", std::numeric_limits<double>::quiet_NaN(), "");
  CHECK(printed.report.finish() == 0);
  const std::string text = read_file(path);
  CHECK(contains_text(text, "\"max_error\": null"));
  CHECK(contains_text(text, "\"bound\": null"));
  CHECK(contains_text(text, "\"value\": null"));
  CHECK(contains_text(text, "\"of_limit\": null"));
  CHECK(contains_text(text, "\"copy_bytes_per_s\": null"));
}

TEST_CASE("report: a name that is not UTF-8 does not lose the results") {
  const Folder folder;
  Printed printed(with_json(folder / "a.json"), {"bad \xFF name", "cpu", "1.0", 32, 1}, {});
  CHECK(printed.report.finish() == 0);
  CHECK(contains_text(read_file(folder / "a.json"), "\"bad \xEF\xBF\xBD name\""));
}

TEST_CASE("report: results that can't be written are an error and leave nothing half-made") {
  const Folder folder;
  SECTION("no such folder") {
    Printed printed(with_json(folder / "none/a.json"));
    CHECK_THROWS_AS(printed.report.finish(), std::runtime_error);
    CHECK(folder.files().size() == 0);
  }
  SECTION("a folder of that name") {
    fs::create_directories(folder / "a.json");
    Printed printed(with_json(folder / "a.json"));
    CHECK_THROWS_AS(printed.report.finish(), std::runtime_error);
    CHECK(folder.files().size() == 1);
  }
  SECTION("a full disk") {
    if (!fs::exists("/dev/full")) return;
    Printed printed(with_json("/dev/full"));
    try {
      printed.report.finish();
      FAIL("written without complaint");
    } catch (const std::runtime_error& error) {
      CHECK(contains_text(error.what(), "/dev/full cannot be written: "));
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
    CHECK_FALSE(fs::is_regular_file("/dev/full"));
  }
  SECTION("a disk that fills up") {
    // A limit on the size of files stands for it: the write that passes it fails.
    std::ofstream(folder / "a.json") << "old";
    Printed printed(with_json(folder / "a.json"));
    rlimit before;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {64, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    bool thrown = false;
    try {
      printed.report.finish();
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, signal_before);
    CHECK(thrown);
    CHECK(read_file(folder / "a.json") == "old");
    CHECK(folder.files().size() == 1);
  }
  SECTION("what was there stays until the new is whole") {
    std::ofstream(folder / "a.json") << "old";
    Printed printed(with_json(folder / "a.json"));
    CHECK(read_file(folder / "a.json") == "old");
    printed.report.finish();
    CHECK(contains_text(read_file(folder / "a.json"), "\"schema\": 1"));
    CHECK(folder.files().size() == 1);
  }
}
