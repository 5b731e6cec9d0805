#include "stage5_training/06_train_toy/picture.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace train_toy {

// The logits (points, classes) for x (points, inputs).
static std::vector<float> logits_of(Training& t, const std::vector<float>& x) {
  const size_t count = x.size() / t.widths().front();
  const DeviceBuffer<float> d_x(x);
  const float* logits = t.model.forward(d_x.data(), count, t.stream);
  std::vector<float> host(count * t.widths().back());
  HIP_CHECK(hipStreamSynchronize(t.stream));
  HIP_CHECK(hipMemcpy(host.data(), logits, host.size() * sizeof(float), hipMemcpyDeviceToHost));
  return host;
}

// The class with the largest logit for each point.
static std::vector<int> classes_of(const std::vector<float>& logits, size_t classes) {
  std::vector<int> result;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(classes))
    result.push_back(
        static_cast<int>(std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row));
  return result;
}

Score score_of(Training& t, const Points& points) {
  const size_t classes = t.widths().back(), count = points.labels.size();
  const std::vector<float> logits = logits_of(t, points.x);
  const std::vector<int> predicted = classes_of(logits, classes);
  Score score{0, 0};
  for (size_t i = 0; i < count; ++i) {
    const float* row = logits.data() + i * classes;
    const double of_label = static_cast<double>(row[points.labels[i]]);
    const double max = static_cast<double>(row[predicted[i]]);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - max);
    score.loss += (std::log(sum) + max - of_label) / static_cast<double>(count);
    score.accuracy += (predicted[i] == points.labels[i]) / static_cast<double>(count);
  }
  return score;
}

std::string text(const char* format, double value) {
  char line[32];
  std::snprintf(line, sizeof line, format, value);
  return line;
}

std::string score_text(const Score& score) {
  return "loss " + text("%.2g", score.loss) + ", accuracy " + text("%.4g", 100 * score.accuracy) +
         "%";
}

// Whether the terminal's language can show more than ASCII.
static bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string language = value;
    return language.find("UTF-8") != std::string::npos ||
           language.find("utf8") != std::string::npos;
  }
  return false;
}

static bool has_color() {
  const char* terminal = std::getenv("TERM");
  const char* plain = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && terminal != nullptr && std::string(terminal) != "dumb" &&
         (plain == nullptr || *plain == '\0');
}

void draw_curve(const std::vector<float>& losses, unsigned every, Report& report) {
  constexpr size_t kRows = 6, kColumns = 60, kEighths = 8;
  std::vector<double> logs;
  for (const float loss : losses)
    if (loss > 0 && std::isfinite(loss)) logs.push_back(std::log10(static_cast<double>(loss)));
  if (logs.size() < 2 || logs.size() != losses.size()) return;
  const double top = *std::max_element(logs.begin(), logs.end());
  const double range = std::fmax(top - *std::min_element(logs.begin(), logs.end()), 1e-3);
  const char* blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const bool utf8 = has_utf8();
  const size_t columns = std::min(kColumns, logs.size());
  for (size_t row = kRows; row-- > 0;) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      const double log = logs[column * (logs.size() - 1) / (columns - 1)];
      const double height =
          (1 + std::floor((log - (top - range)) / range * (kRows * kEighths - 1)));
      const double eighths = std::clamp(height - static_cast<double>(row * kEighths), 0.0, 8.0);
      line += utf8 ? blocks[static_cast<size_t>(eighths)] : eighths >= 4 ? "#" : " ";
    }
    std::string label(10, ' ');
    if (row == kRows - 1) label = "   " + text("%7.1e", std::pow(10, top));
    if (row == 0) label = "   " + text("%7.1e", std::pow(10, top - range));
    report.line(label + (utf8 ? " ▏" : " |") + line);
  }
  report.line("           loss, from epoch " + std::to_string(every) + " to " +
              std::to_string(every * logs.size()));
}

// The part of the plane that the points lie in, with a margin.
struct Frame {
  double left, right, bottom, top;
};

