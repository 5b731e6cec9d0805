// Tables that are measured in rounds: what is checked, in which order, how often, and what becomes
// of rows that fail. The work is filling memory: no kernels are needed.
#include "common/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/blas.h"
#include "common/testing.h"

namespace {

const ProgramInfo kProgram = {"1.1", "fill", "fills", {}, {}};
constexpr Work kWork = {1e6, 0, Work::Limit::copy};
constexpr double kAlways = 1e9;  // ms: everything is short enough for a graph

using Launch = int;
Version<Launch> version(const char* name, Needs needs = Needs::Any) {
  return {name, 0, "a lesson", needs};
}

// Four bytes on the device, and what is done to them, in order.
struct Problem {
  Problem() { HIP_CHECK(hipMalloc(&data, 4)); }
  ~Problem() { static_cast<void>(hipFree(data)); }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  // Fills with `value` and writes its name down.
  Measured fill(char name, int value) {
    return {kWork,
            [=](hipStream_t stream) {
              HIP_CHECK(hipMemsetAsync(data, value, 4, stream));
              launches += name;
            },
            [=] { return verify(); },
            {{data, 4}}};
  }
  Comparison verify() {
    ++verified;
    unsigned char got[4];
    HIP_CHECK(hipMemcpy(got, data, 4, hipMemcpyDeviceToHost));
    return compare(
        4, [&](size_t i) { return got[i]; }, [&](size_t) { return want; },
        [&](size_t) { return bound; });
  }

  void* data = nullptr;
  double want = 7, bound = 0;
  std::string launches;  // a letter for each call
  int verified = 0;
};

struct Reported {
  Reported() : file(std::tmpfile()), report(kProgram, {}, {"Some GPU", "cpu", "1", 32, 1}, file) {
    report.table("n=4");
  }
  ~Reported() { std::fclose(file); }
  Reported(const Reported&) = delete;
  Reported& operator=(const Reported&) = delete;
  std::string text() {
    std::string all;
    std::rewind(file);
    for (int c; (c = std::fgetc(file)) != EOF;) all += static_cast<char>(c);
    return all;
  }

  std::FILE* file;
  Report report;
};

Options repeat(int times) {
  Options options;
  options.repeat = times;
  return options;
}

// The letters of which no two neighbours are alike: in which order the rows were at work.
std::string turns(const std::string& letters) {
  std::string result;
  for (const char c : letters)
    if (result.empty() || result.back() != c) result += c;
  return result;
}

}  // namespace

TEST_CASE("measure: all are checked first, then timed in three rounds, peers first") {
  Problem p;
  Reported out;
  Measurement table(repeat(7), 0);
  table.version(version("one"), p.fill('a', 7));
  table.version(version("two"), p.fill('b', 7));
  table.peer("library", p.fill('p', 7));
  table.peer("another", p.fill('q', 7));
  const std::vector<Row>& rows = table.run(out.report);
  REQUIRE(rows.size() == 4);
  CHECK(p.launches.substr(0, 4) == "pqab");
  CHECK(turns(p.launches) == "pqabpqabpqabpqab");
  CHECK(p.verified == 4);
  const std::vector<std::string> names = {"library", "another", "one", "two"};
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].name == names[i]);
    CHECK(rows[i].peer == (i < 2));
    CHECK(rows[i].lesson == (i < 2 ? "" : "a lesson"));
    CHECK(rows[i].ms > 0);
    CHECK(rows[i].ms_p10 <= rows[i].ms);
    CHECK(rows[i].ms <= rows[i].ms_p90);
    CHECK(rows[i].check.compared == 4);
    CHECK(rows[i].work.bytes == 1e6);
    CHECK(rows[i].note.empty());
  }
  CHECK(contains_text(out.text(), "of library  of another"));
  CHECK(out.report.finish() == 0);
}

TEST_CASE("measure: the rounds are as many as are asked for") {
  for (const int rounds : {1, 2, 5}) {
    Problem p;
    Reported out;
    Options options = repeat(10);
    options.rounds = rounds;
    Measurement table(options, 0);
    table.version(version("one"), p.fill('a', 7));
    table.version(version("two"), p.fill('b', 7));
    table.run(out.report);
    std::string want = "ab";  // the check
    for (int round = 0; round < rounds; ++round) want += "ab";
    CHECK(turns(p.launches) == want);
  }
}

