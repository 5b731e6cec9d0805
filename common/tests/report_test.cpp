// The table and the JSON, letter by letter, and what happens where they can't be written.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
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

namespace {

namespace fs = std::filesystem;

const ProgramInfo kProgram = {
    "2.3", "gemm", "C = A*B", {{"n", 4096, 256, 17}}, {{"naive", "one each"}, {"tiled", "t"}}};
const DeviceInfo kGpu = {"NVIDIA H200", "cuda", "13.0", 32, 132};
const Limits kLimits = {4.2e12, 4.4e12, 60.3e12};

std::string read_all(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  return text;
}

// A report that prints into a file of its own.
struct Printed {
  explicit Printed(Options options = {}, const DeviceInfo& device = kGpu,
                   const Limits& limits = kLimits)
      : file(std::tmpfile()), report(kProgram, std::move(options), device, file) {
    report.limits(limits);
  }
  ~Printed() { std::fclose(file); }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  std::string text() { return read_all(file); }

  std::FILE* file;
  Report report;
};

Row timed(const std::string& name, double ms, const Work& work) {
  Row row;
  row.name = name, row.ms = ms, row.work = work;
  row.ms_p10 = 0.9 * ms, row.ms_p90 = 1.1 * ms;
  return row;
}

Row checked(Row row, double error, double bound, std::size_t index) {
  row.check.compared = 4096, row.check.max_error = error, row.check.bound = bound;
  row.check.of_bound = error == 0 ? 0 : error / bound;
  row.check.index = index;
  return row;
}

Row peer(Row row) {
  row.peer = true;
  return row;
}

Row failed(const std::string& name) {
  Row row;
  row.name = name;
  row.check.ok = false, row.check.compared = 4096, row.check.failed = 12, row.check.unwritten = 3;
  row.check.max_error = std::numeric_limits<double>::quiet_NaN();
  row.check.of_bound = std::numeric_limits<double>::infinity();
  row.check.got = row.check.max_error, row.check.want = 2.5, row.check.bound = 0.00049;
  row.check.index = 7;
  return row;
}

Row skipped(const std::string& name, const std::string& reason) {
  Row row;
  row.name = name, row.skipped = reason;
  return row;
}

constexpr Work kGemmWork = {201e6, 137.4e9, Work::Limit::fma};

Options with_json(const std::string& path) {
  Options options;
  options.json = path;
  return options;
}

}  // namespace

TEST_CASE("report: a whole table") {
  Printed printed;
  Report& report = printed.report;
  report.table("M=N=K=4096 float32", 12345, "checked on 256 of 4096 rows");
  report.add(peer(timed("cuBLAS", 2.6, kGemmWork)));
  Row naive = checked(timed("naive", 19.9, kGemmWork), 3.1e-5, 4.9e-4, 12 * 64 + 7);
  naive.shape = {64, 64};
  report.add(naive);
  Row tiled = checked(timed("tiled", 2.5, kGemmWork), 0, 4.9e-4, 0);
  tiled.note = "bit-identical over 100 runs";
  report.add(tiled);
  report.add(skipped("wgmma", "needs sm_90"));
  CHECK(
      printed.text() ==
      "2.3 gemm   C = A*B   M=N=K=4096 float32   seed 1\n"
      "NVIDIA H200 (cuda 13.0)   measured limits: 4.20 TB/s copy, 4.40 TB/s read, 60.3 TFLOP/s "
      "fp32\n"
      "reference on the host: 12.3 s   checked on 256 of 4096 rows\n"
      "version     time          rate  of limit  of cuBLAS  max error  of bound         verdict\n"
      "cuBLAS   2.60 ms  52.8 TFLOP/s       88%          -          -  -                not "
      "compared\n"
      "naive    19.9 ms  6.90 TFLOP/s       11%        13%    3.1e-05  6.3% @[12,7]     ok (bound "
      "4.9e-04)\n"
      "tiled    2.50 ms  55.0 TFLOP/s       91%       104%          0  0                ok (bound "
      "4.9e-04)   bit-identical over 100 runs\n"
      "wgmma          -             -         -          -          -  -                needs "
      "sm_90\n");
  CHECK(report.finish() == 0);
}

