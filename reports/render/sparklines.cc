// SPDX-License-Identifier: Apache-2.0
#include "reports/render/sparklines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "reports/summarise/memory_curve.h"

namespace tidemark {
namespace {

constexpr std::size_t kStretches = 40;

}  // namespace

std::vector<Sparkline> MemorySparklines(const std::vector<std::pair<std::string, const Trace*>>& traces) {
  std::vector<std::vector<Bytes>> curves;
  Bytes highest;
  for (const auto& [label, trace] : traces) {
    const std::vector<Bytes>& curve = curves.emplace_back(MemoryCurve(*trace, kStretches));
    highest = curve.empty() ? highest : std::max(highest, *std::ranges::max_element(curve));
  }
  std::vector<Sparkline> sparklines;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (curves[i].empty() || highest <= Bytes(0)) {
      continue;
    }
    const Bytes peak = *std::ranges::max_element(curves[i]);
    Sparkline& line = sparklines.emplace_back();
    line.label = traces[i].first;
    line.detail = fmt::format("up to {}", Text(peak));
    for (const Bytes bytes : curves[i]) {
      line.heights.push_back(static_cast<double>(bytes.count()) / static_cast<double>(highest.count()));
    }
  }
  return sparklines;
}

std::string SparklineText(const std::vector<double>& heights) {
  constexpr std::array<std::string_view, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const double height : heights) {
    const double eighths = std::ceil(std::clamp(height, 0.0, 1.0) * 8 - 1e-9);
    text += kEighths.at(static_cast<std::size_t>(eighths));
  }
  return text;
}

}  // namespace tidemark