static Frame frame_of(const Points& points) {
  Frame f{1e9, -1e9, 1e9, -1e9};
  for (size_t i = 0; i < points.labels.size(); ++i) {
    const double x = static_cast<double>(points.x[2 * i]);
    const double y = static_cast<double>(points.x[2 * i + 1]);
    f.left = std::min(f.left, x), f.right = std::max(f.right, x);
    f.bottom = std::min(f.bottom, y), f.top = std::max(f.top, y);
  }
  const double margin = 0.15 * std::fmax(f.right - f.left, f.top - f.bottom);
  return {f.left - margin, f.right + margin, f.bottom - margin, f.top + margin};
}

// The centres of rows x columns cells of the frame, the top row first.
static std::vector<float> grid_of(const Frame& f, size_t rows, size_t columns) {
  std::vector<float> x;
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column) {
      const double across = (static_cast<double>(column) + 0.5) / static_cast<double>(columns);
      const double down = (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
      x.push_back(static_cast<float>(f.left + across * (f.right - f.left)));
      x.push_back(static_cast<float>(f.top - down * (f.top - f.bottom)));
    }
  return x;
}

void draw_boundary(Training& t, const Points& points, Report& report) {
  constexpr size_t kRows = 18, kColumns = 48;
  const bool color = has_color();
  const char* regions[] = {" ", has_utf8() ? "·" : ".", has_utf8() ? "░" : ":"};
  const char* marks[] = {"o", "x", "+"};
  const char* colors[] = {"34", "33", "35"};  // blue, yellow, magenta: told apart by most eyes
  const Frame f = frame_of(points);
  const std::vector<int> seen =
      classes_of(logits_of(t, grid_of(f, kRows, kColumns)), t.widths().back());
  std::vector<int> labels(kRows * kColumns, -1);  // of the point in the cell
  for (size_t i = 0; i < points.labels.size(); ++i) {
    const double x = static_cast<double>(points.x[2 * i]);
    const double y = static_cast<double>(points.x[2 * i + 1]);
    const size_t column = static_cast<size_t>((x - f.left) / (f.right - f.left) * kColumns);
    const size_t row = static_cast<size_t>((f.top - y) / (f.top - f.bottom) * kRows);
    labels[row * kColumns + column] = points.labels[i];
  }
  for (size_t row = 0; row < kRows; ++row) {
    std::string line = "  ";
    for (size_t column = 0; column < kColumns; ++column) {
      const size_t cell = row * kColumns + column;
      const bool is_point = labels[cell] >= 0;
      const size_t c = static_cast<size_t>(is_point ? labels[cell] : seen[cell]);
      const char* sign = is_point ? marks[c] : regions[c];
      line += color ? std::string("\x1b[") + (is_point ? "1;" : "") + colors[c] + "m" + sign : sign;
    }
    report.line(line + (color ? "\x1b[0m" : ""));
  }
}

void add_series(const std::string& name, Training& t, const Points& points, Report& report) {
  constexpr size_t kCells = 48;
  const size_t classes = t.widths().back();
  const std::vector<float> x = grid_of(frame_of(points), kCells, kCells);
  const std::vector<float> logits = logits_of(t, x);
  const std::vector<int> seen = classes_of(logits, classes);
  std::vector<std::vector<double>> cells, dots;
  for (size_t i = 0; i < seen.size(); ++i) {
    const float* row = logits.data() + i * classes;
    double sum = 0;
    for (size_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(row[c]) - static_cast<double>(row[seen[i]]));
    cells.push_back({static_cast<double>(x[2 * i]), static_cast<double>(x[2 * i + 1]),
                     static_cast<double>(seen[i]), 1 / sum});
  }
  for (size_t i = 0; i < points.labels.size(); ++i)
    dots.push_back({static_cast<double>(points.x[2 * i]), static_cast<double>(points.x[2 * i + 1]),
                    static_cast<double>(points.labels[i])});
  report.series(name + "_boundary", {"x", "y", "class", "probability"}, cells);
  report.series(name + "_points", {"x", "y", "class"}, dots);
}

}  // namespace train_toy