TEST_CASE("report: a right result that does not reach what was promised fails") {
  Printed printed;
  printed.report.table("n=4096");
  Row row = checked(timed("fused", 1, kGemmWork), 0, 0, 0);
  row.missed = "test 96.1%, promised 97.5%";
  printed.report.add(row);
  CHECK(contains_text(printed.text(), "FAIL (test 96.1%, promised 97.5%)\n"));
  CHECK(printed.report.finish() == 1);
}

TEST_CASE("report: a failure says what, where and how much, and is the exit code") {
  Printed printed;
  printed.report.table("n=4096");
  printed.report.add(failed("naive"));
  printed.report.add(checked(timed("tiled", 1, kGemmWork), 0, 0, 0));
  CHECK(contains_text(
      printed.text(),
      "naive          -             -         -        nan  inf @[7]         FAIL (bound "
      "4.9e-04, got nan, want 2.5, 12 of 4096 wrong, 3 never written)\n"));
  CHECK(printed.report.finish() == 1);
}

TEST_CASE("report: a peer that is wrong fails too, one that was skipped does not") {
  Printed wrong;
  wrong.report.table("n=1");
  wrong.report.add(peer(failed("cuBLAS")));
  CHECK(wrong.report.finish() == 1);
  CHECK(contains_text(wrong.text(), "FAIL"));  // printed though no version followed

  Printed absent;
  absent.report.table("n=1");
  absent.report.add(peer(skipped("cuBLAS", "needs CUDA")));
  absent.report.add(checked(timed("naive", 1, kGemmWork), 0, 0, 0));
  CHECK(absent.report.finish() == 0);
  CHECK(absent.text().find("of cuBLAS") == std::string::npos);
}

TEST_CASE("report: two peers are two columns") {
  Printed printed;
  printed.report.table("n=1");
  printed.report.add(peer(timed("cuBLAS", 2, kGemmWork)));
  printed.report.add(peer(timed("Eigen", 8, kGemmWork)));
  printed.report.add(timed("naive", 4, kGemmWork));
  CHECK(contains_text(printed.text(), "  of limit  of cuBLAS  of Eigen  max error  of bound"));
  CHECK(contains_text(printed.text(), "       57%        50%      200%          -  -"));
}

TEST_CASE("report: units fit the figures") {
  const std::vector<std::pair<double, std::string>> times = {
      {0.00012, " 0.12 us"}, {0.00999, " 9.99 us"}, {0.09996, "  100 us"},
      {0.5, "  500 us"},     {1, " 1.00 ms"},       {10, " 10.0 ms"},
      {123.4, "  123 ms"},   {1500, "  1.50 s"},    {123456, "   123 s"}};
  for (const auto& [ms, text] : times) {
    Printed printed;
    printed.report.table("n=1");
    printed.report.add(timed("naive", ms, {}));
    CHECK(contains_text(printed.text(), "\nnaive   " + text + " "));
  }
  const std::vector<std::pair<double, std::string>> rates = {{5e6, "     5.00 MB/s"},
                                                             {2e9, "     2.00 GB/s"},
                                                             {9.99e11, "      999 GB/s"},
                                                             {4e12, "     4.00 TB/s"}};
  for (const auto& [rate, text] : rates) {
    Printed printed;
    printed.report.table("n=1");
    printed.report.add(timed("naive", 1000, {rate, 0, Work::Limit::copy}));
    CHECK(contains_text(printed.text(), "  1.00 s" + text + " "));
  }
  Printed operations;
  operations.report.table("n=1");
  operations.report.add(timed("naive", 1000, {1, 7e9, Work::Limit::fma}));
  CHECK(contains_text(operations.text(), "7.00 GFLOP/s"));
}

TEST_CASE("report: each row is held against its own limit") {
  Printed printed;
  printed.report.table("n=1");
  printed.report.add(timed("copies", 1000, {2.1e12, 9, Work::Limit::copy}));
  printed.report.add(timed("reads", 1000, {1.1e12, 9, Work::Limit::read}));
  printed.report.add(timed("computes", 1000, {9, 6.03e12, Work::Limit::fma}));
  printed.report.add(timed("free", 1000, {1e12, 9, Work::Limit::none}));
  printed.report.add(timed("crawls", 1000, {4.2e6, 9, Work::Limit::copy}));
  const std::string text = printed.text();
  CHECK(contains_text(text, "2.10 TB/s       50%"));
  CHECK(contains_text(text, "1.10 TB/s       25%"));
  CHECK(contains_text(text, "6.03 TFLOP/s       10%"));
  CHECK(contains_text(text, "1.00 TB/s         -"));
  CHECK(contains_text(text, "4.20 MB/s     <0.1%"));
}

