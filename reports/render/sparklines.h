// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/render/document.h"
#include "traces/trace.h"

namespace tidemark {

/// The memory of some traces over time on one scale, each by its label. Traces without memory have none.
std::vector<Sparkline> MemorySparklines(const std::vector<std::pair<std::string, const Trace*>>& traces);

/// A curve in eighths of a line: "▁▃▇█▅▂", one character each. What is not zero is seen.
std::string SparklineText(const std::vector<double>& heights);

}  // namespace tidemark