TEST_CASE("measure: on the host it runs as often as one alone does") {
  if (!Measurement::kIsCpu) return;
  const auto launches = [](int times, bool alone) {
    int count = 0;
    // Long enough that neither batches nor a warm-up depend on how long it took.
    const auto work = [&] {
      ++count;
      HostTimer timer;
      while (timer.ms() < 25) {
      }
    };
    Reported out;
    if (alone) {
      measure("one", "", Needs::Any, kWork, {}, times, work, [] { return Comparison{}; });
    } else {
      Measurement table(repeat(times));
      table.version(version("one"),
                    {kWork, [&](hipStream_t) { work(); }, [] { return Comparison{}; }});
      table.run(out.report);
    }
    return count;
  };
  for (const int times : {1, 2, 3, 7}) CHECK(launches(times, false) == launches(times, true));
}

TEST_CASE("measure: a round has a third of the launches that are usual") {
  if (!Measurement::kIsCpu) return;
  const auto launches = [](int rounds) {
    int count = 0;
    const auto work = [&](hipStream_t) {  // so long that five launches are usual
      ++count;
      std::this_thread::sleep_for(std::chrono::milliseconds(101));
    };
    Reported out;
    Options options;
    options.rounds = rounds;
    Measurement table(options);
    table.version(version("one"), {kWork, work, [] { return Comparison{}; }});
    table.run(out.report);
    return count - 4;  // the check, two that are not timed, and a warm-up
  };
  CHECK(launches(3) == 5);
  CHECK(launches(1) == 2);
  CHECK(launches(6) == 10);
}

TEST_CASE("measure: a row that fails is not timed, and the program fails") {
  Problem p;
  Reported out;
  Measurement table(repeat(3), 0);
  table.version(version("right"), p.fill('a', 7));
  Measured wrong = p.fill('b', 8);
  bool finished = false;
  wrong.finish = [&](Row&) { finished = true; };
  table.version(version("wrong"), wrong);
  const std::vector<Row> rows = table.run(out.report);
  CHECK(rows[0].ms > 0);
  CHECK(rows[1].ms == 0);
  CHECK_FALSE(rows[1].check.ok);
  CHECK(rows[1].check.failed == 4);
  CHECK_FALSE(finished);
  CHECK(std::count(p.launches.begin(), p.launches.end(), 'b') == 1);
  CHECK(out.report.finish() == 1);
}

TEST_CASE(
    "measure: where no times are wanted, a row is checked and finished, and launched no more") {
  Problem p;
  Reported out;
  Options options;
  options.no_times = true;
  Measurement table(options, 0);
  Measured right = p.fill('a', 7);
  right.finish = [&](Row& row) { row.note = "finished"; };
  table.version(version("right"), right);
  table.version(version("wrong"), p.fill('b', 8));
  table.check_exactly();
  const std::vector<Row> rows = table.run(out.report);
  CHECK(rows[0].ms == 0);
  CHECK(rows[0].note == "finished");
  CHECK_FALSE(rows[1].check.ok);
  CHECK(p.launches == "aba");  // what has failed on integers is not checked again
  CHECK(out.report.finish() == 1);
}

TEST_CASE("measure: what was not written is seen, also after a version that was right") {
  Problem p;
  Reported out;
  Measurement table(repeat(3), 0);
  table.version(version("right"), p.fill('a', 7));
  Measured nothing = p.fill('b', 7);
  nothing.launch = [](hipStream_t) {};
  table.version(version("nothing"), nothing);
  const std::vector<Row> rows = table.run(out.report);
  CHECK(rows[1].check.unwritten == 4);
  CHECK(out.report.finish() == 1);
}

