// The table that a report prints, letter by letter, and what happens where it can't be printed.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/report.h"
#include "common/testing.h"
#include "common/tests/reports.h"

using namespace tests;

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