TEST_CASE("report: columns stay aligned under long names") {
  Printed printed;
  printed.report.table("n=1");
  printed.report.add(checked(timed("naive", 1, kGemmWork), 1e-7, 1e-6, 3));
  printed.report.add(checked(timed("a name longer than the column", 1, kGemmWork), 1e-7, 1e-6, 3));
  const std::string figures =
      "  1.00 ms   137 TFLOP/s      228%    1.0e-07  10% @[3]         ok (bound 1.0e-06)\n";
  CHECK(contains_text(printed.text(),
                      "naive  " + figures + "a name longer than the column\n       " + figures));

  // A name that is known when the heading is printed widens the column; letters count, not bytes.
  Printed wide;
  wide.report.table("n=1");
  wide.report.add(
      timed("A\xC2\xB7"
            "B in place",
            1, {}));
  CHECK(contains_text(wide.text(), "version          time"));
  CHECK(contains_text(wide.text(),
                      "A\xC2\xB7"
                      "B in place  1.00 ms"));
}

TEST_CASE("report: rows are printed at once") {
  Printed printed;
  printed.report.table("n=1");
  CHECK(contains_text(printed.text(), "n=1"));
  printed.report.add(timed("naive", 1, {}));
  CHECK(contains_text(printed.text(), "naive "));
}

TEST_CASE("report: two tables, lines and facts") {
  Printed printed;
  Report& report = printed.report;
  report.table("n=1");
  report.add(timed("naive", 1, {}));
  report.line("a line");
  report.table("n=2");
  report.add(timed("tiled", 1, {}));
  report.fact("launch overhead", 3.1, "us");
  const std::string text = printed.text();
  CHECK(contains_text(text, "\na line\n\n2.3 gemm   n=2\nversion "));
  CHECK(contains_text(text, "\nlaunch overhead                         3.1 us\n"));
  std::size_t devices = 0;
  for (std::size_t at = 0; (at = text.find("NVIDIA", at)) != std::string::npos; ++at) ++devices;
  CHECK(devices == 1);
}

TEST_CASE("report: a program without tables still says where it ran") {
  Printed printed({}, kGpu, {});
  CHECK(printed.report.finish() == 0);
  CHECK(printed.text() == "2.3 gemm   C = A*B   seed 1\nNVIDIA H200 (cuda 13.0)\n");
}

TEST_CASE("report: the CPU backend calls itself one") {
  Options options;
  options.quick = true, options.seed = 7;
  Printed printed(options, {"Some processor", "cpu", "1.0", 64, 2}, {10e9, 12e9, 50e9});
  printed.report.table("n=1");
  CHECK(printed.text() ==
        "2.3 gemm   C = A*B   n=1   seed 7   quick\n"
        "Some processor (cpu backend, waves of 64)   measured limits of this processor: 10.0 GB/s "
        "copy, 12.0 GB/s read, 50.0 GFLOP/s fp32\n");
}

