#include "examples/train/chart.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "worker_sdk/core/strings.h"

namespace ddprun::train {
namespace {

using Run = std::span<const StepMetrics>;

constexpr double kWidth = 900, kHeight = 480;
constexpr double kLeft = 70, kRight = 25, kTop = 50, kBottom = 55;  // margins around the plot
constexpr double kMaxPoints = 1500;                                 // over all lines
constexpr const char* kInk = "#333333";
constexpr const char* kGrid = "#e4e4e4";
constexpr const char* kMark = "#c0392b";
constexpr const char* kLines[] = {"#1f6fb2", "#d9822b"};  // alternating by run

// Splits `metrics` into the consecutive runs of the workers.
std::vector<Run> SplitRuns(std::span<const StepMetrics> metrics) {
  std::vector<Run> runs;
  size_t begin = 0;
  for (size_t i = 1; i <= metrics.size(); ++i) {
    if (i < metrics.size() && metrics[i].step > metrics[i - 1].step &&
        metrics[i].restart == metrics[i - 1].restart && metrics[i].round == metrics[i - 1].round) {
      continue;
    }
    runs.push_back(metrics.subspan(begin, i - begin));
    begin = i;
  }
  return runs;
}

// Maps values to pixels on one axis.
struct Axis {
  double low, high;        // values
  double low_at, high_at;  // pixels
  [[nodiscard]] double operator()(double value) const {
    return low_at + (value - low) / (high - low) * (high_at - low_at);
  }
  // Returns the distance between ticks: 1, 2 or 5 times a power of ten. The axis has three to eight ticks.
  [[nodiscard]] double Tick() const {
    const double rough = (high - low) / 8;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= rough) return factor * power;
    }
    return 10 * power;
  }
};

std::string Line(double x1, double y1, double x2, double y2, std::string_view style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2,
                         style);
}

std::string Text(double x, double y, std::string_view text, std::string_view style) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style, text);
}

// Returns the lowest multiple of `tick` that is at least `low`; never -0.
double FirstTick(double low, double tick) { return std::ceil(low / tick) * tick + 0.0; }

std::string Grid(const Axis& x, const Axis& y) {
  const std::string line = StrCat("stroke=\"", kGrid, "\"");
  std::string svg;
  // Steps are integers, so ticks are at least 1 apart.
  const double step_tick = std::max(1.0, x.Tick());
  for (double step = FirstTick(x.low, step_tick); step <= x.high + 1e-9; step += step_tick) {
    StrAppend(&svg, Line(x(step), y.low_at, x(step), y.high_at, line),
              Text(x(step), y.low_at + 20, absl::StrFormat("%.0f", step), "text-anchor=\"middle\""));
  }
  const double loss_tick = y.Tick();
  for (double loss = FirstTick(y.low, loss_tick); loss <= y.high + 1e-9; loss += loss_tick) {
    StrAppend(&svg, Line(x.low_at, y(loss), x.high_at, y(loss), line),
              Text(x.low_at - 8, y(loss) + 4, absl::StrFormat("%.4g", loss), "text-anchor=\"end\""));
  }
  StrAppend(&svg, Text((x.low_at + x.high_at) / 2, kHeight - 12, "step", "text-anchor=\"middle\""),
            Text(18, (y.low_at + y.high_at) / 2, "loss, nats per byte",
                 absl::StrFormat("text-anchor=\"middle\" transform=\"rotate(-90 18 %.1f)\"",
                                 (y.low_at + y.high_at) / 2)));
  return svg;
}

std::string Curve(Run run, size_t number, size_t stride, const Axis& x, const Axis& y) {
  const char* color = kLines[number % std::size(kLines)];
  std::string points;
  for (size_t i = 0; i < run.size(); i += stride) {
    absl::StrAppendFormat(&points, "%.1f,%.1f ", x(run[i].step), y(run[i].loss));
  }
  absl::StrAppendFormat(&points, "%.1f,%.1f", x(run.back().step), y(run.back().loss));
  return absl::StrFormat(
      "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" stroke-linejoin=\"round\" "
      "stroke-linecap=\"round\"/>\n",
      points, color);
}

// Marks the start of `run`, which follows `before`.
std::string Mark(Run before, Run run, size_t number, const Axis& x, const Axis& y) {
  const StepMetrics& first = run.front();
  const double at = x(first.step);
  std::string label = first.restart != before.back().restart ? StrCat("restart ", first.restart)
                                                             : StrCat("round ", first.round);
  StrAppend(&label, ": ", first.world_size, first.world_size == 1 ? " worker" : " workers");
  const int64_t again = before.back().step - first.step + 1;
  if (again > 0) StrAppend(&label, ", ", again, again == 1 ? " step repeated" : " steps repeated");
  // Adjacent labels are at different heights. A label in the right half is to the left of its line.
  const double height = y.high_at + 14 + 16 * static_cast<double>(number % 4);
  const bool left = at > (x.low_at + x.high_at) / 2;
  return Line(at, y.low_at, at, y.high_at,
              StrCat("stroke=\"", kMark, "\" stroke-width=\"1.3\" stroke-dasharray=\"5 4\"")) +
         Text(left ? at - 6 : at + 6, height, label,
              StrCat("fill=\"", kMark, "\" text-anchor=\"", left ? "end" : "start", "\""));
}

std::string Title(std::span<const StepMetrics> metrics, size_t num_runs) {
  const StepMetrics& last = metrics.back();
  std::string title = absl::StrFormat("loss %.4f after %d steps", last.loss, last.step);
  if (num_runs > 1) StrAppend(&title, ", ", num_runs - 1, num_runs == 2 ? " restart" : " restarts");
  return Text(kLeft, 28, title, "font-size=\"17\"");
}

}  // namespace

std::string DrawLossChart(std::span<const StepMetrics> metrics) {
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"13\" fill=\"%s\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight, kWidth, kHeight, kInk);
  if (metrics.empty()) return StrCat(svg, Text(kLeft, 28, "no steps", ""), "</svg>\n");

  const auto by_loss = [](const StepMetrics& a, const StepMetrics& b) { return a.loss < b.loss; };
  const auto by_step = [](const StepMetrics& a, const StepMetrics& b) { return a.step < b.step; };
  const auto [low, high] = std::minmax_element(metrics.begin(), metrics.end(), by_loss);
  const auto [first, last] = std::minmax_element(metrics.begin(), metrics.end(), by_step);
  const double room = std::max(0.01, 0.05 * (high->loss - low->loss));
  const Axis x{static_cast<double>(std::min<int64_t>(first->step, 1) - 1),
               static_cast<double>(std::max(last->step, first->step + 1)), kLeft, kWidth - kRight};
  const Axis y{low->loss - room, high->loss + room, kHeight - kBottom, kTop};

  const std::vector<Run> runs = SplitRuns(metrics);
  const size_t stride = static_cast<size_t>(std::ceil(static_cast<double>(metrics.size()) / kMaxPoints));
  StrAppend(&svg, Title(metrics, runs.size()), Grid(x, y));
  for (size_t i = 0; i < runs.size(); ++i) StrAppend(&svg, Curve(runs[i], i, stride, x, y));
  for (size_t i = 1; i < runs.size(); ++i) StrAppend(&svg, Mark(runs[i - 1], runs[i], i, x, y));
  return svg + "</svg>\n";
}

}  // namespace ddprun::train
