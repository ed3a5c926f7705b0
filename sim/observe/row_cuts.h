// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "sim/observe/measured_microbatch.h"
#include "traces/trace.h"

namespace tidemark {

/// A stretch of both passes of a measured microbatch, as memory events and as its tensors.
struct MeasuredRow {
  std::string name;
  std::size_t forward_begin = 0, forward_end = 0;    ///< [begin, end)
  std::size_t backward_begin = 0, backward_end = 0;  ///< [begin, end)
  std::vector<std::size_t> saved, gradients;         ///< indices into MeasuredMicrobatch::tensors
  Bytes saved_bytes, gradient_bytes;
};

/// Divides a microbatch into at most `most` rows, in forward order, as ObserveNetwork (observed_network.h) describes
/// it. Every saved tensor and every gradient is in one row; names are different. `passes`: PassesOfSpans.
std::vector<MeasuredRow> CutIntoRows(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes,
                                     const MeasuredMicrobatch& microbatch, std::size_t most);

}  // namespace tidemark