TEST_CASE("report: the JSON, letter by letter") {
  const tests::Folder folder;
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
      tests::read_file(path), std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ"), "DATE");
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

TEST_CASE("report: a share of the bound in every size") {
  const std::vector<std::pair<double, std::string>> shares = {
      {5e-5, "  <0.1% @[3] "}, {0.031, "  3.1% @[3] "}, {0.5, "  50% @[3] "},
      {1.5, "  150% @[3] "},   {99, "  9900% @[3] "},   {12345, "  1e+04 @[3] "}};
  for (const auto& [share, text] : shares) {
    Printed printed;
    printed.report.table("n=1");
    printed.report.add(checked(timed("naive", 1, kGemmWork), share * 1e-6, 1e-6, 3));
    CHECK(contains_text(printed.text(), text));
  }
}

TEST_CASE("report: the headline is the table that the program names, or the first") {
  const tests::Folder folder;
  const auto headline = [&](const std::vector<std::string>& tables, const std::string& wanted) {
    Printed printed(with_json(folder / "a.json"));
    if (!wanted.empty()) printed.report.headline(wanted);
    for (const std::string& table : tables) printed.report.table(table);
    printed.report.finish();
    const std::string text = tests::read_file(folder / "a.json");
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
  const tests::Folder folder;
  const std::string path = folder / "a.json";
  Printed printed(with_json(path), kGpu, {});
  Report& report = printed.report;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  report.series("loss", {"epoch", "the \"loss\""}, {{1, 0.25}, {2, 1e-9}, {3, nan}});
  report.series("nothing", {}, {});
  report.series("confusion", {"\xFF"}, {{7}});
  CHECK(report.finish() == 0);
  CHECK(printed.text() == "2.3 gemm   C = A*B   seed 1\nNVIDIA H200 (cuda 13.0)\n");
  const std::string text = tests::read_file(path);
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
  const tests::Folder folder;
  const std::string path = folder / "a.json";
  Printed printed(with_json(path), kGpu, {});
  Row row = checked(timed("naive", 1, kGemmWork), std::numeric_limits<double>::infinity(),
                    std::numeric_limits<double>::infinity(), 0);
  printed.report.table("n=1");
  printed.report.add(row);
  printed.report.fact("not a number", std::numeric_limits<double>::quiet_NaN(), "");
  CHECK(printed.report.finish() == 0);
  const std::string text = tests::read_file(path);
  CHECK(contains_text(text, "\"max_error\": null"));
  CHECK(contains_text(text, "\"bound\": null"));
  CHECK(contains_text(text, "\"value\": null"));
  CHECK(contains_text(text, "\"of_limit\": null"));
  CHECK(contains_text(text, "\"copy_bytes_per_s\": null"));
}

TEST_CASE("report: a name that is not UTF-8 does not lose the results") {
  const tests::Folder folder;
  Printed printed(with_json(folder / "a.json"), {"bad \xFF name", "cpu", "1.0", 32, 1}, {});
  CHECK(printed.report.finish() == 0);
  CHECK(contains_text(tests::read_file(folder / "a.json"), "\"bad \xEF\xBF\xBD name\""));
}

TEST_CASE("report: results that can't be written are an error and leave nothing half-made") {
  const tests::Folder folder;
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
    CHECK(tests::read_file(folder / "a.json") == "old");
    CHECK(folder.files().size() == 1);
  }
  SECTION("what was there stays until the new is whole") {
    std::ofstream(folder / "a.json") << "old";
    Printed printed(with_json(folder / "a.json"));
    CHECK(tests::read_file(folder / "a.json") == "old");
    printed.report.finish();
    CHECK(contains_text(tests::read_file(folder / "a.json"), "\"schema\": 1"));
    CHECK(folder.files().size() == 1);
  }
}

TEST_CASE("report: a table that can't be printed is an error") {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) return;
  Report report(kProgram, {}, kGpu, full);
  report.table("n=1");
  CHECK_THROWS_AS(report.finish(), std::runtime_error);
  std::fclose(full);
}

TEST_CASE("report: a terminal gets nothing that steers it, a file every letter") {
  const std::string written = "what the model writes: \x1b[2J\u202e\xff, \u03bb\nand a second line";
  Printed printed;
  printed.report.line(written);
  CHECK(contains_text(printed.text(), written + "\n"));

  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) return;  // a sandbox may give none
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  std::FILE* const out = std::fopen(ptsname(terminal), "w");
  REQUIRE(out != nullptr);
  Report(kProgram, {}, kGpu, out).line(written);
  std::fclose(out);
  std::string
      bytes;  // comes in pieces; with the other side closed, a read fails after the last one
  char piece[256];
  for (ssize_t n; (n = read(terminal, piece, sizeof piece)) > 0;) bytes.append(piece, n);
  close(terminal);
  CHECK(contains_text(bytes,  // a terminal's own line ends are two letters
                      "what the model writes: \\x1b[2J\\u202e\\xff, \u03bb\r\n"
                      "and a second line\r\n"));
}