TEST_CASE("measure: the check on integers refuses what the bound of real numbers lets pass") {
  Problem p;
  Reported out;
  Measurement table(repeat(3), 0);
  table.version(version("exact"), p.fill('a', 7));
  table.version(version("near"), p.fill('b', 8));
  p.bound = 2;  // 8 is near enough to 7
  SECTION("as a whole") {
    table.check_exactly();
    CHECK(p.launches == "ab");
    const std::vector<Row> rows = table.run(out.report);
    CHECK(rows[0].check.ok);
    CHECK(rows[0].ms > 0);
    CHECK_FALSE(rows[1].check.ok);
    CHECK(rows[1].ms == 0);
    CHECK(rows[1].check.failed > 0);
    CHECK(rows[1].note == "on integers");
    CHECK(std::count(p.launches.begin(), p.launches.end(), 'b') == 1);
    CHECK(out.report.finish() == 1);
  }
  SECTION("which is what refuses it") {
    const std::vector<Row> rows = table.run(out.report);
    CHECK(rows[1].check.ok);
    CHECK(out.report.finish() == 0);
  }
}

TEST_CASE("measure: a check on integers of its own") {
  Problem p;
  Reported out;
  Measurement table(repeat(3), 0);
  Measured measured = p.fill('a', 7);
  int exactly = 0;
  measured.verify_exactly = [&] { return ++exactly, p.verify(); };
  table.version(version("one"), measured);
  table.check_exactly();
  table.run(out.report);
  CHECK(exactly == 1);
  CHECK(p.verified == 2);
}

TEST_CASE("measure: prepare comes before each check, finish may refuse") {
  Problem p;
  Reported out;
  Measurement table(repeat(3), 0);
  Measured measured = p.fill('a', 7);
  measured.prepare = [&] { p.launches += '('; };
  measured.finish = [&](Row& row) {
    CHECK(row.ms > 0);
    row.note = "3 different results", row.check.ok = false;
  };
  measured.shape = {2, 2};
  table.version(version("one"), measured);
  table.check_exactly();
  const std::vector<Row> rows = table.run(out.report);
  CHECK(p.launches.substr(0, 4) == "(a(a");
  CHECK(std::count(p.launches.begin(), p.launches.end(), '(') == 2);
  CHECK(rows[0].note == "3 different results");
  CHECK(rows[0].shape.size() == 2);
  CHECK(out.report.finish() == 1);
}

TEST_CASE("measure: what can't run here, or nobody wants, does not") {
  Problem p;
  Reported out;
  Options options = repeat(3);
  options.versions = {"one", "special", "absent"};
  Measurement table(options, 0);
  table.version(version("one"), p.fill('a', 7));
  table.version(version("two"), p.fill('b', 7));
  // No device can do both.
  const Needs needs = missing(Needs::Sm90).empty() ? Needs::Cdna : Needs::Sm90;
  Measured special = p.fill('c', 7);
  special.skipped = "not at this size";  // elsewhere that would be the reason
  table.version(version("special", needs), std::move(special));
  Measured absent = p.fill('d', 7);
  absent.skipped = "no library";
  table.version(version("absent"), std::move(absent));
  table.check_exactly();
  const std::vector<Row> rows = table.run(out.report);
  REQUIRE(rows.size() == 3);
  CHECK(rows[1].skipped == missing(needs));
  CHECK(rows[2].skipped == "no library");
  CHECK(turns(p.launches) == "a");
  CHECK(out.report.finish() == 0);
}

TEST_CASE("measure: short work is timed in a graph") {
  Problem p;
  Reported out;
  Measurement table(repeat(9), kAlways);
  table.version(version("one"), p.fill('a', 7));
  const std::vector<Row> rows = table.run(out.report);
  CHECK(rows[0].ms > 0);
  CHECK(rows[0].note.empty());
  // The check, two runs and their warm-up, one on the new stream, those that are captured: none is
  // launched by itself after that, whatever --repeat says.
  const size_t captured = p.launches.size();
  Problem again;
  Reported out_again;
  Measurement more(repeat(900), kAlways);
  more.version(version("one"), again.fill('a', 7));
  more.run(out_again.report);
  CHECK(again.launches.size() < captured + 800);
}

