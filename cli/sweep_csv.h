// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/result.h"
#include "cli/sweep_values.h"
#include "sim/sweep/segment_folder.h"

namespace tidemark {

/// Writes all rows of a sweep as CSV, a whole file or none: those that fit first, then by step; behind them those that
/// were refused, with the reason. `front`: combinations on the Pareto front. Memory: a few rows of each segment.
Status WriteSweepCsv(const std::string& path, const SweepValues& columns, const SegmentFolder& segments,
                     const std::set<std::int64_t>& front);

}  // namespace tidemark