TEST_CASE("measure: what can't be captured is timed without a graph and says so") {
  Problem p;
  const auto note_of = [&](const std::function<void(hipStream_t)>& launch) {
    Reported out;
    Measurement table(repeat(3), kAlways);
    Measured measured = p.fill('a', 7);
    measured.launch = launch;
    measured.note = "noted";
    table.peer("library", measured);
    const std::vector<Row> rows = table.run(out.report);
    CHECK(rows[0].ms > 0);
    CHECK(out.report.finish() == 0);
    return rows[0].note;
  };
  const std::string refused = "noted   not in a graph: its launch can't be captured";
  CHECK(note_of([&](hipStream_t stream) {
          HIP_CHECK(hipMemsetAsync(p.data, 7, 4, stream));
          HIP_CHECK(hipStreamSynchronize(stream));
        }) == refused);
  CHECK(note_of([&](hipStream_t stream) {
          HIP_CHECK(hipMemsetAsync(p.data, 7, 4, stream));
          hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
          if (stream != nullptr) HIP_CHECK(hipStreamIsCapturing(stream, &status));
          if (status != hipStreamCaptureStatusNone) throw std::runtime_error("the library says no");
        }) == refused);
  // Half of the launches go elsewhere.
  int calls = 0;
  const gpu::Stream other;
  CHECK(note_of([&](hipStream_t stream) {
          HIP_CHECK(hipMemsetAsync(p.data, 7, 4, calls++ % 2 == 0 ? stream : other));
        }) == "noted   not in a graph: it does not use its stream");
}

TEST_CASE("measure: the library's calls are timed in graphs, too") {
  if (!blas::available()) return;
  // 64 x 64 ones: every product is one of 64 ones, every sum 64 of them.
  constexpr size_t kSide = 64, kSize = kSide * kSide;
  const std::vector<float> ones(kSize, 1);
  float *a = nullptr, *c = nullptr;
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&a), kSize * sizeof(float)));
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&c), kSize * sizeof(float)));
  HIP_CHECK(hipMemcpy(a, ones.data(), kSize * sizeof(float), hipMemcpyHostToDevice));
  const auto all_are = [&](size_t n, double want) {
    std::vector<float> got(n);
    HIP_CHECK(hipMemcpy(got.data(), c, n * sizeof(float), hipMemcpyDeviceToHost));
    return compare(
        n, [&](size_t i) { return got[i]; }, [&](size_t) { return want; },
        [&](size_t) { return 0.0; });
  };
  const auto row = [&](size_t n, double want, std::function<void(hipStream_t)> launch) {
    return Measured{
        kWork, std::move(launch), [=] { return all_are(n, want); }, {{c, n * sizeof(float)}}};
  };
  Reported out;
  Measurement table(repeat(3), kAlways);
  table.peer("gemm", row(kSize, 64, [=](hipStream_t stream) {
               blas::gemm(false, false, kSide, kSide, kSide, 1, a, kSide, a, kSide, 0, c, kSide,
                          stream);
             }));
  table.peer("gemv", row(kSide, 64, [=](hipStream_t stream) {
               blas::gemv(false, kSide, kSide, 1, a, kSide, a, 0, c, stream);
             }));
  table.peer("dot", row(1, 4096, [=](hipStream_t stream) { blas::dot(kSize, a, a, c, stream); }));
  table.peer("transpose", row(kSize, 1, [=](hipStream_t stream) {
               blas::transpose(kSide, kSide, a, c, stream);
             }));
  for (const Row& measured : table.run(out.report)) {
    CAPTURE(measured.name);
    CHECK(measured.check.ok);
    CHECK(measured.ms > 0);
    CHECK(measured.note.empty());
  }
  // The stream is gone; the default one works.
  blas::gemv(false, kSide, kSide, 1, a, kSide, a, 0, c);
  CHECK(all_are(kSide, 64).ok);
  HIP_CHECK(hipFree(a));
  HIP_CHECK(hipFree(c));
}

TEST_CASE("measure: a table can be filled anew") {
  Problem p;
  Reported out;
  Measurement table(repeat(3), 0);
  table.version(version("one"), p.fill('a', 7));
  CHECK(table.run(out.report).size() == 1);
  table.version(version("two"), p.fill('b', 7));
  table.peer("library", p.fill('p', 7));
  CHECK(table.run(out.report).size() == 2);
}
